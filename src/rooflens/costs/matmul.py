"""Matrix products."""

from __future__ import annotations

from math import prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.costs.weight_formats import weight_flops
from rooflens.records import Call, Tensor

PRODUCTS = (
    *("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_scaled_mm", "_scaled_mm_v2", "_sparse_mm", "_weight_int8pack_mm"),
    *("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu"),
)
"""Operations whose first tensor is the left operand; that of the others is an addend."""


@register("matmul", *PRODUCTS)
def product(call: Call) -> Demand:
    """(..., m, k) times (..., k, n): m n k multiply-adds per matrix; with vectors, m or n is 1.

    Packed 4-bit and 8-bit weights are unpacked to the left operand's type. The product has that type; the bytes are
    those of the packed weights. Of 4 bits each weight meets a scale and a zero point; with 8 bits each result a scale.
    """
    first, out = _first_operand(call), call.outputs[0]
    beside = out.elements if isinstance(call.get("bias"), Tensor) else 0
    if call.name.startswith("_weight_int4pack_mm"):
        beside += 2 * first.shape[-1] * out.shape[-1]
    elif call.name == "_weight_int8pack_mm":
        beside += out.elements
    return Demand(flops=_flops(call, _product_macs(call, first, out), beside))


@register("matmul", "_trilinear")
def trilinear(call: Call) -> Demand:
    """Three operands, two products: of the first two, summed over what the third lacks, then with the third.

    Bilinear layers are x1 W x2 for every feature: (batch, i) times (features, i, j), and the result times (batch, j).
    Their gradients are the same with other operands. A product that sums over nothing is element-wise.
    """
    sizes: dict[int, int] = {}
    dims_of: list[set[int]] = []
    for number in (1, 2, 3):
        shape, lacking = call.tensor(f"i{number}").shape, call.integers(f"expand{number}")
        dims = [dim for dim in range(len(shape) + len(lacking)) if dim not in lacking]
        sizes |= dict(zip(dims, shape, strict=True))
        dims_of.append(set(dims))
    first, summed = dims_of[0] | dims_of[1], set(call.integers("sumdim"))
    inner = summed - dims_of[2]
    steps = ((first, inner), ((first - inner) | dims_of[2], summed - inner))
    macs = sum(prod(sizes[dim] for dim in dims) for dims, over in steps if over)
    products = sum(prod(sizes[dim] for dim in dims) for dims, over in steps if not over)
    operand = call.tensor("i1")
    return Demand(flops=matrix(macs, operand) | pointwise(operand, vector=products))


@register("matmul", "linalg_solve_triangular")
def triangular_solve(call: Call) -> Demand:
    """Each of n unknowns meets those before it: n (n - 1) / 2 multiply-adds per right side, and n quotients.

    A unit diagonal needs no quotients.
    """
    rows, right = call.tensor("self").shape[-1], call.tensor("B")
    quotients = {} if call.get("unitriangular") else pointwise(right, vector=right.elements)
    return Demand(flops=matrix(right.elements * (rows - 1) // 2, right) | quotients)


@register("matmul", "_euclidean_dist")
def distances(call: Call) -> Demand:
    """|x|^2 + |y|^2 - 2 x y as one product: (..., p, m + 2) times (..., m + 2, r); squares, and a root per pair."""
    points, others, out = call.tensor("x1"), call.tensor("x2"), call.outputs[0]
    squares = 3 * (points.elements + others.elements)  # each squared and added; one of them times -2
    return Demand(
        flops=matrix(out.elements * (points.shape[-1] + 2), points)
        | pointwise(out, vector=squares + out.elements, special=out.elements)
    )


@register("matmul", "affine_grid_generator")
def affine_grid(call: Call) -> Demand:
    """Every position of the grid meets the matrix of its image: (positions, 3) times (3, 2), or 4 and 3 in space."""
    theta, out = call.tensor("theta"), call.outputs[0]
    return Demand(flops=matrix(out.elements * theta.shape[-1], theta))


@register("matmul", "_grouped_mm", "_scaled_grouped_mm")
def grouped_product(call: Call) -> Demand:
    """One product per group, as experts make them: each row of the left operand meets the matrix of its group.

    (rows, k) times (groups, k, n), or for the gradient of the matrices (m, rows) times (rows, n) to (groups, m, n),
    where each row counts in one group. A group without rows reads no matrix: at most as many are read as there are
    rows.
    """
    first, second, out = call.tensor("self"), call.tensor("mat2"), call.outputs[0]
    macs = _product_macs(call, first, out)
    if len(first.shape) == len(second.shape) == 2:
        return Demand(flops=matrix(macs // max(1, out.shape[0]), first))
    unread = 0
    if len(first.shape) == 2:
        groups = max(1, second.shape[0])
        unread = max(0, groups - first.shape[0]) * (second.nbytes // groups)
    return Demand(flops=_flops(call, macs), bytes=call.reads + call.writes - unread)


@register("matmul", "grouped_mm_fallback", "grouped_mm_fallback_backward")
def grouped_product_of_transformers(call: Call) -> Demand:
    """The transformers library's own: (rows, k) times (groups, k, n), or both gradients of it."""
    rows, weight = call.tensor("input"), call.tensor("weight")
    return Demand(flops=_flops(call, rows.elements * weight.shape[-1] * len(call.outputs)))


@register("matmul", "addmm", "_sparse_addmm", "baddbmm", "addbmm", "addmv", "addr")
def product_with_addend(call: Call) -> Demand:
    """beta c + alpha (a b): the product, and one addition per element of the result unless beta is 0.

    An addend with beta 0 is not read.
    """
    first, out = _first_operand(call), call.outputs[0]
    macs = _product_macs(call, first, out)
    if call.name.startswith("addr"):
        macs = out.elements
    if call.name.startswith("addbmm"):
        macs *= first.shape[0]
    added = call.get("beta", 1) != 0
    flops = _flops(call, macs, out.elements if added else 0)
    return Demand(flops=flops, bytes=None if added else call.reads + call.writes - call.tensor("self").nbytes)


@register("matmul", "_addmm_activation")
def product_with_activation(call: Call) -> Demand:
    """addmm followed by ReLU or GELU in the same kernel: one more operation per element."""
    first, out = _first_operand(call), call.outputs[0]
    return Demand(flops=_flops(call, _product_macs(call, first, out), 2 * out.elements))


def _flops(call: Call, macs: int, vector: int = 0) -> dict[str, float]:
    """FLOP of a product in the type of its left operand, of additions beside it, and of weights that are quantised."""
    out = call.outputs[0]
    if call.get("weight_format") is None:
        first = call.tensor("input") if call.name.startswith("grouped_mm_fallback") else _first_operand(call)
        return matrix(macs, first) | pointwise(out, vector=vector)
    beside = weight_flops(call)
    product: dict[str, float] = {"matmul.fp8": 2 * macs} if call["weight_format"] == "fp8" else matrix(macs, out)
    return product | {"vector.fp32": beside + vector}


def _first_operand(call: Call) -> Tensor:
    """The left operand: ``self`` of a product, the first tensor after the addend otherwise."""
    names = [name for name, value in call.arguments if isinstance(value, Tensor)]
    return call.tensor(names[0] if call.name in PRODUCTS else names[1])


def _product_macs(call: Call, first: Tensor, out: Tensor) -> int:
    """Every element of the result is a sum over the contracted dimension, the last one of the left operand.

    Of a sparse operand only what is stored takes part: each such element meets a row (or a column) of the result.
    """
    sparse = next((t for t in call.inputs if t.stored is not None), None)
    if sparse is not None and sparse.stored is not None:
        if len(out.shape) < 2:  # times a vector: each stored element is one multiply-add
            return sparse.stored
        return sparse.stored * (out.shape[-1] if sparse.shape == first.shape else out.elements // out.shape[-1])
    return out.elements * first.shape[-1]
