"""Scaled dot-product attention as one operation."""

from __future__ import annotations

from math import prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call

SOFTMAX_VECTOR = 5
"""Per weight: scale, maximum, subtract, sum, divide. The exponential is one special function."""
SOFTMAX_BACKWARD_VECTOR = 4
"""Per weight: grad times weight, its sum, subtract, multiply."""


def pairs(queries: int, keys: int, causal: bool) -> int:
    """(query, key) pairs that attend: all, or for a causal call those with key <= query (top-left aligned)."""
    if not causal:
        return queries * keys
    square = min(queries, keys)
    return square * (square + 1) // 2 + max(0, queries - keys) * keys


@register("attention", "attention")
def forward(call: Call) -> Demand:
    """Q K^T and weights V: width and value width multiply-adds per pair, and a softmax over the pairs."""
    query, value = call.tensor("query"), call.tensor("value")
    widths = query.shape[-1] + value.shape[-1]
    return _demand(call, heads=prod(call.outputs[0].shape[:-2]), widths=widths, vector=SOFTMAX_VECTOR, special=1)


@register("attention", "attention_backward")
def backward(call: Call) -> Demand:
    """Per pair, the gradients that are asked for: of Q and of K the width each, of V and of the weights its width.

    The gradient of the weights leads to that of Q, of K and of a mask. What a flash kernel recomputes (Q K^T and the
    softmax) is executed work, not the algorithm's.
    """
    needed = call["needed"]
    assert isinstance(needed, tuple)
    for_query, for_key, for_value, for_mask = map(bool, needed)
    of_weights = for_query or for_key or for_mask
    width, value_width = call.tensor("query").shape[-1], call.tensor("value").shape[-1]
    return _demand(
        call,
        heads=prod(call.tensor("output").shape[:-2]),
        widths=(for_query + for_key) * width + (for_value + of_weights) * value_width,
        vector=SOFTMAX_BACKWARD_VECTOR * of_weights,
        special=0,
    )


def _demand(call: Call, heads: int, widths: int, vector: int, special: int) -> Demand:
    """`widths`, `vector` and `special` per pair of a query and a key that attend."""
    query = call.tensor("query")
    queries, keys = query.shape[-2], call.tensor("key").shape[-2]

    def flops(causal: bool) -> dict[str, float]:
        attending = heads * pairs(queries, keys, causal)
        return matrix(attending * widths, query) | pointwise(
            query, vector=vector * attending, special=special * attending
        )

    causal = bool(call["causal"])
    return Demand(flops=flops(causal=False), kernel_flops=flops(causal=True) if causal else None)
