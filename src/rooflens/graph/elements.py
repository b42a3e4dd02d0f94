"""Element types of ONNX as rooflens writes them, with their size."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx

from rooflens.errors import ModelError
from rooflens.records import Tensor, dense_strides

_BITS = {
    "DOUBLE": ("fp64", 64),
    "FLOAT": ("fp32", 32),
    "FLOAT16": ("fp16", 16),
    "BFLOAT16": ("bf16", 16),
    "FLOAT8E4M3FN": ("float8_e4m3fn", 8),
    "FLOAT8E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "FLOAT8E5M2": ("float8_e5m2", 8),
    "FLOAT8E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "FLOAT8E8M0": ("float8_e8m0fnu", 8),
    "FLOAT4E2M1": ("float4_e2m1fn", 4),
    "COMPLEX64": ("complex64", 64),
    "COMPLEX128": ("complex128", 128),
    **{f"{sign}INT{n}": (f"{sign}INT{n}".lower(), n) for sign in ("", "U") for n in (64, 32, 16, 8, 4, 2)},
    "BOOL": ("bool", 8),
}
_ELEMENTS = {number: _BITS[name] for name, number in onnx.TensorProto.DataType.items() if name in _BITS}
_NUMBERS = {rooflens: number for number, (rooflens, _) in _ELEMENTS.items()}
FLOATING = ("fp64", "fp32", "fp16", "bf16")
MOST_ELEMENTS = 2**63
"""No tensor is larger: sizes of ONNX are 64-bit numbers, and so is their product in every runtime."""


def name_of(element_type: int) -> str | None:
    """The name of an ONNX element type in rooflens; None for text and for unknown numbers."""
    return _ELEMENTS[element_type][0] if element_type in _ELEMENTS else None


def number_of(dtype: str) -> int:
    """The ONNX number of an element type."""
    return int(_NUMBERS[dtype])


def described(shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> Tensor:
    """A tensor by shape and element type; with strides, a dimension that is repeated (stride 0) is stored once.

    Its layout is row-major, as that of every tensor of ONNX.

    Raises:
        ModelError: the tensor is larger than any can be.
    """
    if any(size < 0 for size in shape) or prod(shape) >= MOST_ELEMENTS:
        raise ModelError(f"a tensor of shape {tuple(shape)} cannot be")
    stored = shape if strides is None else [s for s, step in zip(shape, strides, strict=True) if step or not s]
    nbytes = -(-prod(stored) * bits_of(dtype) // 8)
    return Tensor(tuple(shape), dtype, nbytes, strides=dense_strides(shape), offset=0)


def bits_of(dtype: str) -> int:
    """Bits of one element."""
    return _ELEMENTS[_NUMBERS[dtype]][1]
