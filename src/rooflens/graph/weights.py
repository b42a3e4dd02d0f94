"""Which constants of a graph are its weights: what a model's number of parameters counts."""

from __future__ import annotations

from rooflens.graph.elements import FLOATING
from rooflens.graph.pointwise import BINARY, VARIADIC
from rooflens.graph.value import Value

NO_WEIGHTS = {
    "BatchNormalization": (3, 4),  # running statistics
    "Clip": (1, 2),
    "DequantizeLinear": (1, 2),
    "Pad": (1, 2, 3),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "com.microsoft.MatMulNBits": (2, 3, 4),
    "com.microsoft.QGemm": (1, 2, 4, 5, 7, 8),
}
"""Inputs that are statistics, scales, bounds: no parameter of a model."""
QUANTIZED = {
    "ConvInteger": (1,),
    "DequantizeLinear": (0,),
    "MatMulInteger": (1,),
    "QLinearConv": (3, 8),
    "QLinearMatMul": (3,),
    "com.microsoft.MatMulNBits": (1,),
    "com.microsoft.QGemm": (3, 6),
}
"""Inputs that are weights also where they are whole numbers; products of PRODUCTS may take such ones anywhere."""
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "com.microsoft.FusedConv", "com.microsoft.FusedGemm")
_ARITHMETIC = frozenset({*BINARY, *VARIADIC, "Pow", "Where", "Mod"})


def is_weight(key: str, position: int, value: Value) -> bool:
    """Whether a constant that an operator takes at a position is a weight.

    A single number in arithmetic is a number of the formula, not of the model.
    """
    if position in NO_WEIGHTS.get(key, ()):
        return False
    if value.dtype in FLOATING:
        return value.known.elements > 1 or key not in _ARITHMETIC
    return position in QUANTIZED.get(key, ()) or key in PRODUCTS
