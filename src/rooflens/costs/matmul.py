"""Matrix products."""

from __future__ import annotations

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import matrix, pointwise
from rooflens.records import Call, Tensor


@register("matmul", "mm", "bmm", "mv", "dot", "vdot")
def product(call: Call) -> Demand:
    """(..., m, k) times (..., k, n): m n k multiply-adds per matrix; with vectors, m or n is 1."""
    first = _first_operand(call)
    return Demand(flops=matrix(_product_macs(first, call.outputs[0]), first))


@register("matmul", "addmm", "baddbmm", "addbmm", "addmv", "addr")
def product_with_addend(call: Call) -> Demand:
    """beta c + alpha (a b): the product, and one addition per element of the result unless beta is 0.

    An addend with beta 0 is not read.
    """
    first, out = _first_operand(call), call.outputs[0]
    macs = _product_macs(first, out)
    if call.name.startswith("addr"):
        macs = out.elements
    if call.name.startswith("addbmm"):
        macs *= first.shape[0]
    added = call.get("beta", 1) != 0
    flops = matrix(macs, first) | pointwise(out, vector=out.elements if added else 0)
    return Demand(flops=flops, bytes=None if added else call.reads + call.writes - call.tensor("self").nbytes)


@register("matmul", "_addmm_activation")
def product_with_activation(call: Call) -> Demand:
    """addmm followed by ReLU or GELU in the same kernel: one more operation per element."""
    first, out = _first_operand(call), call.outputs[0]
    return Demand(flops=matrix(_product_macs(first, out), first) | pointwise(out, vector=2 * out.elements))


def _first_operand(call: Call) -> Tensor:
    """The left operand: ``self`` of a product, the first tensor after the addend otherwise."""
    names = [name for name, value in call.arguments if isinstance(value, Tensor)]
    return call.tensor(names[0] if call.name.rstrip("_") in ("mm", "bmm", "mv", "dot", "vdot") else names[1])


def _product_macs(first: Tensor, out: Tensor) -> int:
    """Every element of the result is a sum over the contracted dimension, the last one of the left operand."""
    return out.elements * first.shape[-1]
