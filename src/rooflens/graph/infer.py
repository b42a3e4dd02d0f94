"""Shapes of a node's outputs, and their contents where these follow from shapes alone.

The onnx package knows both: its shape inference runs node by node, with the contents of small inputs at hand, and its
reference implementation computes what is small. Nothing else is ever computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import numpy as np
import onnx
from onnx import checker, defs, numpy_helper, shape_inference

from rooflens.errors import ModelError, first_line
from rooflens.graph.contrib import output_types
from rooflens.graph.einsum import check_equation
from rooflens.graph.elements import name_of
from rooflens.graph.file import canonical
from rooflens.graph.node import Node
from rooflens.graph.operators import COMPUTED_BEFOREHAND, SHAPED_LIKE
from rooflens.graph.value import Data, GraphValue, sizes_of

LARGEST, ALL_TOGETHER = 2**16, 2**24
"""Elements of one folded result, and of all results of a graph: more is left to the device."""
PASSED = 256
"""Elements up to which contents are told to shape inference: it asks for shapes, axes and bounds."""
FOLD_ERRORS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What the reference implementation raises for arguments that an operator cannot have."""


class Inference:
    """Types and contents of the outputs of nodes.

    Args:
        opsets: version of the operators, by domain.
        ir_version: of the file.
    """

    def __init__(self, opsets: Mapping[str, int], ir_version: int) -> None:
        self._opsets = dict(opsets)
        self._imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._ir_version = ir_version
        self._left = ALL_TOGETHER

    def schema(self, proto: onnx.NodeProto) -> defs.OpSchema | None:
        """What the onnx package knows of a node's operator; None if it does not know it."""
        domain = canonical(proto.domain)
        return _schema(proto.op_type, self._opsets.get(domain, 1), domain)

    def types(self, proto: onnx.NodeProto, node: Node, named: Mapping[str, GraphValue]) -> dict[str, onnx.TypeProto]:
        """The types of a node's outputs as far as they follow from its inputs.

        Args:
            named: the inputs by name.

        Raises:
            ModelError: the inputs do not fit together.
        """
        schema = self.schema(proto)
        if node.key in SHAPED_LIKE:
            schema = _schema(SHAPED_LIKE[node.key], self._opsets.get("", 1), "")
            proto = proto if schema is None else _as_known(proto, schema)
        if schema is None or schema.deprecated:  # which inference refuses, although runtimes run it
            return dict(zip(proto.output, output_types(node), strict=False))
        if any(not value.type.HasField("tensor_type") for value in named.values()):
            return {}
        contents = {
            name: numpy_helper.from_array(value.data)
            for name, value in named.items()
            if value.data is not None and value.data.size <= PASSED
        }
        if node.key == "Einsum":
            check_equation(node.text("equation"))
        try:
            types = shape_inference.infer_node_outputs(
                schema,
                proto,
                {name: named[name].type for name in proto.input if name},
                contents,
                opset_imports=self._imports,
                ir_version=self._ir_version,
            )
        except checker.ValidationError as error:
            raise ModelError(f"it is no valid ONNX: {first_line(error)}") from error
        except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"its inputs do not fit: {first_line(error).rstrip('.')}. A size that is built into the graph cannot be"
                " changed: give the batch and sizes that it was exported with"
            ) from error
        for name, type_ in zip(proto.output, output_types(node), strict=False):
            types[name] = complete(types.get(name), type_) or type_
        return types

    def contents(
        self, proto: onnx.NodeProto, node: Node, named: Mapping[str, GraphValue], types: Sequence[onnx.TypeProto | None]
    ) -> list[Data | None]:
        """The contents of a node's outputs, where they are small and follow from contents or shapes that are known."""
        nothing: list[Data | None] = [None] * len(proto.output)
        if node.key in ("Shape", "Size"):
            return [_shape(node)]
        if node.key not in COMPUTED_BEFOREHAND or any(value.data is None for value in named.values()):
            return nothing
        if node.key != "NonZero":  # its result is as long as the values say
            shapes = [None if type_ is None else sizes_of(type_) for type_ in types]
            if any(shape is None or prod(shape) > LARGEST for shape in shapes):
                return nothing
        computed = self._computed(proto, named)
        if computed is None:
            return nothing
        self._left -= sum(data.size for data in computed)
        return list(computed) if self._left > 0 else nothing

    def _computed(self, proto: onnx.NodeProto, named: Mapping[str, GraphValue]) -> list[Data] | None:
        from onnx.reference import ReferenceEvaluator

        inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in named]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output]
        graph = onnx.helper.make_graph([proto], "one node", inputs, outputs)
        version = min(self._opsets.get("", 1), defs.onnx_opset_version())
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(model).run(None, {name: value.data for name, value in named.items()})
        except FOLD_ERRORS:
            return None
        return [np.asarray(result) for result in results]


@cache
def _schema(name: str, version: int, domain: str) -> defs.OpSchema | None:
    try:
        return defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None


def _as_known(proto: onnx.NodeProto, schema: defs.OpSchema) -> onnx.NodeProto:
    """The node as one of another operator, which has the same shapes, without what that one does not know."""
    return onnx.NodeProto(
        name=proto.name,
        op_type=schema.name,
        input=proto.input[: schema.max_input],
        output=proto.output,
        attribute=[attribute for attribute in proto.attribute if attribute.name in schema.attributes],
    )


def _shape(node: Node) -> Data | None:
    """The output of ``Shape`` or ``Size``."""
    tensor = node.value(0).tensor
    if tensor is None:
        return None
    if node.key == "Size":
        return np.array(tensor.elements, dtype=np.int64)
    end = node.integer("end") if "end" in node.attributes else None
    return np.array(tensor.shape[node.integer("start") : end], dtype=np.int64)


def complete(inferred: onnx.TypeProto | None, declared: onnx.TypeProto | None) -> onnx.TypeProto | None:
    """What was inferred, with the sizes that are missing there taken from what the file declares."""
    if inferred is None or not inferred.HasField("tensor_type"):
        return declared if inferred is None or declared is not None else inferred
    if declared is None or sizes_of(inferred) is not None or name_of(inferred.tensor_type.elem_type) is None:
        return inferred
    if not inferred.tensor_type.HasField("shape"):
        return declared if declared.tensor_type.elem_type == inferred.tensor_type.elem_type else inferred
    mine, theirs = inferred.tensor_type.shape.dim, declared.tensor_type.shape.dim
    for dim, other in zip(mine, theirs, strict=False) if len(mine) == len(theirs) else ():
        if not dim.HasField("dim_value") and other.HasField("dim_value"):
            dim.dim_value = other.dim_value
    return inferred
