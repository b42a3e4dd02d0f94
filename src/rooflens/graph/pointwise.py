"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from rooflens.graph.node import Node, operator, scalar
from rooflens.graph.operators import BINARY, UNARY, VARIADIC
from rooflens.graph.value import GraphValue


@operator(*UNARY)
def unary(node: Node) -> None:
    inputs = node.value(0)
    node.emit(UNARY[node.key], node.like(inputs), self=inputs)


@operator(*BINARY, "Mod")
def binary(node: Node) -> None:
    first, second = node.value(0), node.value(1)
    name = BINARY.get(node.key) or ("fmod" if node.integer("fmod") else "remainder")
    node.emit(name, node.like(first, second), self=scalar(first), other=scalar(second))


@operator("Pow")
def power(node: Node) -> None:
    """A known exponent decides how the power is computed."""
    first, second = node.value(0), node.value(1)
    node.emit("pow", node.like(first, second), self=scalar(first), exponent=scalar(second))


@operator("PRelu")
def prelu(node: Node) -> None:
    inputs = node.value(0)
    node.emit("_prelu_kernel", node.like(inputs), self=inputs, weight=node.value(1))


@operator(*VARIADIC)
def variadic(node: Node) -> None:
    """One addition or comparison for each further operand, in the memory of the result."""
    first, *others = (node.value(i) for i in range(len(node.inputs)))
    out = node.like(first)
    if not others:
        node.becomes(0, first)
    for position, other in enumerate(others):
        node.emit(VARIADIC[node.key], out, self=out if position else first, other=scalar(other))
    if others and node.key == "Mean":
        node.emit("div", out, self=out, other=len(node.inputs))


@operator("Clip")
def clip(node: Node) -> None:
    """Bounds are inputs since version 11, attributes before."""
    inputs = node.value(0)
    old = "min" in node.attributes or "max" in node.attributes
    low = node.number("min", -inf) > -inf if old else node.optional(1) is not None
    high = node.number("max", inf) < inf if old else node.optional(2) is not None
    name = "clamp" if low == high else ("clamp_min" if low else "clamp_max")
    node.emit(name, node.like(inputs), self=inputs)


@operator("Where")
def where(node: Node) -> None:
    condition, first, second = node.value(0), node.value(1), node.value(2)
    node.emit("where", node.like(first, second), condition=condition, self=scalar(first), other=scalar(second))


@operator("Softsign")
def softsign(node: Node) -> None:
    """x / (1 + |x|)."""
    inputs, out = node.value(0), node.output()
    size, shifted = (node.temporary(inputs.shape, inputs.dtype) for _ in range(2))
    node.emit("abs", size, self=inputs)
    node.emit("add", shifted, self=size, other=1)
    node.emit("div", out, self=inputs, other=shifted)


@operator("com.microsoft.QuickGelu")
def quick_gelu(node: Node) -> None:
    """x times the sigmoid of alpha x."""
    inputs, out = node.value(0), node.output()
    scaled, weight = (node.temporary(inputs.shape, inputs.dtype) for _ in range(2))
    node.emit("mul", scaled, self=inputs, other=node.number("alpha", 1.702))
    node.emit("sigmoid", weight, self=scaled)
    node.emit("mul", out, self=inputs, other=weight)


@operator("com.microsoft.BiasGelu", "com.microsoft.FastGelu")
def biased_gelu(node: Node) -> None:
    inputs, out = node.value(0), node.output()
    bias = node.optional(1)
    if bias is not None:
        node.emit("add", out, self=inputs, other=bias)
    node.emit("gelu", out, self=inputs if bias is None else out)


@operator("Shrink")
def shrink(node: Node) -> None:
    inputs = node.value(0)
    name = "softshrink" if node.number("bias", 0.0) else "hardshrink"
    node.emit(name, node.like(inputs), self=inputs)


@operator("Dropout")
def dropout(node: Node) -> None:
    """Nothing is dropped unless the graph says that it trains."""
    inputs, training = node.value(0), node.optional(2)
    if training is None or not training.number:
        node.becomes(0, inputs)
        return
    node.emit("native_dropout", node.made, input=inputs)


@operator("Cast", "CastLike")
def cast(node: Node) -> None:
    inputs = node.value(0)
    if inputs.dtype == node.output().dtype:
        node.becomes(0, inputs)
    else:
        node.emit("_to_copy", node.like(inputs), self=inputs)


@operator("RotaryEmbedding", "com.microsoft.RotaryEmbedding")
def rotary_embedding(node: Node) -> None:
    """x cos + (x turned) sin, with a cosine and a sine per position and half of the width."""
    inputs, out = node.value(0), node.output()
    angles: Sequence[GraphValue | None] = node.inputs[1:3] if node.key == "RotaryEmbedding" else node.inputs[2:4]
    straight, turned = (node.temporary(inputs.shape, inputs.dtype) for _ in range(2))
    node.emit("mul", straight, self=inputs, other=angles[0])
    node.emit("mul", turned, self=inputs, other=angles[1])
    node.emit("add", out, self=straight, other=turned)
