"""From element types to the units that compute on them."""

from __future__ import annotations

from rooflens.costs.registry import Demand, Uncounted
from rooflens.records import Tensor

_MATRIX = {name: name for name in ("fp64", "fp32", "fp16", "bf16", "int8")}
_MATRIX |= {"uint8": "int8", "complex128": "fp64", "complex64": "fp32", "complex32": "fp16"}
_WIDE = {"fp64", "complex128"}


def is_floating(tensor: Tensor) -> bool:
    """True if arithmetic on the tensor counts as FLOP."""
    return tensor.dtype.startswith(("fp", "bf", "float8", "complex"))


def matrix(macs: int, operand: Tensor, of_complex: int = 8) -> dict[str, float]:
    """The FLOP of `macs` multiply-adds on elements of the operand's type.

    A real multiply-add is 2 FLOP, a complex one 8 (four real products and four additions) unless `of_complex` differs.
    """
    precision = "fp8" if operand.dtype.startswith("float8") else _MATRIX.get(operand.dtype)
    if precision is None:
        raise Uncounted(f"no matrix unit works on {operand.dtype}")
    return {f"matmul.{precision}": macs * (of_complex if operand.dtype.startswith("complex") else 2)}


def pointwise(operand: Tensor, vector: float = 0, special: float = 0) -> dict[str, float]:
    """FLOP of element-wise work on elements of the operand's type: none on integers.

    General lanes compute fp64 in fp64 and every narrower type in fp32. A complex operation is two real ones.
    """
    if not is_floating(operand):
        return {}
    precision = "fp64" if operand.dtype in _WIDE else "fp32"
    factor = 2 if operand.dtype.startswith("complex") else 1
    return {f"vector.{precision}": vector * factor, f"special.{precision}": special * factor}


def per_element(tensor: Tensor, vector: float, special: float = 0) -> Demand:
    """Element-wise work on every element of a tensor."""
    return Demand(flops=pointwise(tensor, vector=vector * tensor.elements, special=special * tensor.elements))
