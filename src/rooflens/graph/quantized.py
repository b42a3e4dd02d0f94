"""Quantizing, and operators that work on quantized tensors."""

from __future__ import annotations

from dataclasses import replace

from rooflens.graph.node import Node, operator
from rooflens.graph.products import product
from rooflens.graph.value import GraphValue

POINTWISE = {
    "com.microsoft.QLinearAdd": ("add", (0, 3)),
    "com.microsoft.QLinearMul": ("mul", (0, 3)),
    "com.microsoft.QLinearLeakyRelu": ("leaky_relu", (0,)),
    "com.microsoft.QLinearSigmoid": ("sigmoid", (0,)),
    "com.microsoft.QLinearSoftmax": ("_softmax", (0,)),
    "com.microsoft.QLinearGlobalAveragePool": ("mean", (0,)),
}
"""PyTorch's name of what is done, and the positions of the tensors that it is done with. Scales are small."""


@operator("QuantizeLinear", "com.microsoft.QuantizeLinear")
def quantize(node: Node) -> None:
    """Divide, round, shift, and clamp to the range: nothing where a product has written its result so."""
    inputs = node.value(0)
    if inputs.packed is not None and inputs.packed.block == inputs.block:
        node.becomes(0, replace(node.output(), block=inputs.block))
    else:
        node.emit(f"quantize_per_{_grain(node)}", node.like(inputs), input=inputs, scale=node.value(1))


@operator("DequantizeLinear", "com.microsoft.DequantizeLinear")
def dequantize(node: Node) -> None:
    """Shift and scale. It is done only for those who do not take the quantized tensor itself."""
    inputs = node.value(0)
    node.emit(f"dequantize_per_{_grain(node)}", node.like(inputs), input=inputs, scale=node.value(1))


@operator("DynamicQuantizeLinear")
def quantize_dynamically(node: Node) -> None:
    """The range of the values, and then as with a known one."""
    inputs, out, scale = node.value(0), node.output(), node.output(1)
    node.emit("aminmax", scale, self=inputs)
    node.emit("quantize_per_tensor", out, input=inputs, scale=scale)


@operator("com.microsoft.DynamicQuantizeMatMul")
def quantized_on_the_way(node: Node) -> None:
    """The left operand is quantized by the range of its values; the result is scaled back as it is written."""
    inputs = node.value(0)
    scale, narrow = node.temporary((), inputs.dtype), node.temporary(inputs.shape, "uint8")
    node.emit("aminmax", scale, self=inputs)
    node.emit("quantize_per_tensor", narrow, input=inputs, scale=scale)
    _scaled_product(node, narrow, bias=node.optional(4))


@operator("com.microsoft.MatMulIntegerToFloat")
def scaled_product(node: Node) -> None:
    """A product of integers that is scaled back as it is written."""
    _scaled_product(node, node.value(0), bias=node.optional(6))


def _scaled_product(node: Node, first: GraphValue, bias: GraphValue | None) -> None:
    out = node.output()
    product(node, first, node.value(1), out)
    if bias is not None:
        node.emit("add", out, self=out, other=bias)


@operator(*POINTWISE)
def pointwise(node: Node) -> None:
    name, positions = POINTWISE[node.key]
    operands = dict(zip(("self", "other"), (node.value(i) for i in positions), strict=False))
    node.emit(name, node.output(), **operands)


@operator("com.microsoft.QLinearConcat")
def concat(node: Node) -> None:
    """Scale and zero point of the result, then tensor, scale and zero point of each part."""
    node.emit("cat", node.output(), tensors=[node.value(i) for i in range(2, len(node.inputs), 3)])


def _grain(node: Node) -> str:
    """``tensor`` for one scale, ``channel`` for one of each channel (or block)."""
    return "tensor" if node.value(1).known.elements == 1 else "channel"
