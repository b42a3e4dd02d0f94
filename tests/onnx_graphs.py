"""Small ONNX files, built node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import rooflens as rl
from rooflens.records import Work
from rooflens.results import RecordSet

Shape = Sequence[int | str | None]
FLOAT, HALF, INT8, UINT8, INT32, INT64 = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT32,
    TensorProto.INT64,
)


def node(op: str, inputs: str, outputs: str, /, domain: str = "", name: str = "", **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, and ``-`` leaves an optional one out."""
    given, made = (["" if word == "-" else word for word in words.split()] for words in (inputs, outputs))
    return helper.make_node(op, given, made, domain=domain, name=name, **attributes)


def weight(name: str, shape: Sequence[int], dtype: int = FLOAT) -> onnx.TensorProto:
    """A weight whose values lie in a file that does not exist: nobody needs them."""
    tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="there/is/no/such/file.bin")
    return tensor


def constant(name: str, values: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    """A tensor that is stored in the file, as shapes and axes are."""
    return numpy_helper.from_array(np.array(values, dtype=dtype), name)


def save(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape | tuple[int, Shape]],
    outputs: str = "y",
    held: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 21,
    declared: Mapping[str, Shape] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> str:
    """Write a model; an input is a shape, of fp32 unless it is a pair of element type and shape."""

    def info(name: str, given: Any) -> onnx.ValueInfoProto:
        typed = len(given) == 2 and isinstance(given[1], list | tuple)
        element, shape = given if typed else (FLOAT, given)
        return helper.make_tensor_value_info(name, element, shape)

    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, given) for name, given in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs.split()],
        held,
        value_info=[info(name, shape) for name, shape in (declared or {}).items()],
    )
    domains = {n.domain for n in nodes} | {f.domain for f in functions}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains - {""})]
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions).SerializeToString()
    )
    return str(path)


def work(found: RecordSet) -> Work:
    """The work of a whole graph, of which everything has a formula."""
    total = found.total().work
    assert total is not None
    assert not total.missing
    return total


def names(found: RecordSet) -> list[str]:
    """The operations, as often as they run."""
    return [record.name for record in found if record.scope == "op" for _ in range(record.calls)]


def counted(folder: Path, *arguments: Any, **options: Any) -> RecordSet:
    """The estimate of a graph that is written first."""
    return rl.estimate(save(folder, *arguments, **options))


def nbytes(*shapes: Sequence[int], size: int = 4) -> int:
    """Bytes of some tensors."""
    return size * sum(map(prod, shapes))
