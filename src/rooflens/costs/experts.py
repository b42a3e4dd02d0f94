"""Experts that are hit: of E experts, those that some of a step's tokens are sent to.

A router picks k of E experts for each of n tokens. Which ones depends on the tokens. The convention is a router that is
fair: every choice of k is as likely as any other, and tokens are independent. Then E (1 - (1 - k / E)^n) experts are
expected to be hit, never more than n k, and the weights of these have to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rooflens.costs.registry import Need, cost
from rooflens.records import Access, Call, Operation, Tensor

EXPERTS_HIT = (
    "experts: the bound reads those that a fair router is expected to hit, E (1 - (1 - k / E)^n) of E for n tokens with"
    " k each"
)
_ONCE = " Each token is read once, by its index."
_GROUPED = {"_grouped_mm": "mat2", "_scaled_grouped_mm": "mat2", "grouped_mm_fallback": "weight"}
"""Products of rows with the matrices of their groups, and the argument that has the matrices."""


@dataclass(frozen=True, slots=True)
class _Routing:
    """n tokens with k experts each."""

    tokens: int
    chosen: int

    def hit(self, experts: int) -> float:
        """Experts that are expected to be hit."""
        return experts * (1 - (1 - min(1.0, self.chosen / experts)) ** self.tokens)


def expert_needs(operations: Sequence[Operation], *, serving: bool = False) -> Iterator[tuple[int, Need]]:
    """What products with experts need, by index, where the weights of fewer are expected to be read than are there.

    Args:
        serving: of prefill or decode, whose products read tokens by their indices, without a copy for each expert.
    """
    routings: dict[int, _Routing] = {}
    copies: dict[int, Tensor] = {}
    sent: dict[int, Access] = {}
    for index, operation in enumerate(operations):
        call = operation.call
        if call.name == "topk" and call.outputs[0].elements:
            chosen = call.outputs[0].shape[-1]
            routings[call.outputs[0].elements] = _Routing(call.outputs[0].elements // max(1, chosen), chosen)
        elif call.name in _GROUPED:
            less = sum(r.nbytes - sent[r.block].nbytes for r in operation.reads if r.block in sent)
            yield from _grouped(index, call, call.tensor(_GROUPED[call.name]), routings, less)
        elif call.name in ("index", "index_select") and not call.weight_reads:
            tokens, rows = operation.reads[0], operation.writes[0]
            if serving and tokens.elements < rows.elements:
                sent[rows.block] = tokens
        elif call.name in ("index", "index_select") and call.weight_reads and len(call.tensor("self").shape) == 3:
            copies[operation.writes[0].block] = call.tensor("self")
            formula = "The product that follows can read the experts that are hit: their weights need no copies."
            yield index, Need(bytes=0, cause="expansion", formula=formula)
        elif call.name in ("bmm", "baddbmm"):
            yield from _copied(index, operation, copies, routings)


def _grouped(
    index: int, call: Call, matrices: Tensor, routings: dict[int, _Routing], less: int
) -> Iterator[tuple[int, Need]]:
    """A grouped product reads the matrices of groups with rows.

    Args:
        less: bytes that it saves by reading each token once, and not a copy of it for each expert.
    """
    rows = call.tensor("self" if call.get("self") else "input")
    routing = routings.get(rows.elements // max(1, rows.shape[-1]))
    if routing is None or len(rows.shape) != 2 or len(matrices.shape) != 3:
        return
    experts = matrices.shape[0]
    read = min(experts, rows.shape[0]) if call.name != "grouped_mm_fallback" else experts
    hit, one = routing.hit(experts), matrices.nbytes / experts
    moved = cost(call).work.bytes["dram"] - (read - hit) * one - less
    flops = None
    if call.get("weights_group_size"):  # weights that are dequantised one by one
        flops = dict(cost(call).work.flops)
        flops["vector.fp32"] *= hit / read
    told = f"{_told(routing, experts, hit, one)}{_ONCE if less else ''}"
    yield index, Need(flops=flops, bytes=int(moved), cause="idle experts", formula=told)


def _copied(
    index: int, operation: Operation, copies: dict[int, Tensor], routings: dict[int, _Routing]
) -> Iterator[tuple[int, Need]]:
    """A product with a copy of an expert's weights for each token reads each expert that is hit once."""
    read = next((access for access in operation.reads if access.block in copies), None)
    if read is None:
        return
    matrices = copies[read.block]
    experts, one = matrices.shape[0], matrices.nbytes / max(1, matrices.shape[0])
    rows = round(read.nbytes / one)
    routing = routings.get(rows, _Routing(rows, 1))
    hit = routing.hit(experts)
    moved = cost(operation.call).work.bytes["dram"] - read.nbytes + hit * one
    yield index, Need(bytes=int(moved), cause="idle experts", formula=_told(routing, experts, hit, one))


def _told(routing: _Routing, experts: int, hit: float, one: float) -> str:
    n, k = routing.tokens, routing.chosen
    return (
        f"{n:,} tokens are sent to {k} of {experts} experts each: {experts} x (1 - (1 - {k} / {experts})^{n}) ="
        f" {hit:.4g} are expected to be hit, {int(one):,} B each."
    )
