"""Shapes that the onnx package cannot infer: of ONNX Runtime's own operators, and of a few of ONNX."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from rooflens.graph.elements import number_of
from rooflens.graph.node import Node
from rooflens.graph.value import tensor_type

OutputTypes = list[tuple[str, tuple[int, ...]]]
"""Element type and shape of each output."""


def output_types(node: Node) -> list[onnx.TypeProto]:
    """Types of the outputs; none for an operator without a rule here."""
    rule = _SHAPES.get(node.key)
    if rule is None or any(value is not None and value.tensor is None for value in node.inputs):
        return []
    return [tensor_type(number_of(dtype), shape) for dtype, shape in rule(node)]


def _same(node: Node) -> OutputTypes:
    return [(node.value(0).dtype, node.value(0).shape)]


def _skipped(node: Node) -> OutputTypes:
    """Result, two statistics that nobody uses in inference, and the sum."""
    dtype, shape = node.value(0).dtype, node.value(0).shape
    rows = (*shape[:-1], 1)
    return [(dtype, shape), ("fp32", rows), ("fp32", rows), (dtype, shape)]


def _broadcast(node: Node) -> OutputTypes:
    first, second = node.value(0), node.value(3)
    return [(first.dtype, np.broadcast_shapes(first.shape, second.shape))]


def _product(node: Node) -> OutputTypes:
    first, second = node.value(0), node.value(1)
    a, b = (
        transposed(joined(v.shape, node.integer(f"transBatch{side}")), node.integer(f"trans{side}"))
        for v, side in ((first, "A"), (second, "B"))
    )
    return [(first.dtype, (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]))]


def _gemm(node: Node) -> OutputTypes:
    first, second = node.value(0), node.value(3 if node.key.endswith("QGemm") else 1)
    a, b = (transposed(v.shape, node.integer(name)) for v, name in ((first, "transA"), (second, "transB")))
    return [(first.dtype, (a[-2], b[-1]))]


def _packed_product(node: Node) -> OutputTypes:
    inputs = node.value(0)
    return [(inputs.dtype, (*inputs.shape[:-1], node.integer("N")))]


def _scaled_product(node: Node) -> OutputTypes:
    """A product of quantized tensors, in the type of the scale."""
    a, b, scale = node.value(0).shape, node.value(1).shape, node.value(2)
    return [(scale.dtype, (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]))]


def _embedded(node: Node) -> OutputTypes:
    """The normalized sum, how many tokens each sample has, and the sum."""
    ids, table = node.value(0), node.value(2)
    rows = (table.dtype, (*ids.shape, table.shape[-1]))
    return [rows, ("int32", ids.shape[:1]), rows]


def _global_pool(node: Node) -> OutputTypes:
    inputs = node.value(0)
    return [(inputs.dtype, (*inputs.shape[:2], *(1,) * (len(inputs.shape) - 2)))]


def _concat(node: Node) -> OutputTypes:
    parts = [node.value(i) for i in range(2, len(node.inputs), 3)]
    axis = node.integer("axis")
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(parts[0].dtype, tuple(shape))]


def _multi_head(node: Node) -> OutputTypes:
    """(batch, length, heads x width), and the cache of keys and values."""
    query, value, past = node.value(0), node.optional(2), node.optional(6)
    heads = max(1, node.integer("num_heads", 1))
    packed = next((v for v in (query, node.optional(1)) if v is not None and len(v.shape) == 5), None)
    if packed is not None:  # (batch, length, heads, parts, width)
        batch, tokens, width = packed.shape[0], packed.shape[1], packed.shape[-1]
        cache = (query.dtype, (batch, heads, tokens, width))
        return [(query.dtype, (*query.shape[:2], heads * width)), cache, cache]
    if len(query.shape) != 3 or value is None:
        return []
    of_value = value.shape[1] * value.shape[3] if len(value.shape) == 4 else value.shape[-1]
    key = node.value(1)
    tokens = key.shape[-2] + (0 if past is None else past.shape[-2])
    batch = query.shape[0]
    return [
        (query.dtype, (*query.shape[:2], of_value)),
        (query.dtype, (batch, heads, tokens, query.shape[-1] // heads)),
        (query.dtype, (batch, heads, tokens, of_value // heads)),
    ]


def _grouped(node: Node) -> OutputTypes:
    query, past = node.value(0), node.optional(3)
    batch, length, width = query.shape
    heads, groups = max(1, node.integer("num_heads", 1)), max(1, node.integer("kv_num_heads", 1))
    head = width // (heads if node.optional(1) is not None else heads + 2 * groups)
    tokens = length + (0 if past is None else past.shape[-2])
    cache = (query.dtype, (batch, groups, tokens, head))
    return [(query.dtype, (batch, length, heads * head)), cache, cache]


def _projected(node: Node) -> OutputTypes:
    quantized = node.key.endswith("QAttention")
    inputs, weight, past = node.value(0), node.value(1), node.optional(8 if quantized else 4)
    dtype = node.value(3).dtype if quantized else inputs.dtype  # that of the scale
    widths = node.integers("qkv_hidden_sizes") or (weight.shape[1] // 3,) * 3
    result = (dtype, (*inputs.shape[:2], widths[2]))
    if past is None:
        return [result]
    return [result, (dtype, (*past.shape[:3], past.shape[3] + inputs.shape[1], past.shape[4]))]


def joined(shape: tuple[int, ...], turned: int) -> tuple[int, ...]:
    """The shape of an operand with its rows after its batch, if `turned` says that they come first."""
    return (*shape[1:-1], shape[0], shape[-1]) if turned and len(shape) > 2 else shape


def transposed(shape: tuple[int, ...], wanted: int) -> tuple[int, ...]:
    """The shape of a matrix, or of a batch of them, as an attribute like ``transA`` wants it."""
    return (*shape[:-2], shape[-1], shape[-2]) if wanted and len(shape) > 1 else shape


_SAME = (
    *("BiasGelu", "FastGelu", "Gelu", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QuickGelu"),
    *("RotaryEmbedding", "SimplifiedLayerNormalization"),
)
_SHAPES: dict[str, Callable[[Node], OutputTypes]] = {
    **{f"com.microsoft.{name}": _same for name in _SAME},
    "SimplifiedLayerNormalization": _same,
    "GroupNormalization": _same,
    "MeanVarianceNormalization": _same,
    "com.microsoft.SkipLayerNormalization": _skipped,
    "com.microsoft.SkipSimplifiedLayerNormalization": _skipped,
    "com.microsoft.QLinearAdd": _broadcast,
    "com.microsoft.QLinearMul": _broadcast,
    "com.microsoft.QLinearConcat": _concat,
    "com.microsoft.QLinearGlobalAveragePool": _global_pool,
    "com.microsoft.QGemm": _gemm,
    "com.microsoft.FusedGemm": _gemm,
    "com.microsoft.FusedMatMul": _product,
    "com.microsoft.DynamicQuantizeMatMul": _scaled_product,
    "com.microsoft.EmbedLayerNormalization": _embedded,
    "com.microsoft.MatMulBnb4": _packed_product,
    "com.microsoft.MatMulIntegerToFloat": _scaled_product,
    "com.microsoft.MatMulNBits": _packed_product,
    "com.microsoft.MultiHeadAttention": _multi_head,
    "com.microsoft.GroupQueryAttention": _grouped,
    "com.microsoft.Attention": _projected,
    "com.microsoft.QAttention": _projected,
}
