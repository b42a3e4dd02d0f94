"""Read an ONNX file, with an error for whatever is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from rooflens.errors import ModelError, UnknownModel
from rooflens.graph.elements import FLOATING, name_of
from rooflens.records import AS_IS
from rooflens.units import show

LARGEST = 2**31
"""Bytes: what protobuf can hold. Larger models keep their weights in files of their own, which are not needed."""
MOST_NODES = 1_000_000
"""Nodes, functions written out. Exported language models have some ten thousand."""
_QUANTIZED = ("QLinear", "Integer", "QuantizeLinear", "NBits", "QGemm")


@dataclass(frozen=True)
class GraphFile:
    """A graph with its functions written out.

    Attributes:
        name: the file as the user named it.
        graph: its main graph.
        opsets: version of the operators, by domain.
    """

    name: str
    graph: onnx.GraphProto
    opsets: dict[str, int]
    ir_version: int

    @cached_property
    def inputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """What is given in every run: old files list the initializers among the inputs too."""
        held = {tensor.name for tensor in self.graph.initializer}
        held |= {tensor.values.name for tensor in self.graph.sparse_initializer}
        return tuple(info for info in self.graph.input if info.name not in held)

    @cached_property
    def quantized(self) -> bool:
        """True if products work on integers."""
        return any(name in node.op_type for node in all_nodes(self.graph) for name in _QUANTIZED)

    @cached_property
    def floating(self) -> frozenset[str]:
        """The floating types of the matrices and kernels, or of the inputs where there are none of these."""
        weights = {name_of(t.data_type) for t in self.graph.initializer if len(t.dims) > 1}
        inputs = {name_of(info.type.tensor_type.elem_type) for info in self.inputs}
        return frozenset(FLOATING) & weights or frozenset(FLOATING) & inputs

    @property
    def dtype(self) -> str:
        """The dtype of a case: that of the weights where they have one, else as-is."""
        if self.quantized or len(self.floating) != 1 or "fp64" in self.floating:
            return AS_IS
        (name,) = self.floating
        return name


def read_file(name: str) -> GraphFile:
    """The graph in an ONNX file. Weights kept in other files need not be there.

    Raises:
        UnknownModel: there is no such file.
        ModelError: it cannot be read, or is damaged, too large, or no ONNX model.
    """
    path = Path(name)
    if not os.path.exists(path):
        raise UnknownModel("model file", name, [], "; there is no such file")
    if not os.path.isfile(path):  # reading a pipe would never end
        raise ModelError(f"cannot read {name}: it is no file")
    try:
        size = path.stat().st_size
        if size >= LARGEST:
            raise ModelError(
                f"{name} has {show(size, 'B')}, more than protobuf can hold; save it with its weights as external data"
            )
        model = onnx.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror}") from error
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelError(f"{name} is no ONNX model, or it is damaged: {error}") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{name} is no ONNX model, or it is damaged: there is no graph in it")
    if any(isinstance(text, bytes) for text in _texts(model)):  # what protobuf gives where it is no text
        raise ModelError(f"{name} is no ONNX model, or it is damaged: a name in it is no text")
    opsets = {canonical(entry.domain): entry.version for entry in model.opset_import} or {"": 1}
    _check_size(name, model)
    graph = _written_out(name, model) if model.functions else model.graph
    return GraphFile(name, graph, opsets, model.ir_version)


def _texts(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """Every name in a model."""
    yield from (entry.domain for entry in model.opset_import)
    for function in model.functions:
        yield from (function.domain, function.name, *function.input, *function.output)
        yield from _node_texts(function.node)
    yield from _graph_texts(model.graph)


def _graph_texts(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from _node_texts(graph.node)


def _node_texts(nodes: Iterable[onnx.NodeProto]) -> Iterator[str | bytes]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for entry in node.metadata_props:
            yield from (entry.key, entry.value)
        for inner in subgraphs(node):
            yield from _graph_texts(inner)


def canonical(domain: str) -> str:
    """The domain of an operator; ONNX's own has two names."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of a graph and of the graphs in it."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def _check_size(name: str, model: onnx.ModelProto) -> None:
    """Raise if functions that call functions stand for more nodes than there is memory for."""
    functions = {(canonical(f.domain), f.name): f for f in model.functions}
    counted: dict[tuple[str, str], int] = {}
    calling: set[tuple[str, str]] = set()

    def nodes_of(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(1 + call(node) + sum(nodes_of(inner.node) for inner in subgraphs(node)) for node in nodes)

    def call(node: onnx.NodeProto) -> int:
        key = (canonical(node.domain), node.op_type)
        if key not in functions:
            return 0
        if key in calling or len(calling) > 100:
            raise ModelError(f"{name} is damaged: function {key[1]!r} calls itself, or calls are nested too deeply")
        if key not in counted:
            calling.add(key)
            counted[key] = nodes_of(functions[key].node)
            calling.remove(key)
        return counted[key]

    count = nodes_of(model.graph.node)
    if count > MOST_NODES:
        raise ModelError(f"{name} has {count} nodes, functions written out; rooflens reads up to {MOST_NODES}")


def _written_out(name: str, model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with every call of a function of the file replaced by its body; weights stay out of the copy."""
    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(light.graph, field).extend(getattr(model.graph, field))
    # As inputs, so that no name of a function's body is given to one of them again.
    taken = {info.name for info in model.graph.input}
    weights = [t for t in model.graph.initializer if t.name not in taken]
    light.graph.input.extend(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in weights)
    try:
        graph = _inlined(light)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{name} is damaged: its functions cannot be written out: {error}") from error
    graph.initializer.extend(model.graph.initializer)
    graph.sparse_initializer.extend(model.graph.sparse_initializer)
    return graph


def _inlined(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with functions written out, those of another operator version converted.

    One that cannot be converted stays a call, which is listed as an unknown operator.
    """
    versions = {canonical(entry.domain): entry.version for entry in model.opset_import}
    imported = [entry for function in model.functions for entry in function.opset_import]
    if any(entry.version != versions.get(canonical(entry.domain), entry.version) for entry in imported):
        with suppress(RuntimeError, ValueError):
            return inliner.inline_local_functions(model, convert_version=True).graph
    return inliner.inline_local_functions(model).graph
