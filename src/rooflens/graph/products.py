"""Convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rooflens.graph.contrib import joined, transposed
from rooflens.graph.einsum import contraction
from rooflens.graph.elements import described
from rooflens.graph.node import Node, operator
from rooflens.graph.value import GraphValue
from rooflens.records import dense_strides

NARROW = ("int8", "uint8", "int4", "uint4", "float8_e4m3fn", "float8_e5m2")
"""Types whose products a quantized graph means, although it multiplies what it has turned back into floats."""
ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "LeakyRelu": "leaky_relu", "Clip": "clamp"}
ACTIVATIONS |= {"HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "Elu": "elu", "Gelu": "gelu"}


@operator("Conv", "ConvTranspose", "com.microsoft.FusedConv")
def convolution(node: Node) -> None:
    inputs, weight = operands(node)
    _convolution(node, inputs, weight, node.optional(2))
    added = node.optional(3)
    if added is not None:
        node.emit("add", node.output(), self=node.output(), other=added)
    _activated(node)


@operator("ConvInteger")
def integer_convolution(node: Node) -> None:
    _convolution(node, node.value(0), node.value(1), None)


@operator("QLinearConv")
def quantized_convolution(node: Node) -> None:
    _convolution(node, node.value(0), node.value(3), node.optional(8))


def _convolution(node: Node, inputs: GraphValue, weight: GraphValue, bias: GraphValue | None) -> None:
    spatial = len(inputs.shape) - 2
    node.emit(
        "convolution",
        _result(node, inputs, weight),
        input=inputs,
        weight=weight,
        bias=None if bias is None else unpacked(bias),
        stride=node.integers("strides") or (1,) * spatial,
        dilation=node.integers("dilations") or (1,) * spatial,
        transposed=node.key == "ConvTranspose",
        groups=node.integer("group", 1),
    )


@operator("Gemm", "com.microsoft.FusedGemm")
def gemm(node: Node) -> None:
    """alpha A B + beta C, each of A and B as it is or transposed."""
    first, second = operands(node)
    _gemm(node, first, second, node.optional(2), _result(node, first, second))
    _activated(node)


@operator("com.microsoft.QGemm")
def quantized_gemm(node: Node) -> None:
    _gemm(node, node.value(0), node.value(3), node.optional(6), node.output())


def _gemm(node: Node, first: GraphValue, second: GraphValue, added: GraphValue | None, out: GraphValue) -> None:
    """The product of two matrices, plus a third one if there is one."""
    left, right = _turned(node, first, second)
    if added is None:
        node.emit("mm", out, self=left, mat2=right)
    else:
        beta, alpha = node.number("beta", 1.0), node.number("alpha", 1.0)
        node.emit("addmm", out, self=unpacked(added), mat1=left, mat2=right, beta=beta, alpha=alpha)


@operator("MatMul", "MatMulInteger")
def matmul(node: Node) -> None:
    first, second = operands(node)
    product(node, first, second, _result(node, first, second))


@operator("QLinearMatMul")
def quantized_matmul(node: Node) -> None:
    product(node, node.value(0), node.value(3), node.output())


@operator("com.microsoft.FusedMatMul")
def fused_matmul(node: Node) -> None:
    """A product of transposed operands; a transposed batch is only another stride."""
    first, second = (
        v.shaped(joined(v.shape, node.integer(f"transBatch{side}")))
        for v, side in zip(operands(node), "AB", strict=True)
    )
    product(node, *_turned(node, first, second), node.output())


@operator("com.microsoft.MatMulNBits", "com.microsoft.MatMulBnb4")
def packed_matmul(node: Node) -> None:
    """(..., k) times packed weights of few bits: the product is of the left operand's type, the bytes are theirs."""
    first, packed = node.value(0), node.value(1)
    depth, columns = node.integer("K"), node.integer("N")
    rows = prod(first.shape[:-1])
    weight = packed.shaped((depth, columns), f"int{node.integer('bits', 4)}")
    parts = {f"part{i}": node.optional(i) for i in range(2, 5)}  # scales, zero points, order of the groups
    left, bias = first.shaped((rows, depth)), node.optional(5)
    if bias is None:
        node.emit("mm", node.output(), self=left, mat2=weight, **parts)
    else:
        out = node.output().shaped((rows, columns))
        node.emit("addmm", out, self=bias, mat1=left, mat2=weight, **parts)


def product(node: Node, first: GraphValue, second: GraphValue, out: GraphValue) -> None:
    """What PyTorch's matmul runs: rows are joined where the right operand is one matrix, else a batch of products."""
    a, b = first.shape, second.shape
    if len(a) == len(b) == 1:
        node.emit("dot", out, self=first, tensor=second)
    elif len(b) == 1:
        node.emit("mv", out, self=first.shaped((prod(a[:-1]), a[-1])), vec=second)
    elif len(b) == 2 or prod(b[:-2]) == 1:
        left = first.shaped((prod(a[:-1]), a[-1]))
        right = second.shaped(b[-2:])
        node.emit("mm", out.shaped((left.shape[0], b[-1])), self=left, mat2=right)
    else:
        rows = a[-2] if len(a) > 1 else 1
        batch = prod(out.shape) // max(1, rows * b[-1])
        left, right = first.shaped((batch, rows, a[-1])), second.shaped((batch, *b[-2:]))
        node.emit("bmm", out.shaped((batch, rows, b[-1])), self=left, mat2=right)


@operator("Einsum")
def einsum(node: Node) -> None:
    """Two operands at a time from the left, as PyTorch contracts them."""
    held = [node.value(i) for i in range(len(node.inputs))]
    steps = contraction(node.text("equation"), [value.shape for value in held])
    if not steps:
        shape = node.output().shape
        node.becomes(0, held[0].view(shape, dense_strides(shape)))
    for step in steps:
        out = node.output() if step is steps[-1] else node.temporary(step.result, held[0].dtype)
        operands = [held[i].shaped(shape) for i, shape in zip(step.operands, step.shapes, strict=True)]
        names = {"bmm": ("self", "mat2"), "mul": ("self", "other"), "sum": ("self",)}[step.name]
        node.emit(step.name, out.shaped(step.result), **dict(zip(names, operands, strict=True)))
        held.append(out)


def operands(node: Node) -> tuple[GraphValue, GraphValue]:
    """Both operands of a product, in their quantized form if they become floats only for it.

    With a quantized right operand alone (weights), or left one, the product is that of the other one's floats.
    """
    first, second = unpacked(node.value(0)), unpacked(node.value(1))
    if first.dtype in NARROW and second.dtype not in NARROW:
        first = first.shaped(first.shape, second.dtype)
    return first, second


def unpacked(value: GraphValue) -> GraphValue:
    """The quantized tensor from which a value was made, else the value."""
    return value if value.packed is None else value.packed


def _turned(node: Node, first: GraphValue, second: GraphValue) -> tuple[GraphValue, GraphValue]:
    """Both operands as the product takes them: each as it is, or transposed."""
    left, right = (
        value.shaped(transposed(value.shape, node.integer(name)))
        for value, name in ((first, "transA"), (second, "transB"))
    )
    return left, right


def _result(node: Node, first: GraphValue, second: GraphValue) -> GraphValue:
    """The output. A product of quantized tensors is written quantized if that is all that the graph uses."""
    out = node.output()
    users = node.fed(0)
    narrow = first.dtype in NARROW and second.dtype in NARROW and node.value(0).packed is not None
    if narrow and len(users) == 1 and users[0] is not None and users[0].op_type == "QuantizeLinear":
        tensor = described(out.shape, first.dtype)
        out = replace(out, tensor=tensor, block=node.new_block(tensor.nbytes))
        out = replace(out, packed=out)
        node.becomes(0, out)
    return out


def _activated(node: Node) -> None:
    """The activation that a fused operator adds, on its result in place."""
    name = node.text("activation")
    if name:
        out = node.output()
        node.emit(ACTIVATIONS.get(name, node.key), out, self=out)
