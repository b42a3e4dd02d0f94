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
    return _demand(call, products=1, vector=SOFTMAX_VECTOR, special=1)


@register("attention", "attention_backward")
def backward(call: Call) -> Demand:
    """Gradients of weights and V, of Q and of K: two products of each width per pair.

    What a flash kernel recomputes (Q K^T and the softmax) is executed work, not the algorithm's.
    """
    return _demand(call, products=2, vector=SOFTMAX_BACKWARD_VECTOR, special=0)


def _demand(call: Call, products: int, vector: int, special: int) -> Demand:
    query, key, value = call.tensor("query"), call.tensor("key"), call.tensor("value")
    heads = prod(call.outputs[0].shape[:-2]) if call.name == "attention" else prod(call.tensor("output").shape[:-2])
    queries, keys = query.shape[-2], key.shape[-2]
    widths = query.shape[-1] + value.shape[-1]

    def flops(causal: bool) -> dict[str, float]:
        attending = heads * pairs(queries, keys, causal)
        return matrix(products * attending * widths, query) | pointwise(
            query, vector=vector * attending, special=special * attending
        )

    causal = bool(call["causal"])
    return Demand(flops=flops(causal=False), kernel_flops=flops(causal=True) if causal else None)
