"""Traces of many lengths of a language model from those of a few.

The sizes in a step grow with its length: along a straight line, until a window is full, or a buffer has to be larger.
Between two lengths every number of a trace is taken from the line through both, if the traces in the middle and right
behind it are exactly what the line says; where they are not, the lengths are halved. A peak of memory is found anew at
every length, from the lifetimes of all blocks. So a sweep runs a model a few times for each batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rooflens.costs.workspaces import CALLS
from rooflens.errors import RooflensError
from rooflens.records import MEMORY_CAUSES, CachePart, KvCache, Memory, MemoryBlock, Trace, allocated, with_cache
from rooflens.running.graphs import GraphWorkload
from rooflens.running.tracing import Tracer, tracer
from rooflens.runs.options import Options
from rooflens.runs.run import Run

if TYPE_CHECKING:
    from rooflens.running.tracing import Estimable

FEWEST = 8
"""Lengths from which on a line is looked for."""
_APART = ("memory", "held", "blocks", "modules")
"""Of a trace, what does not grow along a line, or is left out: of modules only those that ran are known."""


class _OffLine(Exception):
    """Two traces differ in more than sizes, or a size between theirs is no whole number."""


class Tracers:
    """Tracers of the workloads of a call; those of one language model that differ in their length share a module."""

    def __init__(self, runs: Iterable[Run]) -> None:
        """Note all runs of the call."""
        self._runs = tuple(runs)
        self._known: dict[tuple[str, str, Options], Tracer] = {}

    def of(self, asked: Estimable) -> Tracer:
        """Return the tracer of a workload."""
        if isinstance(asked, GraphWorkload) or asked.local or asked.blueprint.example_of_step is None:
            return tracer(asked)
        first = asked.runs[0]
        key = (asked.blueprint.name, first.mode, replace(first.options, seq_len=None))
        if key not in self._known:
            self._known[key] = Lengths(tracer(asked), self._runs)
        return self._known[key]


class Lengths:
    """Traces runs that differ in batch and length, as a :class:`Tracer` does."""

    def __init__(self, trace: Tracer, runs: Iterable[Run]) -> None:
        """Note the runs that are asked for: a line is drawn through the lengths of each batch."""
        self._tracer = trace
        self._lengths: dict[Hashable, list[int]] = {}
        for run in runs:
            if run.options.seq_len is not None:
                self._lengths.setdefault(_without_length(run), []).append(run.options.seq_len)
        self._lines: dict[Hashable, dict[int, _Line | None]] = {}
        self._traced: dict[tuple[Hashable, int], Trace] = {}

    def __call__(self, run: Run, /, *, summing: bool = False) -> Trace:
        """Trace a run, or take its trace from a line."""
        kind, length = _without_length(run), run.options.seq_len
        lengths = sorted(set(self._lengths.get(kind, ())))
        if not summing or length not in lengths or len(lengths) < FEWEST or run.options.quantises:
            return self._tracer(run, summing=summing)
        if kind not in self._lines:
            self._lines[kind] = {}
            self._draw(run, lengths)
        line = self._lines[kind].get(length)
        return self._at(run, length) if line is None else line.at(length)

    def _at(self, run: Run, length: int) -> Trace:
        key = (_without_length(run), length)
        if key not in self._traced:
            there = replace(run, options=replace(run.options, seq_len=length))
            self._traced[key] = self._tracer(there, summing=True)
        return self._traced[key]

    def _draw(self, run: Run, lengths: Sequence[int]) -> None:
        """Find a line for lengths, or for each half of them."""
        if len(lengths) < 4:
            return
        first, last, middle = lengths[0], lengths[-1], (lengths[0] + lengths[-1]) // 2
        try:
            line = _Line(first, self._at(run, first), last, self._at(run, last))
            if all(_plain(line.at(n)) == _plain(self._at(run, n)) for n in (middle, middle + 1)):
                self._lines[_without_length(run)] |= dict.fromkeys(lengths, line)
                return
        except (_OffLine, RooflensError):  # whoever asks for a length that cannot be traced is told
            pass
        half = len(lengths) // 2
        self._draw(run, lengths[:half])
        self._draw(run, lengths[half:])


def _without_length(run: Run) -> Hashable:
    return replace(run, options=replace(run.options, seq_len=None))


class _Line:
    """All traces between those of two lengths."""

    def __init__(self, first: int, one: Trace, last: int, other: Trace) -> None:
        """Draw it.

        Raises:
            _OffLine: there is none.
        """
        self._ends = first, last
        alike = len(one.operations) == len(other.operations) and one.lasting == other.lasting
        if not alike or one.memory is None or not one.blocks or any(o.call.name in CALLS for o in one.operations):
            raise _OffLine
        interned = _Interned()
        self._one, self._other = (replace(t, operations=interned.of(t.operations)) for t in (one, other))
        self._memory = _Peaks(one.blocks, other.blocks)
        if self._memory.at(0, 1, one.kv_cache) != one.memory or self._memory.at(1, 1, other.kv_cache) != other.memory:
            raise _OffLine

    def at(self, length: int) -> Trace:
        """Return the trace of a length.

        Raises:
            _OffLine: it is on no line.
        """
        first, last = self._ends
        mixed = _Mixed(length - first, last - first)
        parts = {
            part.name: mixed.of(getattr(self._one, part.name), getattr(self._other, part.name))
            for part in fields(Trace)
            if part.name not in _APART
        }
        memory = self._memory.at(length - first, last - first, parts["kv_cache"])
        return Trace(**parts, memory=memory, held=self._one.held)


class _Interned:
    """Makes one object of all that are equal in every respect, so that what both traces share is found at once."""

    def __init__(self) -> None:
        self._known: dict[object, Any] = {}

    def of(self, value: Any) -> Any:
        kind: Any = type(value)
        if kind is tuple:
            return self._known.setdefault((kind, _typed(_plain(value))), tuple(map(self.of, value)))
        if is_dataclass(value):
            made = kind(**{name: self.of(getattr(value, name)) for name in _names(kind)})
            return self._known.setdefault((kind, _typed(_plain(value))), made)
        return value


def _typed(value: Any) -> Any:
    """Values with their types: True is not 1 here."""
    return tuple(map(_typed, value)) if type(value) is tuple else (type(value), value)


class _Mixed:
    """Values between two, `part` of `whole` of the way."""

    def __init__(self, part: int, whole: int) -> None:
        self._part, self._whole = part, whole
        self._known: dict[tuple[int, int], Any] = {}

    def of(self, one: Any, other: Any) -> Any:
        """Return the value between two.

        Raises:
            _OffLine: they differ in more than whole numbers, or none lies there.
        """
        if one is other:
            return one
        kind = type(one)
        if kind is not type(other):
            raise _OffLine
        if kind is int:
            return self.number(one, other)
        if kind is tuple:
            if len(one) != len(other):
                raise _OffLine
            return tuple(map(self.of, one, other))
        if kind is KvCache:
            return self._cache(one, other)
        if is_dataclass(kind):
            key = (id(one), id(other))
            if key not in self._known:
                self._known[key] = kind(**{n: self.of(getattr(one, n), getattr(other, n)) for n in _names(kind)})
            return self._known[key]
        if one != other:
            raise _OffLine
        return one

    def number(self, one: int, other: int) -> int:
        quotient, rest = divmod((other - one) * self._part, self._whole)
        if rest:
            raise _OffLine
        return one + quotient

    def _cache(self, one: KvCache, other: KvCache) -> KvCache:
        """A cache whose tensors grow by each token alike, or not at all."""
        tokens = self.number(one.tokens, other.tokens)
        if len(one.parts) != len(other.parts):
            raise _OffLine
        parts = []
        for mine, theirs in zip(one.parts, other.parts, strict=True):
            used = self.number(mine.used, theirs.used)
            grows = all(_grows(part, cache.tokens) for part, cache in ((mine, one), (theirs, other)))
            if not grows and not mine.per_token == theirs.per_token == 0:
                raise _OffLine
            sizes = {n: self.of(getattr(mine, n), getattr(theirs, n)) for n in _names(CachePart) if n != "per_token"}
            parts.append(CachePart(**sizes, per_token=1 / tokens * used if grows else 0))
        return KvCache(batch=self.number(one.batch, other.batch), tokens=tokens, parts=tuple(parts))


def _grows(part: CachePart, tokens: int) -> bool:
    return part.per_token == 1 / tokens * part.used


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind) if part.init)


class _Peaks:
    """The memory at the peak, from blocks that live equally long and differ in size."""

    def __init__(self, ones: Sequence[MemoryBlock], others: Sequence[MemoryBlock]) -> None:
        lives = [[(block.birth, block.death, block.cause) for block in blocks] for blocks in (ones, others)]
        if lives[0] != lives[1]:
            raise _OffLine
        self._sizes = list(zip((b.size for b in ones), (b.size for b in others), strict=True))
        self._lives = lives[0]
        moments = [(birth, n, 1) for n, (birth, _, _) in enumerate(self._lives) if birth is not None]
        moments += [(death, n, -1) for n, (_, death, _) in enumerate(self._lives) if death is not None]
        self._moments = sorted(moments)

    def at(self, part: int, whole: int, cache: KvCache | None) -> Memory:
        """Return what is alive at the peak, by cause; of a cache what it holds."""
        mixed = _Mixed(part, whole)
        known = {pair: allocated(mixed.number(*pair)) for pair in set(self._sizes)}
        sizes = [known[pair] for pair in self._sizes]
        held = highest = when = 0
        for moment, n, sign in self._moments:
            held += sign * sizes[n]
            if held > highest:
                highest, when = held, moment
        causes = dict.fromkeys(MEMORY_CAUSES, 0)
        for size, (birth, death, cause) in zip(sizes, self._lives, strict=True):
            if birth is not None and birth <= when and (death is None or death > when):
                causes[cause] += size
        return with_cache(Memory(peak=highest, **causes), cache)


def _plain(value: Any) -> Any:
    """A value as tuples, with all that its types leave out of comparisons."""
    if type(value) is tuple:
        return tuple(map(_plain, value))
    if is_dataclass(type(value)):
        kind: Any = type(value)
        names = (name for name in _names(kind) if not (kind is Trace and name in _APART[1:]))
        return (kind, *(_plain(getattr(value, name)) for name in names))
    return value
