"""Keys and values that are projected from cached latents: expanded, or the projection absorbed into new tokens.

A cache of latents holds `rank` numbers of a token, from which a projection makes the keys and values of every head.
Scores are q (W c) = (q W) c: the projection can be applied to the few new queries instead of to every cached token (and
to the few results, for values). Then attention works on the latents, which are longer than a head is wide. What is less
work decides, for keys and for values apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rooflens.costs.registry import Need, cost
from rooflens.costs.weight_formats import flops_beside, weight_flops
from rooflens.records import Access, Call, Operation, Tensor

_PRODUCTS = {"mm": "self", "addmm": "mat1"}
"""Products of rows with a weight, and the argument that has the rows."""


@dataclass(slots=True)
class Projection:
    """A product that makes keys and values of latents.

    Attributes:
        operation: the product.
        rank: numbers in a latent.
        elements: of all keys and values that it makes.
        flops: for all of them.
        beside: vector FLOP of all of it: scales of quantised weights, and an addend.
        needed: FLOP of the products in place of it, as far as uses are known; `needed_beside`: vector FLOP of these.
        used: elements that have a use.
        steps: how that follows, in words.
    """

    operation: Operation
    rank: int
    elements: int
    resource: str
    flops: float
    beside: float
    needed: float = 0
    needed_beside: float = 0
    used: int = 0
    steps: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSide:
    """Keys or values in an attention.

    Attributes:
        name: keys or values.
        width: numbers in each.
        rows: how many there are, of all heads.
        queries: new tokens times heads.
        made: elements of them that a projection makes, and which one; 0 and None where none does.
    """

    name: str
    width: int
    rows: int
    queries: int
    made: int = 0
    made_by: Projection | None = None


def projection(operation: Operation, moved_elements: int) -> Projection | None:
    """A product of rows, `moved_elements` that are all of a cache, with a weight; None for every other operation."""
    call = operation.call
    rows = call.get(_PRODUCTS.get(call.name, ""))
    if not isinstance(rows, Tensor) or len(rows.shape) != 2 or rows.elements != moved_elements:
        return None
    work = cost(call).work
    ((resource, flops),) = ((name, n) for name, n in work.flops.items() if name.startswith("matmul"))
    beside = sum(work.flops.values()) - flops
    return Projection(operation, rows.shape[1], call.outputs[0].elements, resource, flops, beside)


def sides_of(
    operation: Operation, made: Mapping[Access, Mapping[int, int]], projections: Mapping[int, Projection]
) -> tuple[AttentionSide, ...] | None:
    """Keys and values of an operation that attends to what projections make; None if it does not.

    Args:
        made: elements that projections make, by what is read and by the place of the projection.
        projections: by their place.
    """
    call, reads = operation.call, operation.reads

    def side(name: str, tensor: Tensor, width: int, queries: int, access: Access) -> AttentionSide:
        place, elements = next(iter(made.get(access, {}).items()), (None, 0))
        by = None if place is None else projections[place]
        rows = tensor.elements // max(1, width)
        return AttentionSide(name=name, width=width, rows=rows, queries=queries, made=elements, made_by=by)

    if call.name == "attention":
        key, value = call.tensor("key"), call.tensor("value")
        queries = call.outputs[0].elements // value.shape[-1]
        of_value = reads[2] if len(reads) > 2 and reads[2].nbytes == value.nbytes else reads[1]
        keys = side("keys", key, key.shape[-1], queries, reads[1])
        return keys, side("values", value, value.shape[-1], queries, of_value)
    if call.name == "bmm" and len(reads) == 2 and reads[1] in made:
        first, second = call.tensor("self"), call.tensor("mat2")
        by = projections[next(iter(made[reads[1]]))]
        are_keys = _are_keys(second, by)
        width = second.shape[1 if are_keys else 2]
        return (side("keys" if are_keys else "values", second, width, first.shape[0] * first.shape[1], reads[1]),)
    return None


def _are_keys(operand: Tensor, by: Projection) -> bool:
    """True for (heads, width, tokens), false for (heads, tokens, width); where both fit, scores come first."""
    rows = by.operation.call.tensor(_PRODUCTS[by.operation.call.name]).shape[0]
    as_keys, as_values = rows % operand.shape[2] == 0, rows % operand.shape[1] == 0
    return as_keys if as_keys != as_values else by.used == 0


def attend(call: Call, sides: Sequence[AttentionSide], share: float, reach: float) -> tuple[dict[str, float], str]:
    """The FLOP that an attention needs for its keys and values, and how; what projections need is noted with them.

    Args:
        share: of the pairs, those inside of its mask; reach: of the tokens, those that some query sees.
    """
    priced = cost(call)
    work = priced.kernel_work or priced.work
    pairs = share * work.matmul_flops / (2 * sum(side.width for side in sides))
    least = [_least(side, pairs, reach) for side in sides]
    told = ", ".join(f"{s.name} 2 x {n / 2 / pairs:,.0f}" for s, n in zip(sides, least, strict=True))
    flops = {name: sum(least) if name.startswith("matmul") else share * n for name, n in work.flops.items()}
    return flops, f"Products for each of {pairs:,.0f} pairs of a query and a token: {told} FLOP."


def _least(side: AttentionSide, pairs: float, reach: float) -> float:
    """FLOP of an attention's keys or values, with those of the projection in whichever form is less together."""
    expanded, by = 2 * pairs * side.width, side.made_by
    if by is None:
        return expanded
    width = side.made // max(1, side.rows)
    making = reach * by.flops * side.made / by.elements
    on_latents = 2 * pairs * (by.rank + side.width - width)
    absorbing = 2.0 * side.queries * width * by.rank
    absorbed = absorbing + on_latents < making + expanded
    by.used += side.made
    by.needed += absorbing if absorbed else making
    by.needed_beside += _beside(by, side, reach, side.queries * width if absorbed else None)
    by.steps.append(_told(side, absorbed, width, making))
    return on_latents if absorbed else expanded


def _beside(by: Projection, side: AttentionSide, reach: float, absorbed: int | None) -> float:
    """Vector FLOP of the product that a side needs of a projection: of `absorbed` elements, or of every token's."""
    share, call = side.made / by.elements, by.operation.call
    outer = reach * side.made if absorbed is None else absorbed
    inner = outer * by.rank / (side.made / max(1, side.rows))
    if absorbed is None:  # keys and values are made of the same latents
        inner = reach * share * by.elements * by.rank / call.outputs[0].shape[-1]
    used = share * by.rank * call.outputs[0].shape[-1]
    added = (by.beside - (0 if call.get("weight_format") is None else weight_flops(call))) * outer / by.elements
    return added + flops_beside(call, inner, outer, used)


def needed_of(made: Projection, nbytes: float) -> Need:
    """What a projection needs once its uses are known; what nothing uses is made as it is written."""
    rest = max(0, made.elements - made.used) / made.elements
    flops = dict.fromkeys(cost(made.operation.call).work.flops, made.needed_beside + made.beside * rest)
    beside = f"Scales and addends of these products take {made.needed_beside:,.0f} FLOP." if made.needed_beside else ""
    return Need(
        flops={**flops, made.resource: made.needed + made.flops * rest},
        bytes=nbytes,
        cause="expansion",
        formula=" ".join(filter(None, (*made.steps, beside))),
    )


def _told(side: AttentionSide, absorbed: bool, width: int, making: float) -> str:
    rank = side.made_by.rank if side.made_by is not None else 0
    if absorbed:
        return (
            f"The projection of {side.name} is absorbed into {side.queries:,} new rows: 2 x {side.queries:,} x {width}"
            f" x {rank} FLOP, where expanding every token takes {making:,.0f}; attention works on latents of {rank}."
        )
    return f"Expanding {side.name} takes {making:,.0f} FLOP, less than attention on latents of {rank} would add."
