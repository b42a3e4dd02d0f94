"""Attention as one operation: ONNX's own, and those that ONNX Runtime's optimizer writes."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.errors import ModelError
from rooflens.graph.node import Given, Node, operator
from rooflens.graph.value import GraphValue


@operator("Attention")
def attention(node: Node) -> None:
    """Queries, keys and values as (batch, heads, length, width), or (batch, length, heads x width)."""
    query, key, value = (_heads(node.value(i), node.integer(n)) for i, n in enumerate(_HEADS))
    key = _extended(node, key, past=4, present=1)
    value = _extended(node, value, past=5, present=2)
    before, after = node.integer("left_window_size", -1), node.integer("right_window_size", -1)
    window = (before, 0 if node.integer("is_causal") else after)
    cached = node.optional(4) is not None or node.optional(_VALID_KEYS) is not None
    _attend(node, query, key, value, mask=node.optional(3), window=window, cached=cached)


_HEADS = ("q_num_heads", "kv_num_heads", "kv_num_heads")
_VALID_KEYS = 6
"""The input that tells how many keys of a cache that is given whole are valid."""
_EVERYWHERE, _CAUSAL = (-1, -1), (-1, 0)
"""Keys that a query sees before and after its own place; -1 is all of them."""


@operator("com.microsoft.MultiHeadAttention")
def multi_head_attention(node: Node) -> None:
    heads = node.integer("num_heads", 1)
    query, key, value = _unpacked(node, heads)
    key = _extended(node, _heads(key, heads), past=6, present=1)
    value = _extended(node, _heads(value, heads), past=7, present=2)
    cached = node.optional(6) is not None
    _attend(node, _heads(query, heads), key, value, mask=node.optional(5), window=_direction(node), cached=cached)


def _direction(node: Node) -> tuple[int, int]:
    return _CAUSAL if node.integer("unidirectional") else _EVERYWHERE


def _unpacked(node: Node, heads: int) -> list[GraphValue]:
    """Queries, keys and values. All three, or the last two, may come in one tensor (batch, length, heads, 3, width)."""
    operands: list[GraphValue] = []
    for value in [_biased(node, value) for value in node.inputs[:3] if value is not None]:
        if len(value.shape) == 5:
            batch, length, _, count, width = value.shape
            strides = (value.strides[0], value.strides[2], value.strides[1], value.strides[4])
            operands += [value.view((batch, heads, length, width), strides, i * value.strides[3]) for i in range(count)]
        else:
            operands.append(value)
    if len(operands) != 3:
        raise ModelError(f"it takes queries, keys and values; these are {len(operands)} tensors")
    return operands


def _biased(node: Node, value: GraphValue) -> GraphValue:
    """The sum of a value and its bias; what comes from a cache has it already."""
    bias = node.optional(3)
    if bias is None or len(value.shape) == 4:
        return value
    if len(value.shape) == 3:
        bias = bias.view((value.shape[-1],), bias.strides[-1:])
    out = node.temporary(value.shape, value.dtype)
    node.emit("add", out, self=value, other=bias)
    return out


@operator("com.microsoft.GroupQueryAttention")
def grouped_attention(node: Node) -> None:
    """Causal attention with a cache; queries, keys and values may come in one tensor.

    A local window counts the query's own place.
    """
    heads, groups = node.integer("num_heads", 1), node.integer("kv_num_heads", 1)
    if node.optional(1) is None:
        packed = node.value(0)
        width = packed.shape[-1] // (heads + 2 * groups)
        query, key, value = _pieces(packed, [(count, count * width) for count in (heads, groups, groups)])
    else:
        query, key, value = (_heads(node.value(i), n) for i, n in enumerate((heads, groups, groups)))
    key = _extended(node, key, past=3, present=1)
    value = _extended(node, value, past=4, present=2)
    window = (max(-1, node.integer("local_window_size", -1) - 1), 0)
    _attend(node, query, key, value, mask=None, window=window, cached=node.optional(3) is not None)


@operator("com.microsoft.Attention", "com.microsoft.QAttention")
def projected_attention(node: Node) -> None:
    """The projection to queries, keys and values, and attention over them; of quantized tensors, in floats."""
    inputs, weight, bias = node.value(0), node.value(1), node.optional(2)
    heads = node.integer("num_heads", 1)
    batch, length = inputs.shape[:2]
    widths = node.integers("qkv_hidden_sizes") or (weight.shape[1] // 3,) * 3
    projected = node.temporary((batch, length, weight.shape[1]), node.output().dtype)
    rows, out = inputs.shaped((batch * length, inputs.shape[2])), projected.shaped((batch * length, weight.shape[1]))
    if bias is None:
        node.emit("mm", out, self=rows, mat2=weight)
    else:
        node.emit("addmm", out, self=bias, mat1=rows, mat2=weight)
    operands = _pieces(projected, [(heads, width) for width in widths])
    past = node.optional(8 if node.key.endswith("QAttention") else 4)
    if past is not None:  # keys and values of earlier tokens in one tensor: (2, batch, heads, length, width)
        for i, fresh in enumerate(operands[1:]):
            before = past.view(past.shape[1:], past.strides[1:], i * past.strides[0])
            operands[i + 1] = _longer(node, fresh, past.shape[3])
            node.emit("cat", operands[i + 1], tensors=[before, fresh])
    _attend(node, *operands, mask=node.optional(5), window=_direction(node), cached=past is not None)


def _attend(
    node: Node,
    query: GraphValue,
    key: GraphValue,
    value: GraphValue,
    *,
    mask: GraphValue | None,
    window: tuple[int, int],
    cached: bool,
) -> None:
    """Attend, each query to the keys in a window around its place; `cached` keys come before those of the queries."""
    batch, heads, length, _ = query.shape
    out = node.output().shaped((batch, heads, length, value.shape[-1]))
    before, after = window
    if cached and before >= 0:
        key, value = (_last(part, length + before) for part in (key, value))
    operands = {"query": query, "key": key, "value": value, "mask": mask}
    sight: dict[str, Given] = {"window": window, "from_end": cached} if cached or before >= 0 or after > 0 else {}
    node.emit("attention", out, **operands, dropout=0.0, causal=after == 0, saving=False, **sight)


def _last(tokens: GraphValue, count: int) -> GraphValue:
    """The last of (batch, heads, length, width): no query sees the others."""
    batch, heads, length, width = tokens.shape
    count = min(length, count)
    return tokens.view((batch, heads, count, width), tokens.strides, (length - count) * tokens.strides[2])


def _heads(value: GraphValue, heads: int) -> GraphValue:
    """(batch, length, heads x width) as (batch, heads, length, width)."""
    if len(value.shape) == 4:
        return value
    batch, length, whole = value.shape
    of_batch, of_token, of_number = value.strides
    width = whole // max(1, heads)
    return value.view((batch, max(1, heads), length, width), (of_batch, width * of_number, of_token, of_number))


def _pieces(packed: GraphValue, parts: Sequence[tuple[int, int]]) -> list[GraphValue]:
    """The parts of a tensor that holds them one after the other for every token, by heads and width of each."""
    batch, length, _ = packed.shape
    operands, first = [], 0
    for heads, width in parts:
        operands.append(_heads(packed.view((batch, length, width), packed.strides, first), heads))
        first += width
    return operands


def _extended(node: Node, fresh: GraphValue, *, past: int, present: int) -> GraphValue:
    """Keys or values after those of earlier tokens (`past`), written to the cache that the graph gives (`present`)."""
    before = node.optional(past)
    given = node.asked(present)
    if before is not None:
        given = given or _longer(node, fresh, before.shape[-2])
        node.emit("cat", given, tensors=[before, fresh])
    elif given is not None:
        node.emit("clone", given, self=fresh)
    return given or fresh


def _longer(node: Node, fresh: GraphValue, past: int) -> GraphValue:
    *outer, length, width = fresh.shape
    return node.temporary((*outer, past + length, width), fresh.dtype)
