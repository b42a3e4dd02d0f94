"""Which constants of a graph are its weights, and so its parameters."""

from __future__ import annotations

from rooflens.graph.elements import FLOATING
from rooflens.graph.operators import BINARY, INTEGER_WEIGHTS, NO_WEIGHTS, VARIADIC
from rooflens.graph.value import Data, GraphValue

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "com.microsoft.FusedConv", "com.microsoft.FusedGemm")
"""Products, which may have weights of whole numbers at any position."""
STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Inputs that are the first state of a layer: zeros, unless it was learned."""
MASKS = {"Attention": (3,), "com.microsoft.Attention": (5,), "com.microsoft.MultiHeadAttention": (4, 5)}
"""Inputs that are added to scores; exporters write causal masks as constants, for arithmetic too."""
LOWEST = -65504.0
"""The lowest number of fp16. Masks hold the lowest number of their type, or minus infinity; no weight does."""
_ARITHMETIC = frozenset({*BINARY, *VARIADIC, "Pow", "Where", "Mod"})


def is_weight(key: str, position: int, value: GraphValue) -> bool:
    """True if a constant that an operator takes at a position is a weight.

    A single number in arithmetic is a number of the formula, not of the model.
    """
    if position in NO_WEIGHTS.get(key, ()):
        return False
    if value.dtype in FLOATING:
        return value.known.elements > 1 or key not in _ARITHMETIC
    return position in INTEGER_WEIGHTS.get(key, ()) or key in PRODUCTS


def may_be_none(key: str, position: int) -> bool:
    """True if the contents decide whether a constant at a position is a weight."""
    return key in _ARITHMETIC or position in (*STATES.get(key, ()), *MASKS.get(key, ()))


def shows_none(key: str, contents: Data) -> bool:
    """True if contents are those of a mask, or of a first state that was not learned."""
    if key in STATES:
        return not contents.any()
    return contents.size > 0 and bool(contents.min() <= LOWEST)
