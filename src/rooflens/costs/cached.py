"""What a step needs of the cache of a language model, by the flow of values.

The cache is there when the step begins. Code that copies it (to append a token, to repeat grouped heads, to cast it, to
reorder it) does what no implementation has to: new values can be appended in place, and what reads a copy can read the
cache itself. So an operation that only moves values of the cache needs the new values alone, and the valid part of the
cache is read once in the step, by whatever computes with it first, in the size in which the cache holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rooflens.costs.fusion import attention_bytes
from rooflens.costs.latents import Projection, attend, needed_of, projection, sides_of
from rooflens.costs.masks import Masked
from rooflens.costs.registry import Need, cost, family_of
from rooflens.records import Access, Cached, Operation, Tensor

_WIDENS = "dequantize_cache"
_SELECTS = frozenset({"index_select", "gather", "index", "_unsafe_index", "take", "take_along_dim"})
_PLACES = frozenset({"index_copy", "index_put", "_unsafe_index_put", "_index_put_impl", "scatter", "slice_scatter"})


@dataclass(frozen=True, slots=True)
class _Held:
    """What a value holds of the cache.

    Attributes:
        cached: elements by block of the cache.
        new: elements that are not of the cache.
        changed: they were computed, and not only moved.
        made: elements that a projection makes of latents, by its place in the step.
        spread: of repeated values, the elements over which the new ones are spread; 0 for others.
    """

    cached: Mapping[int, int] = field(default_factory=dict)
    new: int = 0
    changed: bool = False
    made: Mapping[int, int] = field(default_factory=dict)
    spread: int = 0

    def within(self, elements: int) -> _Held:
        """What a part or a copy of so many elements holds at most; what is missing is old, as in a sliding window."""
        if self.spread > elements and not self.old_elements:
            return replace(self, new=-(-self.new * elements // self.spread), spread=elements)
        new, room = min(self.new, elements), max(0, elements - self.new)
        total = self.old_elements
        if total <= room:
            return replace(self, new=new)
        cached, made = ({key: n * room // total for key, n in part.items()} for part in (self.cached, self.made))
        return replace(self, cached=cached, new=new, made=made)

    @property
    def old_elements(self) -> int:
        return sum(self.cached.values()) + sum(self.made.values())

    def __or__(self, other: _Held) -> _Held:
        cached = {b: max(self.cached.get(b, 0), other.cached.get(b, 0)) for b in (*self.cached, *other.cached)}
        made = {p: self.made.get(p, 0) + other.made.get(p, 0) for p in (*self.made, *other.made)}
        return _Held(cached, self.new + other.new, self.changed or other.changed, made)


_BESIDE = frozenset({"elementwise", "normalization", "softmax", "reduction", "copy", "dropout", "fill"})
"""Families that the products beside them can take up."""
_BESIDE_PRODUCTS = Need(
    flops={},
    bytes=0,
    cause="element-wise passes",
    formula="The products beside it can take it up as they read or write these values: nothing moves for it alone.",
)
_ON_CHIP = "In one kernel for attention the matrix of weights stays on the chip; queries, keys, values and result move"

_Source = tuple[Access, _Held]
"""What an operation reads, and what that holds of the cache."""


class _CacheFlow:
    """Follows the values of a cache through the operations of a step; `needs` are what they need, by index."""

    def __init__(self, cache: Iterable[Cached], lasting: frozenset[int]) -> None:
        """Begin with the `cache` that is there, and the blocks that are used after the step."""
        self.needs: dict[int, Need] = {}
        self._held: dict[int, _Held] = {}
        self._unread: dict[int, int] = {}
        self._element: dict[int, float] = {}
        self._lasting = lasting
        self._projections: dict[int, Projection] = {}
        self._latents: dict[int, Sequence[_Source]] = {}
        for part in cache:
            self._held[part.block] = _Held({part.block: part.elements})
            self._unread[part.block] = part.elements
            self._element[part.block] = part.nbytes / max(1, part.elements)

    def follow(self, index: int, operation: Operation, moved: float, mask: Masked | None = None) -> Need | None:
        """What an operation needs if it reads values of the cache; it moves `moved` bytes as it is written."""
        sources, name = list(self._sources(operation, mask)), operation.call.name
        if sources and operation.writes and (name == _WIDENS or _moves(name)):  # `item` writes nothing
            return self._widening(operation, sources) if name == _WIDENS else self._moving(operation, sources)
        if not sources and _repeats(operation):
            return self._repeating(operation)
        if any(part.made for _, part in sources):
            attending = self._attending(operation, sources, moved, mask)
            if attending is not None:
                return attending
            self._settle(sources)
            sources = list(self._sources(operation))
        if sources and family_of(name) == "elementwise" and _keeps_size(operation, sources):
            return self._changing(operation, sources)
        for access in operation.writes:
            self._held.pop(access.block, None)
        only_repeated = not any(part.cached for _, part in sources)
        if not sources or (only_repeated and family_of(name) in _BESIDE):
            return None
        return self._projecting(index, operation, sources, moved) or self._reading(sources, moved)

    def _sources(self, operation: Operation, mask: Masked | None = None) -> Iterator[_Source]:
        """What the operation reads that holds values of the cache, or repeated ones, within the reach of a mask."""
        reach = 1.0 if mask is None else mask.reach
        for access in operation.reads:
            held = self._held.get(access.block)
            if held is not None:
                part = held.within(round(access.elements * reach))
                known = {place: n for place, n in part.made.items() if place in self._projections}
                if known or part.cached or part.new:
                    yield access, replace(part, made=known)

    def _moving(self, operation: Operation, sources: Sequence[_Source]) -> Need:
        """Only new values are read, and appended."""
        name, inside = operation.call.name, {access.block for access, _ in sources}
        into = operation.writes[0].block if name.endswith("_") else None
        fresh = [a for a in _values(operation) if a.block not in inside and a.block != into]
        fresh_new = sum(access.elements for access in fresh)
        held = _Held(new=fresh_new)
        for access, part in sources:
            if access.block != into or not _overwrites(name, access, self._held[access.block]):
                held = held | (self._held[access.block] if access.block == into else part)
        element = _element(operation.writes[0])
        moved = sum(a.nbytes + a.elements * element for a in fresh)
        if held.cached:  # repeated values are appended in their small form
            appended = [(access, part) for access, part in sources if not part.old_elements]
            moved += sum(part.new * (_element(access) + element) for access, part in appended)
            held = self._in_small_form(operation, held, sources, sum(part.new for _, part in appended) + fresh_new)
        in_part = into is not None and name.removesuffix("_") not in _PLACES
        for access in operation.writes:
            moved += self._keep(access, held if in_part else held.within(access.elements))
        if not held.cached:
            return _BESIDE_PRODUCTS
        formula = f"A cache grows in place: of what this moves, new values are read and written, {int(moved):,} B."
        return Need(bytes=int(moved), cause="cache copies", formula=formula)

    def _in_small_form(self, operation: Operation, held: _Held, sources: Sequence[_Source], distinct: int) -> _Held:
        """What the cache holds, if what is appended to it is repeated: then all that is in it is so."""
        call = operation.call
        tensors = [value for value in map(call.get, ("source", "values", "src")) if isinstance(value, Tensor)]
        old = sum(access.elements for access, part in sources if part.cached)
        every = sum(t.elements for t in tensors) if call.name.endswith("_") else operation.writes[0].elements - old
        if not 0 < distinct < every:
            return held
        for block in held.cached:
            self._unread[block] = self._unread[block] * distinct // every
        return replace(held, cached={block: n * distinct // every for block, n in held.cached.items()})

    def _widening(self, operation: Operation, sources: Sequence[_Source]) -> Need:
        """Scales are read; the codes are read by whatever reads the numbers that they stand for."""
        (_, codes), *scales = sorted(sources, key=lambda source: source[0].elements, reverse=True)
        moved = sum(self._fetch(part) + part.new * _element(access) for access, part in scales)
        for access in operation.writes:
            self._held[access.block] = codes
        formula = f"The scales of a cache are read, {int(moved):,} B; its codes are read and widened by what uses them."
        return Need(flops={}, bytes=int(moved), cause="expansion", formula=formula)

    def _projecting(self, index: int, operation: Operation, sources: Sequence[_Source], moved: float) -> Need | None:
        """A product of cached latents with a weight: nothing but the weight moves until its result is used."""
        made = projection(operation, sources[0][0].elements) if len(sources) == 1 and sources[0][1].cached else None
        if made is None:
            return None
        self._projections[index], self._latents[index] = made, sources
        result = operation.writes[0]
        self._held[result.block] = _Held(made={index: result.elements})
        return Need(bytes=int(moved - sources[0][0].nbytes - result.nbytes), cause="expansion")

    def _attending(
        self, operation: Operation, sources: Sequence[_Source], moved: float, mask: Masked | None
    ) -> Need | None:
        """Attention over keys and values that are projected from latents; None for any other operation."""
        share, reach = (1.0, 1.0) if mask is None else (mask.share, mask.reach)
        whole = {access: part.made for access, part in self._sources(operation)}
        sides = sides_of(operation, whole, self._projections)
        if sides is None:
            return None
        flops, told = attend(operation.call, sides, share, reach)
        places = dict.fromkeys(place for _, part in sources for place in part.made)
        latents = [source for place in places for source in self._latents.pop(place, ())]
        read = self._reading([*((a, replace(part, made={})) for a, part in sources), *_instead(latents, reach)], moved)
        for place in places:
            before = self.needs[place]
            self.needs[place] = needed_of(self._projections[place], before.bytes or 0)
        for access in operation.writes:
            self._held.pop(access.block, None)
        return replace(read, flops=flops, cause="expansion", formula=f"{told} {read.formula}")

    def _settle(self, sources: Sequence[_Source]) -> None:
        """What is made of latents is used by more than attention: it is made as it is written."""
        for place in dict.fromkeys(place for _, part in sources for place in part.made):
            written = cost(self._projections.pop(place).operation.call).work.bytes["dram"]
            self.needs[place] = self._reading(self._latents.pop(place, ()), written)

    def _repeating(self, operation: Operation) -> Need:
        """Repeated values are read in their small form by whatever reads them."""
        read = sum(access.elements for access in _values(operation))
        for access in operation.writes:
            self._held[access.block] = _Held(new=min(read, access.elements), spread=access.elements)
        if operation.call.name in ("cat", "_to_copy"):  # of halves that are alike, of places in every sequence
            return _BESIDE_PRODUCTS
        formula = f"What reads this can read the {read:,} elements that are repeated: nothing moves for it alone."
        return Need(bytes=0, cause="expansion", formula=formula)

    def _changing(self, operation: Operation, sources: Sequence[_Source]) -> Need:
        """Scaled or turned on their way to what reads them; only what outlives the step is written."""
        held = _Held(new=max(part.new for _, part in sources))
        for _, part in sources:
            held = held | replace(part, new=0)
        changed = replace(held, changed=bool(held.cached))
        moved = sum(self._keep(access, replace(changed, spread=access.elements)) for access in operation.writes)
        if not held.cached:
            return _BESIDE_PRODUCTS
        formula = f"Values of the cache are computed where they are used; as a new state {int(moved):,} B of them move."
        return Need(flops={}, bytes=int(moved), cause="cache copies", formula=formula)

    def _reading(self, sources: Sequence[_Source], moved: float) -> Need:
        """The valid part of the cache, as far as nothing has read it in this step, in place of copies of it."""
        rest = max(0.0, moved - sum(access.nbytes for access, _ in sources))
        old = sum(self._fetch(part) for _, part in sources)
        new = sum(part.new * _element(access) for access, part in sources)
        if not any(part.cached for _, part in sources):
            formula = f"Repeated values are read in their small form, {int(new):,} B, and {int(rest):,} B of all else."
            return Need(bytes=int(rest + new), cause="expansion", formula=formula)
        formula = (
            f"The valid part of the cache is read once in a step: {int(old):,} B of it here, {int(new):,} B of new"
            f" values, and {int(rest):,} B of all else."
        )
        return Need(bytes=int(rest + old + new), cause="cache copies", formula=formula)

    def _keep(self, access: Access, held: _Held) -> float:
        """Remember what a result holds. Bytes that move where it is a new state: the old one read, this one written."""
        is_state = held.changed and bool(held.cached) and access.block in self._lasting
        self._held[access.block] = _Held(held.cached, held.new) if is_state else held
        return access.nbytes + self._fetch(held) if is_state else 0

    def _fetch(self, held: _Held) -> float:
        """Bytes of the cache that are read now, since nothing has read them before."""
        moved = 0.0
        for block, elements in held.cached.items():
            now = min(elements, self._unread[block])
            self._unread[block] -= now
            moved += now * self._element[block]
        return moved


def serving_needs(
    operations: Sequence[Operation], cache: Iterable[Cached], lasting: frozenset[int], known: Mapping[int, Masked]
) -> dict[int, Need]:
    """What the operations of a prefill or a decode step need, by index, where they may do more.

    Args:
        operations: in order, with the memory that they read and write.
        cache: its blocks when the step begins; lasting: blocks that are used after the last operation.
        known: operations of attention whose mask is known.
    """
    flow, written_out = _CacheFlow(cache, lasting), attention_bytes(operations)
    for index, operation in enumerate(operations):
        one = cost(operation.call)
        moved, mask = written_out.get(index, one.work.bytes["dram"]), known.get(index)
        moved -= 0 if mask is None else mask.nbytes
        need = flow.follow(index, operation, moved, mask)
        if one.floor is not None:  # a scan tells itself what it needs of its state
            continue
        need = _beside_products(operation) if need is None else need
        if need is None and index in written_out:
            need = Need(bytes=moved, cause="attention matrix", formula=f"{_ON_CHIP}: {moved:,} B.")
        if mask is not None:
            need = _within(mask, operation, moved, need)
        if need is not None:
            flow.needs[index] = need
    return flow.needs


def _beside_products(operation: Operation) -> Need | None:
    """What an operation needs that products can take up, as those of experts read rows by their indices; else None."""
    call, family = operation.call, family_of(operation.call.name)
    if family in _BESIDE or (family == "gather" and not call.weight_reads):
        return _BESIDE_PRODUCTS
    if call.name in ("index", "index_select"):  # each row of a table once; of an embedding the result moves too
        read = min(call.weight_reads, operation.writes[0].nbytes)
        formula = f"What uses the rows of a parameter can read them by their indices: {read:,} B."
        return Need(bytes=read, cause="element-wise passes", formula=formula)
    return None


def _within(mask: Masked, operation: Operation, moved: float, need: Need | None) -> Need:
    """What an attention needs within its mask."""
    flops = mask.flops(operation)
    if need is None:
        return Need(flops=flops, bytes=moved, cause=mask.cause, formula=mask.formula)
    return replace(need, flops=flops if need.flops is None else need.flops, formula=f"{need.formula} {mask.formula}")


def _instead(latents: Sequence[_Source], reach: float) -> Iterator[_Source]:
    """Latents as sources of an operation that does not read them as it is written, and of which it sees a share."""
    for access, part in latents:
        yield replace(access, nbytes=0), replace(part.within(round(access.elements * reach)), new=0)


def _moves(name: str) -> bool:
    """True if an operation only moves elements."""
    plain = name.removesuffix("_")
    return family_of(name) == "copy" or plain in _SELECTS or plain in _PLACES


def _values(operation: Operation) -> Iterator[Access]:
    """What is read beside the table of a selection, and without indices."""
    plain = operation.call.name.removesuffix("_")
    if plain in _SELECTS:
        return
    sources = [operation.call.get(name) for name in ("source", "values", "src")] if plain in _PLACES else []
    sizes = {value.nbytes for value in sources if isinstance(value, Tensor)}
    yield from (access for access in operation.reads if plain not in _PLACES or access.nbytes in sizes)


def _repeats(operation: Operation) -> bool:
    """True if elements are written at least twice each; a column that is repeated beside others is no such case."""
    name = operation.call.name
    written = sum(access.elements for access in operation.writes)
    same = family_of(name) == "copy" and 2 * sum(access.elements for access in _values(operation)) <= written
    return same and not name.endswith("_")


def _overwrites(name: str, target: Access, held: _Held) -> bool:
    """True if nothing is left of what the target held."""
    return name.removesuffix("_") not in _PLACES and target.elements >= held.new + held.old_elements


def _keeps_size(operation: Operation, sources: Sequence[_Source]) -> bool:
    """True if values of the cache are the largest operand, and the result is no larger."""
    largest = max(access.elements for access, _ in sources)
    inside = {access.block for access, _ in sources}
    others = [access.elements for access in operation.reads if access.block not in inside]
    from_cache = any(part.cached for _, part in sources)
    no_equal = from_cache or all(n < largest for n in others)  # beside an equal operand a repeated one is no copy
    return no_equal and all(n <= largest for n in (*others, *(access.elements for access in operation.writes)))


def _element(access: Access) -> float:
    """Bytes of an element."""
    return access.nbytes / max(1, access.elements)
