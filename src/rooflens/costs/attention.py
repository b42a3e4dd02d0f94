"""Scaled dot-product attention as one operation."""

from __future__ import annotations

from math import prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call, Tensor
from rooflens.records.work import united

SOFTMAX_VECTOR = 5
"""Per weight: scale, maximum, subtract, sum, divide. The exponential is one special function."""
SOFTMAX_BACKWARD_VECTOR = 4
"""Per weight: grad times weight, its sum, subtract, multiply."""

KERNELS = (("flash", ""), ("flash", "_for_cpu"), ("efficient", ""), ("cudnn", ""))
"""Names of torch's own fused kernels and of the device that some are for: what a script calls without us."""


def seen_keys(queries: int, keys: int, before: int, after: int, from_end: bool) -> int:
    """(query, key) pairs of one sequence where a query sees some keys before and after its own place; -1 is all.

    The last query stands at the last key (`from_end`), or the first at the first.
    """
    if before < 0 and after < 0:
        return queries * keys
    shift = keys - queries if from_end else 0
    if before < 0 and after == 0 and shift >= 0:  # causal: one key more for each query
        square = min(queries, keys)
        return shift * square + square * (square + 1) // 2 + (queries - square) * keys
    queries, keys, total = int(queries), int(keys), 0  # of thousands of terms nobody reads how they were computed
    for place in range(shift, shift + queries):
        first = 0 if before < 0 else max(0, place - before)
        last = keys - 1 if after < 0 else min(keys - 1, place + after)
        total += max(0, last - first + 1)
    return total


_FORWARD = ("attention", *(f"_scaled_dot_product_{name}_attention{device}" for name, device in KERNELS))


@register("attention", *_FORWARD, "varlen_attention")
def forward(call: Call) -> Demand:
    """Q K^T and weights V: width and value width multiply-adds per pair, and a softmax over the pairs.

    Where sequences have lengths of their own, pairs are those within each.
    """
    query, value = call.tensor("query"), call.tensor("value")
    widths = query.shape[-1] + value.shape[-1]
    return _demand(call, call.outputs[0], widths=widths, vector=SOFTMAX_VECTOR, special=1)


@register(
    "attention",
    "attention_backward",
    "varlen_attention_backward",
    *(f"_scaled_dot_product_{name}_attention{device}_backward" for name, device in KERNELS),
)
def backward(call: Call) -> Demand:
    """Per pair, the gradients that are asked for: of Q and of K the width each, of V and of the weights its width.

    The gradient of the weights leads to that of Q, of K and of a mask. What a flash kernel recomputes (Q K^T and the
    softmax) is executed work, not the algorithm's.
    """
    asked = call.integers("grad_input_mask", (True, True, True, False))
    for_query, for_key, for_value, for_mask = map(bool, (*call.integers("needed", asked), False)[:4])
    of_weights = for_query or for_key or for_mask
    width, value_width = call.tensor("query").shape[-1], call.tensor("value").shape[-1]
    return _demand(
        call,
        call.tensor("output" if call.get("output") else "out"),
        widths=(for_query + for_key) * width + (for_value + of_weights) * value_width,
        vector=SOFTMAX_BACKWARD_VECTOR * of_weights,
        special=0,
    )


def _demand(call: Call, output: Tensor, widths: int, vector: int, special: int) -> Demand:
    """`widths`, `vector` and `special` per pair of a query and a key that attend."""
    query = call.tensor("query")

    def flops(attending: int) -> dict[str, float]:
        return matrix(attending * widths, query) | pointwise(
            query, vector=vector * attending, special=special * attending
        )

    every, executed = _each_length(call) if call.get("query_lengths") else _one_length(call, output)
    return Demand(flops=flops(every), kernel_flops=None if executed is None else flops(executed))


def _one_length(call: Call, output: Tensor) -> tuple[int, int | None]:
    """Pairs of all heads, and those of a kernel that leaves some out: a causal one, or one with a window."""
    heads = prod(output.shape[:-2])
    queries, keys = call.tensor("query").shape[-2], call.tensor("key").shape[-2]
    causal = bool(call.get("causal", call.get("is_causal")))
    before, after = map(int, call.integers("window", (-1, 0 if causal else -1)))
    if before < 0 and after < 0:
        return heads * queries * keys, None
    return heads * queries * keys, heads * seen_keys(queries, keys, before, after, bool(call.get("from_end")))


def _each_length(call: Call) -> tuple[int, int | None]:
    """Pairs of all heads and sequences, and those within a window if the call has one."""
    heads = call.tensor("query").shape[-2]
    lengths = list(zip(call.integers("query_lengths"), call.integers("key_lengths"), strict=True))
    before, after = call.integers("window")
    every = heads * sum(queries * keys for queries, keys in lengths)
    if before < 0 and after < 0:
        return every, None
    seen = (seen_keys(int(q), int(k), int(before), int(after), bool(call["from_end"])) for q, k in lengths)
    return every, heads * sum(seen)


@register("attention", "_native_multi_head_attention")
def multi_head(call: Call) -> Demand:
    """A whole layer of self-attention: its projections to query, key and value, attention, and the one of the result.

    Tokens (batch, sequence, width) meet weights (3 width, width) and (width, width).
    """
    return Demand(flops=_layer(call, call.tensor("query"), call.outputs[0]))


@register("attention", "_transformer_encoder_layer_fwd")
def encoder_layer(call: Call) -> Demand:
    """Self-attention, two layers with an activation (1 per element) between, norms (8, and a root per row), sums."""
    tokens = call.tensor("src")
    rows = tokens.elements // tokens.shape[-1]
    inner = call.tensor("ffn_weight_1")
    products = matrix(rows * (inner.elements + call.tensor("ffn_weight_2").elements), tokens)
    rest = pointwise(tokens, vector=rows * 2 * inner.shape[0] + (2 * 8 + 3) * tokens.elements, special=2 * rows)
    return Demand(flops=united((_layer(call, tokens, tokens), products, rest)))


def _layer(call: Call, tokens: Tensor, out: Tensor) -> dict[str, float]:
    """Products, biases and softmax of a layer of self-attention."""
    *_, sequence, width = tokens.shape
    rows = tokens.elements // width
    projections = call.tensor("qkv_weight").elements + call.tensor("proj_weight").elements
    heads = call.integer("num_head" if call.get("num_head") else "num_heads")
    attending = rows * sequence
    return matrix(rows * projections + 2 * attending * width, tokens) | pointwise(
        tokens, vector=4 * out.elements + SOFTMAX_VECTOR * heads * attending, special=heads * attending
    )
