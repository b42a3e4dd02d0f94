"""An ONNX file becomes operations: the same that a trace of the model gives. Nothing runs, and no torch is needed."""

from rooflens.graph import (
    attention,
    layers,
    movement,
    pointwise,
    products,
    quantized,
    recurrent,
)
from rooflens.graph.file import GraphFile, read_file
from rooflens.graph.reader import read
from rooflens.graph.sizes import Sizes, decide, fixed_batch, has_open_batch
