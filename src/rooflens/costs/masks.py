"""What masks of attention let through: the bound counts no pair of a query and a key that a mask throws away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.costs.fusion import attention_groups
from rooflens.costs.registry import Need, cost, family_of
from rooflens.records import Cause, Mask, Operation, Tensor

UNKNOWN_MASK = "attention with a mask whose pattern is not known (padding, documents, prefixes) counts all of its pairs"
_ATTENTION = frozenset({"attention", "attention_backward"})
_PRODUCTS = frozenset({"bmm", "baddbmm"})
_FLOWS = frozenset({"elementwise", "copy", "fill"})
"""Families whose results can be made again where they are used, of what they read."""
_LOOKUPS = frozenset({"embedding", "index", "index_select"})
_HIDES = {"add": ("self", "other"), "sub": ("self",), "masked_fill": ("mask",), "where": ("condition",)}
"""Arguments whose mask holds for the result, whatever the others are."""


@dataclass(frozen=True, slots=True)
class Masked:
    """An operation of an attention with a mask that is known; the code reads `nbytes` more of it than it is made of."""

    mask: Mask
    nbytes: int

    @property
    def share(self) -> float:
        """Of the pairs, those inside of the mask."""
        return self.mask.pairs / max(1, self.mask.queries * self.mask.keys)

    @property
    def reach(self) -> float:
        """Of the keys, those that some query sees."""
        return self.mask.reach / max(1, self.mask.keys)

    def flops(self, operation: Operation) -> dict[str, float]:
        """FLOP of the pairs inside of the mask."""
        priced = cost(operation.call)
        executed = priced.kernel_work or priced.work
        return {name: n * self.share for name, n in executed.flops.items()}

    @property
    def cause(self) -> Cause:
        """Why the code does more: it computes pairs that the mask hides, or reads a bias that all pairs have."""
        return "masked pairs" if self.mask.words else "expansion"

    @property
    def formula(self) -> str:
        mask = self.mask
        if not mask.words:
            return f"What is added to the scores can be made where it is used: {self.nbytes:,} B of it are not read."
        return (
            f"Of {mask.queries:,} x {mask.keys:,} pairs {mask.pairs:,} lie inside of the mask ({mask.words}); none of"
            " them needs its values."
        )


def masked(operations: Sequence[Operation], masks: Sequence[Mask], *, serving: bool = False) -> Mapping[int, Masked]:
    """The operations of attention, by index, whose mask is known: fused, or the products of one that is written out.

    Args:
        serving: of prefill or decode, whose kernels make a bias of a table where they use it.
    """
    made = tuple(mask.block for mask in masks)
    known = _known(operations, masks)
    if not known and not serving:
        return {}
    sources = _sources(operations, made, known)
    found = dict(_biased(operations, known, sources)) if serving else {}
    groups = attention_groups(operations)
    of_group: dict[int, Mask] = {}
    for index, operation in enumerate(operations):
        for access in operation.reads:
            mask = known.get(access.block)
            if mask is not None and operation.call.name in _ATTENTION:
                found[index] = Masked(mask, access.nbytes - min(access.nbytes, sources.get(access.block, 0)))
            elif mask is not None and index in groups and not _is_condition(operation):
                before = of_group.setdefault(groups[index], mask)
                of_group[groups[index]] = min(before, mask, key=lambda one: one.pairs)
    for index, group in groups.items():
        if group in of_group and operations[index].call.name in _PRODUCTS:
            found[index] = Masked(of_group[group], 0)
    return found


def _biased(
    operations: Sequence[Operation], known: Mapping[int, Mask], sources: Mapping[int, int]
) -> Iterator[tuple[int, Masked]]:
    """Attention to all pairs with a bias that is larger than what it is made of: a table, and places."""
    for index, operation in enumerate(operations):
        bias = operation.call.get("mask") if operation.call.name in _ATTENTION else None
        if not isinstance(bias, Tensor) or len(bias.shape) < 2:
            continue
        read = [a for a in operation.reads if a.block in sources and a.elements == bias.elements]
        if len(read) == 1 and read[0].block not in known and read[0].nbytes > sources[read[0].block]:
            queries, keys = bias.shape[-2:]
            all_pairs = Mask(
                block=read[0].block, queries=queries, keys=keys, pairs=queries * keys, reach=keys, words=""
            )
            yield index, Masked(all_pairs, read[0].nbytes - sources[read[0].block])


def _known(operations: Sequence[Operation], masks: Iterable[Mask]) -> dict[int, Mask]:
    """Masks that are known, by block: as they are made, and in what is computed with them."""
    known = _followed(operations, {mask.block: mask for mask in masks})
    return known | chosen(operations, known)


def _followed(operations: Sequence[Operation], made: Mapping[int, Mask]) -> dict[int, Mask]:
    """Known masks, and what element-wise operations make of them: casts, sums with a bias, scores that are masked.

    A pair that the mask hides stays hidden, unless something else of the mask's size may show it again.
    """
    known = dict(made)
    for operation in operations if made else ():
        call = operation.call
        if not known.keys() & {access.block for access in operation.reads} or family_of(call.name) not in _FLOWS:
            continue
        given = [(name, value) for name, value in call.arguments if isinstance(value, Tensor)]
        out = call.outputs[0] if call.outputs else None
        if out is None or not operation.writes or len(given) != len(operation.reads):
            continue
        pairs = tuple(out.shape[-2:])
        whole = [(name, a.block) for (name, t), a in zip(given, operation.reads, strict=True) if t.shape[-2:] == pairs]
        hiding = _HIDES.get(call.name.removesuffix("_"), ())
        if any(name not in hiding and block not in known for name, block in whole):
            whole = [(name, block) for name, block in whole if name in hiding]
        masks = [known[block] for _, block in whole if block in known]
        if masks and (masks[0].queries, masks[0].keys) == pairs:
            block = operation.writes[0].block
            known[block] = replace(min(masks, key=lambda mask: mask.pairs), block=block)
    return known


def _is_condition(operation: Operation) -> bool:
    """True if conditions are put together, which may show again what one of them hides."""
    return any(out.dtype == "bool" for out in operation.call.outputs)


def _sources(operations: Sequence[Operation], made: Sequence[int], known: Mapping[int, Mask]) -> dict[int, int]:
    """Bytes, by block, that values are made of: functions of places take none, a sum of them with a bias the bias."""
    least = dict.fromkeys(made, 0)
    for operation in operations:
        flows = family_of(operation.call.name) in _FLOWS or operation.call.name in _LOOKUPS
        read = sum(least.get(access.block, access.nbytes) for access in operation.reads)
        for access in operation.writes:
            if access.block in made or (access.block in known and not flows):  # chosen by an indexer
                least[access.block] = 0
            elif flows:
                least[access.block] = min(access.nbytes, read)
            else:
                least.pop(access.block, None)
    return least


def chosen(operations: Sequence[Operation], known: Mapping[int, Mask]) -> dict[int, Mask]:
    """Masks that let each query see the keys that an indexer has chosen for it, alone or with a mask that is known.

    What `topk` gives is scattered into a mask, and that is put together with others.
    """
    picks: set[int] = set()
    found: dict[int, Mask] = {}
    for operation in operations:
        call, reads = operation.call, [access.block for access in operation.reads]
        if call.name == "topk" and len(operation.writes) > 1:
            picks.add(operation.writes[1].block)
        elif call.name in ("_to_copy", "clone") and picks.intersection(reads):
            picks.update(access.block for access in operation.writes)
        elif call.name.removesuffix("_") == "scatter" and picks.intersection(reads):
            *_, queries, keys = (1, *call.tensor("self").shape)
            mask = _of_choice(operation.writes[0].block, queries, keys, call.tensor("index").shape[-1], None)
            found[mask.block] = mask
        elif (masks := [found[block] for block in reads if block in found]) and call.name not in _PRODUCTS:
            mask, out = masks[0], call.outputs[0] if call.outputs else None
            largest = max(access.elements for access in operation.reads if access.block in found)
            if out is not None and out.elements == largest and out.shape[-1] == mask.keys:
                base = next((known[block] for block in reads if block in known), None)
                block = operation.writes[0].block
                most = mask.pairs // max(1, mask.queries)
                found[block] = (
                    replace(mask, block=block)
                    if base is None
                    else _of_choice(block, mask.queries, mask.keys, most, base)
                )
    return found


def _of_choice(block: int, queries: int, keys: int, most: int, base: Mask | None) -> Mask:
    """A mask that lets each query see at most so many keys of those that another one lets it see."""
    most = min(most, keys)
    pairs, words = queries * most, f"{most} chosen keys"
    if base is not None and base.words == "causal":
        pairs, words = sum(min(most, keys - queries + place + 1) for place in range(queries)), f"causal, {words}"
    elif base is not None:
        pairs, words = min(pairs, base.pairs), f"{base.words}, {words}"
    return Mask(block=block, queries=queries, keys=keys, pairs=pairs, reach=min(keys, pairs), words=words)


def mask_needs(operations: Sequence[Operation], known: Mapping[int, Masked]) -> dict[int, Need]:
    """What operations of attention with a known mask need, by index."""
    needs = {}
    for index, one in known.items():
        moved = cost(operations[index].call).work.bytes["dram"] - one.nbytes
        flops = one.flops(operations[index])
        needs[index] = Need(flops=flops, bytes=moved, cause=one.cause, formula=one.formula)
    return needs


def has_unknown_mask(operations: Sequence[Operation], masks: Iterable[Mask]) -> bool:
    """True if some attention has a mask of which nothing is known."""
    with_mask = [o for o in operations if o.call.name in _ATTENTION and isinstance(o.call.get("mask"), Tensor)]
    known = _known(operations, masks) if with_mask else {}
    return any(not any(access.block in known for access in operation.reads) for operation in with_mask)
