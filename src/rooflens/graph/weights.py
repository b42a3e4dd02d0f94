"""Which constants of a graph are its weights, and so its parameters."""

from __future__ import annotations

from math import prod

import onnx
from onnx import numpy_helper

from rooflens.graph.blocks import Blocks
from rooflens.graph.elements import FLOATING, bits_of
from rooflens.graph.node import Node
from rooflens.graph.operators import BINARY, INTEGER_WEIGHTS, NO_WEIGHTS, VARIADIC
from rooflens.graph.value import Data, GraphValue
from rooflens.records import Tensor

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "com.microsoft.FusedConv", "com.microsoft.FusedGemm")
"""Products, which may have weights of whole numbers at any position."""
STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Inputs that are the first state of a layer: zeros, unless it was learned."""
MASKS = {"Attention": (3,), "com.microsoft.Attention": (5,), "com.microsoft.MultiHeadAttention": (4, 5)}
"""Inputs that are added to scores; exporters write causal masks as constants, for arithmetic too."""
LOWEST = -65504.0
"""The lowest number of fp16. Masks hold the lowest number of their type, or minus infinity; no weight does."""
_ARITHMETIC = frozenset({*BINARY, *VARIADIC, "Pow", "Where", "Mod"})


def is_weight(key: str, position: int, value: GraphValue) -> bool:
    """True if a constant that an operator takes at a position is a weight.

    A single number in arithmetic is a number of the formula, not of the model.
    """
    if position in NO_WEIGHTS.get(key, ()):
        return False
    if value.dtype in FLOATING:
        return value.known.elements > 1 or key not in _ARITHMETIC
    return position in INTEGER_WEIGHTS.get(key, ()) or key in PRODUCTS


def may_be_none(key: str, position: int) -> bool:
    """True if the contents decide whether a constant at a position is a weight."""
    return key in _ARITHMETIC or position in (*STATES.get(key, ()), *MASKS.get(key, ()))


def shows_none(key: str, contents: Data) -> bool:
    """True if contents are those of a mask, or of a first state that was not learned."""
    if key in STATES:
        return not contents.any()
    return contents.size > 0 and bool(contents.min() <= LOWEST)


class GraphConstants:
    """The constants of a graph, and which of them its operators use as weights.

    Attributes:
        tensors: those of the file, by block of memory.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.tensors: dict[int, onnx.TensorProto] = {}
        self._blocks = blocks
        self._elements: dict[int, int] = {}

    @property
    def weights(self) -> int:
        """Elements of all weights seen so far, each once."""
        return sum(self._elements.values())

    def note_use(self, node: Node) -> None:
        """Note for what a node uses the constants that its operations read."""
        taken = {value.block: value.known for draft in node.drafts for value in draft.reads}
        for position, whole in enumerate(node.inputs):
            for value in (whole, whole.packed if whole is not None else None):
                if value is not None and value.constant and value.block in taken:
                    self._note(value, self._is_weight(node.key, position, value), taken[value.block])

    def _is_weight(self, key: str, position: int, value: GraphValue) -> bool:
        """True if a constant is a weight: by what takes it, and where that leaves it open, by its contents."""
        if not is_weight(key, position, value) or value.dtype not in FLOATING or not may_be_none(key, position):
            return is_weight(key, position, value)
        held = [_contents(self.tensors[root]) for root in value.roots] or [value.data]
        return not any(contents is not None and shows_none(key, contents) for contents in held)

    def _note(self, value: GraphValue, weight: bool, seen: Tensor) -> None:
        block = self._blocks[value.block]
        if weight:
            block.cause = "parameters"
            unpacked = seen.elements if bits_of(seen.dtype) < 8 else 0  # several may lie in one byte of the file
            for root in value.roots:
                self._elements[root] = max(prod(self.tensors[root].dims), unpacked)
        elif block.cause == "temporaries":
            block.cause = "buffers"


def _contents(tensor: onnx.TensorProto) -> Data | None:
    """What a tensor of the file holds; None where that lies in another file, or nowhere."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return None
