"""Turn a graph into operations, node by node in the order of the file."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from rooflens.errors import ModelError
from rooflens.graph.blocks import Blocks
from rooflens.graph.elements import bits_of
from rooflens.graph.file import GraphFile, all_nodes, canonical
from rooflens.graph.infer import LARGEST, Inference, complete
from rooflens.graph.movement import SHAPES, VIEWS
from rooflens.graph.node import RULES, Draft, Node
from rooflens.graph.operators import RANDOM
from rooflens.graph.paths import key_of, module_paths, shown
from rooflens.graph.products import NARROW
from rooflens.graph.sizes import Sizes, declared_type, input_type
from rooflens.graph.value import GraphValue, tensor_type, value_of
from rooflens.graph.weights import GraphConstants
from rooflens.records import Access, Call, HostCalls, Operation, Trace

UNSIZED = (
    "the file does not tell every size: bytes and memory are unknown, and so are the operations listed as uncounted"
)
INDICES, FEW = ("int64", "int32", "bool"), 64
"""Types in which shapes, indices and masks are stored, and how many numbers of another type are no weight."""
CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators that run graphs of their own. Which one or how often depends on values, so their work is not known."""
DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of attributes and ranks that an operator cannot have."""


def read(file: GraphFile, sizes: Sizes) -> Trace:
    """The operations of a graph, with the memory that they touch.

    Raises:
        ModelError: the graph does not hold together; the node is named.
    """
    return _GraphReading(file, sizes).trace()


class _GraphReading:
    """One graph while it is read."""

    def __init__(self, file: GraphFile, sizes: Sizes) -> None:
        self._file = file
        self._sizes = sizes
        self._inference = Inference(file.opsets, file.ir_version)
        self._paths = module_paths(all_nodes(file.graph))
        self._users = _users(file.graph)
        # A result of the graph may be declared twice; what has a shape goes before what has none.
        infos = sorted((*file.graph.value_info, *file.graph.output), key=lambda i: i.type.tensor_type.HasField("shape"))
        self._declared = {info.name: declared_type(info, sizes) for info in infos}
        self._blocks = Blocks()
        self._values: ChainMap[str, GraphValue] = ChainMap()
        self._pending: dict[int, tuple[str, list[Draft]]] = {}
        self._constants = GraphConstants(self._blocks)
        self._operations: list[Operation] = []
        self._unsized: list[tuple[str, str]] = []
        self._views: Counter[str] = Counter()

    def trace(self) -> Trace:
        with self._locating("its inputs"):
            for info in self._file.inputs:
                self._define(info.name, self._new(input_type(info, self._sizes), "inputs"))
        self._graph(self._file.graph)
        with self._locating("its outputs"):
            results = {self._taken(info.name).block for info in self._file.graph.output}
        given = {self._values[info.name].block for info in self._file.inputs}
        read_ = {access.block for operation in self._operations for access in operation.reads}
        constants = {block for block in read_ if self._blocks[block].cause in ("parameters", "buffers")}
        lasting = frozenset(results | given | constants)
        return Trace(
            operations=tuple(self._operations),
            memory=None if self._unsized else self._blocks.peak(self._operations, lasting),
            parameters=self._constants.weights,
            lasting=lasting,
            unsized=tuple(self._unsized),
            host_calls=tuple(
                HostCalls(path=path, phase="forward", views=views, module_calls=None)
                for path, views in self._views.items()
            ),
            notes=(UNSIZED,) if self._unsized else (),
        )

    def _graph(self, graph: onnx.GraphProto) -> None:
        with self._locating("its tensors"):
            for tensor in graph.initializer:
                self._constant(tensor.name, tensor)
            for sparse in graph.sparse_initializer:
                type_ = tensor_type(sparse.values.data_type, list(sparse.dims))
                self._define(sparse.values.name, self._new(type_, "buffers", constant=True))
        for proto in graph.node:
            branch = self._branch(proto)
            if branch is not None:
                self._inside(branch, proto)
                continue
            with self._locating(proto):
                self._node(proto)

    @contextmanager
    def _locating(self, what: str | onnx.NodeProto) -> Iterator[None]:
        """Add the place to an error."""
        try:
            yield
        except (ModelError, *DAMAGE) as error:
            if isinstance(what, onnx.NodeProto):
                what = f"node {shown(key_of(what))!r} ({shown(what.op_type)})"
            message = str(error)
            if not isinstance(error, ModelError):
                message = f"an attribute or a shape is none that it can have ({message or type(error).__name__})"
            raise ModelError(f"{self._file.name}, {what}: {message}") from error

    # Branches ---------------------------------------------------------------------------------------------------------

    def _branch(self, proto: onnx.NodeProto) -> onnx.GraphProto | None:
        """The graph that an ``If`` runs, where shapes decide it."""
        if proto.op_type != "If" or canonical(proto.domain) or not proto.input:
            return None
        condition = self._values.get(proto.input[0])
        if condition is None or condition.data is None:
            return None
        wanted = "then_branch" if np.any(condition.data) else "else_branch"
        return next((attribute.g for attribute in proto.attribute if attribute.name == wanted), None)

    def _inside(self, branch: onnx.GraphProto, proto: onnx.NodeProto) -> None:
        """Read a branch. Its names are its own; its results are those of its node."""
        self._values = self._values.new_child()
        self._graph(branch)
        with self._locating(proto):
            results = [self._taken(result.name) for result in branch.output]
        self._values = self._values.parents
        with self._locating(proto):
            for name, value in zip(proto.output, results, strict=False):
                self._define(name, value)

    # Values -----------------------------------------------------------------------------------------------------------

    def _taken(self, name: str) -> GraphValue:
        value = self._values.get(name)
        if value is None:
            raise ModelError(f"{shown(name)!r} is taken before anything gives it")
        return value

    def _define(self, name: str, value: GraphValue) -> None:
        if name in self._values.maps[0]:  # those of this graph
            raise ModelError(f"{shown(name)!r} is given twice")
        self._values[name] = value

    def _new(self, type_: onnx.TypeProto, cause: str = "temporaries", constant: bool = False) -> GraphValue:
        """A value in memory of its own."""
        value = value_of(type_, block=0, constant=constant)
        nbytes = 0 if value.tensor is None else value.tensor.nbytes
        return replace(value, block=self._blocks.new(nbytes, cause))

    def _constant(self, name: str, tensor: onnx.TensorProto) -> None:
        """A tensor of the file. Its contents matter where it is small: shapes, axes, scales."""
        value = self._new(tensor_type(tensor.data_type, list(tensor.dims)), constant=True)
        if value.tensor is None:
            raise ModelError(f"{shown(name)!r} has no element type that can be counted")
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        largest = LARGEST if value.tensor.dtype in INDICES else FEW
        if value.tensor.elements <= largest and not external:
            try:
                value = replace(value, data=numpy_helper.to_array(tensor))
            except (ValueError, TypeError) as error:
                raise ModelError(f"{shown(name)!r} is damaged: {error}") from error
        self._constants.tensors[value.block] = tensor
        self._define(name, replace(value, roots=frozenset((value.block,))))

    # Nodes ------------------------------------------------------------------------------------------------------------

    def _node(self, proto: onnx.NodeProto) -> None:
        domain = canonical(proto.domain)
        node = Node(
            key=f"{domain}.{proto.op_type}" if domain else proto.op_type,
            attributes={attribute.name: attribute for attribute in proto.attribute},
            inputs=[self._taken(name) if name else None for name in proto.input],
            outputs=[],
            new_block=self._blocks.new,
            fed=lambda position: self._users.get(proto.output[position], ()),
        )
        if node.key == "Constant":
            self._constant(proto.output[0], _constant_tensor(proto))
            return
        path = self._paths[key_of(proto)]
        self._give_outputs(proto, node)
        if node.key in VIEWS | SHAPES:
            self._look(node, path)
        elif _is_dequantizing(node):
            self._dequantize(node, path)
        elif not _is_known_before(node.outputs):
            self._work(proto, node, path)
        if not node.drafts and _is_view(node):
            self._views[path] += 1
        for name, value in zip(proto.output, node.outputs, strict=True):
            if name and value is not None:
                self._define(name, value)

    def _give_outputs(self, proto: onnx.NodeProto, node: Node) -> None:
        """Make the outputs of a node: their types, their contents, and whether they are the same in every run."""
        named = {name: value for name, value in zip(proto.input, node.inputs, strict=True) if value is not None}
        if node.key in CONTROL:
            types: dict[str, onnx.TypeProto] = {}
        else:
            types = self._inference.types(proto, node, named)
        typed = [complete(types.get(name), self._declared.get(name)) or onnx.TypeProto() for name in proto.output]
        contents = self._inference.contents(proto, node, named, typed)
        known = self._inference.schema(proto) is not None and node.key not in {*CONTROL, *RANDOM}
        constant = known and bool(named) and all(value.constant for value in named.values())
        roots = frozenset[int]().union(*(value.roots for value in named.values())) if constant else frozenset[int]()
        for name, type_, data in zip(proto.output, typed, contents, strict=True):
            made = None
            if name:
                if data is not None:
                    type_ = tensor_type(onnx.helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)  # noqa: PLW2901
                made = replace(self._new(type_, constant=constant), data=data, roots=roots)
            node.outputs.append(made)

    def _look(self, node: Node, path: str) -> None:
        """Read a view or a question for a shape, which is free unless the elements have to move."""
        made = list(node.outputs)
        if node.key in SHAPES or not _are_sized((*node.inputs[:1], *made)):
            return
        RULES[node.key](node)
        for position, (before, after) in enumerate(zip(made, node.outputs, strict=True)):
            if before is not None and after is not None:
                node.outputs[position] = replace(after, data=before.data)
        if not _is_known_before(made):
            self._run(node, path)

    def _dequantize(self, node: Node, path: str) -> None:
        """Keep the quantized tensor for products. The floats are made once, if something else asks for them."""
        RULES[node.key](node)
        out = replace(node.output(), packed=node.value(0))
        node.becomes(0, out)
        if not out.constant:
            self._pending[out.block] = (path, node.drafts)

    def _work(self, proto: onnx.NodeProto, node: Node, path: str) -> None:
        """Read a node that computes or moves something."""
        rule = RULES.get(node.key)
        if node.key in CONTROL or not _are_sized((*node.inputs, *node.outputs)):
            self._unsized.append((path, _listed(proto)))
            return
        if rule is not None:
            rule(node)
        else:
            node.emit(_listed(proto), node.made, **{f"input{i}": value for i, value in enumerate(node.inputs)})
        self._run(node, path)

    # Operations -------------------------------------------------------------------------------------------------------

    def _run(self, node: Node, path: str) -> None:
        self._constants.note_use(node)
        for draft in node.drafts:
            self._record(draft, path)

    def _record(self, draft: Draft, path: str) -> None:
        for value in draft.reads:
            place, before = self._pending.pop(value.block, (path, []))
            for dequantizing in before:
                self._record(dequantizing, place)
        reads, writes = _accesses(draft.reads), _accesses(draft.writes)
        call = Call(
            name=draft.name,
            arguments=draft.arguments,
            outputs=draft.outputs,
            reads=sum(access.nbytes for access in reads),
            writes=sum(access.nbytes for access in writes),
            weight_reads=sum(r.nbytes for r in reads if self._blocks[r.block].cause == "parameters"),
        )
        self._operations.append(Operation(call, path, "forward", False, reads, writes))


def _accesses(values: Iterable[GraphValue]) -> tuple[Access, ...]:
    """The distinct pieces of memory behind some values."""
    accesses: dict[tuple[int, int, int], Access] = {}
    for value in values:
        nbytes = value.known.nbytes
        accesses[value.block, value.offset, nbytes] = Access(value.block, nbytes, nbytes * 8 // bits_of(value.dtype))
    return tuple(accesses.values())


def _is_known_before(values: Iterable[GraphValue | None]) -> bool:
    """True if values are known before the graph runs."""
    return all(value is None or value.constant or value.data is not None for value in values)


def _are_sized(values: Iterable[GraphValue | None]) -> bool:
    """True if the sizes of values are known."""
    return all(value is None or value.tensor is not None for value in values)


def _is_dequantizing(node: Node) -> bool:
    """True if a node makes floats of a tensor that products can take as it is."""
    sized = node.key == "DequantizeLinear" and _are_sized((*node.inputs, *node.outputs))
    return sized and node.value(0).dtype in (*NARROW, "int32")


def _is_view(node: Node) -> bool:
    """True if an output is memory of an input in another shape or order, in every run."""
    places = [(v.block, v.shape, v.strides, v.offset) for v in node.inputs if v is not None and v.tensor is not None]
    return any(
        v.block in {block for block, *_ in places} and (v.block, v.shape, v.strides, v.offset) not in places
        for v in node.outputs
        if v is not None and v.tensor is not None and not v.constant and v.data is None
    )


def _listed(proto: onnx.NodeProto) -> str:
    """The name under which an operator without a rule is listed. Names of formulas have no capital letters."""
    name = shown(proto.op_type)
    return name if name != name.lower() else f"{shown(proto.domain) or 'onnx'}::{name}"


def _users(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto | None]]:
    """The nodes that take a value, graphs in graphs included; None stands for the graph's own result."""
    users: dict[str, list[onnx.NodeProto | None]] = {info.name: [None] for info in graph.output}
    for node in all_nodes(graph):
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users


def _constant_tensor(proto: onnx.NodeProto) -> onnx.TensorProto:
    """What a ``Constant`` holds, in whichever attribute."""
    attribute = proto.attribute[0]
    if attribute.name == "value":
        held: onnx.TensorProto = attribute.t
        return held
    if attribute.name == "sparse_value":
        values, dims = attribute.sparse_tensor.values, attribute.sparse_tensor.dims
        return onnx.TensorProto(data_type=values.data_type, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    dtype = np.float32 if "float" in attribute.name else np.int64
    return numpy_helper.from_array(np.array(onnx.helper.get_attribute_value(attribute), dtype=dtype))
