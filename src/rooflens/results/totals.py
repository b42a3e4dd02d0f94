"""Totals over records: the views that tables, figures and JSON show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from rooflens.records import Bound, Device, Phase, Record, Work
from rooflens.roofline import bound, serial_bound

Pieces = Literal["operations", "kernels"]

UNATTRIBUTED = "(unattributed)"
"""The path of time whose module is not known: no module can be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of a case was counted.

    Attributes:
        pieces: what a case was counted by: operations, or kernels with hardware counters.
        operations: pieces that do work; free ones (views, shape queries) are not among them.
        counted: those with a formula, or all of whose counters were read.
        uncounted: names of the others.
        bytes_share: share of the DRAM bytes that belongs to counted operations, None where those of one are unknown.
        time_share: share of the time seen piece by piece that belongs to an operation of a module, None where none was.
    """

    operations: int
    counted: int
    uncounted: tuple[str, ...]
    bytes_share: float | None
    time_share: float | None = None
    pieces: Pieces = "operations"


class Total:
    """The sum of some records of one case and one source, on the case's device if it names one.

    Work is summed over calls. The bound is the sum of the operations' bounds; `whole_bound` is the bound of the summed
    work, smaller or equal, shown only as "whole-model roofline".
    """

    def __init__(self, records: Iterable[Record], device: Device | None) -> None:
        self.records = tuple(records)
        self.device = device

    @cached_property
    def work(self) -> Work | None:
        """Algorithmic work without recomputation; None where no record has any."""
        return Work.sum(_times(r.work, r.calls) for r in self.records if r.work is not None and not r.recomputed)

    @cached_property
    def recomputed_work(self) -> Work | None:
        return Work.sum(_times(r.work, r.calls) for r in self.records if r.work is not None and r.recomputed)

    @property
    def matmul_flops(self) -> float | None:
        """FLOP of products, convolutions, attention and recurrent gates."""
        return None if self.work is None else self.work.matmul_flops

    @property
    def recomputed_flops(self) -> float:
        """Matrix FLOP that repeat forward work during backward."""
        return 0 if self.recomputed_work is None else self.recomputed_work.matmul_flops

    @property
    def flops(self) -> float | None:
        """All FLOP, element-wise and special functions included."""
        return None if self.work is None else self.work.total_flops

    @property
    def macs(self) -> float | None:
        """Multiply-adds of the matrix work: half of its FLOP."""
        return None if self.matmul_flops is None else self.matmul_flops / 2

    @cached_property
    def bytes(self) -> dict[str, float]:
        """Bytes per level, recomputation included: it is real traffic."""
        parts = [work for work in (self.work, self.recomputed_work) if work is not None]
        total = Work.sum(parts)
        return {} if total is None else dict(total.bytes)

    @property
    def intensity(self) -> float | None:
        """FLOP per DRAM byte, recomputation included in both."""
        nbytes = self.bytes.get("dram")
        flops = sum(w.total_flops for w in (self.work, self.recomputed_work) if w is not None)
        return flops / nbytes if nbytes and flops else None

    @cached_property
    def bound(self) -> Bound | None:
        """The sum of the operations' bounds on the case's device; None without a device or without work."""
        if self.device is None or all(record.needed is None for record in self.records):
            return None
        cache: dict[int, Bound] = {}
        needed = ((record.needed, record.calls) for record in self.records)
        return serial_bound(_of_calls(work, calls, self.device, cache) for work, calls in needed if work is not None)

    @cached_property
    def whole_bound(self) -> Bound | None:
        """The bound of the summed work: what a roofline of the whole model as one point says.

        None where some record lacks the bytes of a level that others have: nothing is known of their sum there.
        """
        if self.device is None:
            return None
        parts = [_times(r.needed, r.calls) for r in self.records if r.needed is not None]
        needed = Work.sum(parts)
        if needed is None or any(self.device.ceiling(level) for level in _levels(parts) - set(needed.bytes)):
            return None
        return bound(needed, self.device)

    @property
    def seconds(self) -> float | None:
        """Seconds of the bound."""
        return None if self.bound is None else self.bound.seconds

    @property
    def bound_by(self) -> str | None:
        """The unit or level that holds the largest share of the bound."""
        return None if self.bound is None else self.bound.bound_by

    @property
    def measured_seconds(self) -> float | None:
        """The sum of the median times of the records; None where one has no time.

        Records of a whole model that only tell its memory or a note are no part of the sum.
        """
        times = [r.seconds for r in self.records if r.timing is not None or r.scope != "model"]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) if known and len(known) == len(times) else None

    # A prediction needs an efficiency model; as long as there is none the expected time is unknown, never the bound.
    predicted_seconds: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None

    @property
    def missing(self) -> frozenset[str]:
        """Operations whose FLOP are unknown: with any, FLOP and bound are lower bounds."""
        return frozenset() if self.work is None else self.work.missing

    @property
    def coverage(self) -> Coverage:
        """Operations counted, and the share of the bytes that they hold."""
        seen = [(r, r.work) for r in self.records if r.work is not None]
        counted = [(r, w) for r, w in seen if not w.missing]
        sized = all("dram" in w.bytes for _, w in seen)
        known = sum(w.bytes.get("dram", 0) * r.calls for r, w in seen) if sized else 0
        return Coverage(
            operations=sum(r.calls for r, _ in seen),
            counted=sum(r.calls for r, _ in counted),
            uncounted=tuple(sorted({name for _, w in seen for name in w.missing})),
            bytes_share=sum(w.bytes.get("dram", 0) * r.calls for r, w in counted) / known if known else None,
            time_share=self._time_share(),
            pieces=self.pieces,
        )

    @property
    def pieces(self) -> Pieces:
        """What the records count by."""
        return "kernels" if any(r.scope == "kernel" and r.work is not None for r in self.records) else "operations"

    def _time_share(self) -> float | None:
        timed = ((r, r.seconds) for r in self.records if r.scope in ("op", "kernel"))
        pieces = [(r, seconds) for r, seconds in timed if seconds is not None]
        seen = sum(seconds for _, seconds in pieces)
        attributed = sum(
            seconds for r, seconds in pieces if (r.scope == "op" or r.operation) and r.path != UNATTRIBUTED
        )
        return attributed / seen if seen else None


def _levels(parts: Iterable[Work]) -> set[str]:
    """The levels at which any of the works has bytes."""
    return {level for part in parts for level in part.bytes}


def _times(work: Work, calls: int) -> Work:
    return work if calls == 1 else work * calls


def _of_calls(work: Work, calls: int, device: Device, cache: dict[int, Bound]) -> Bound:
    """The bound of several calls of the same work; work shared between records is bounded once."""
    one = cache.get(id(work))
    if one is None:
        one = cache[id(work)] = bound(work, device)
    return one if calls == 1 else replace(one, seconds=one.seconds * calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some records of one case and source that belong together.

    Attributes:
        key: module path, family, operation name or phase, by what was asked for.
        kind: family of the records if they share one, else "".
        phase: phase of the records if they share one.
        total: their sum.
    """

    key: str
    kind: str
    phase: Phase | None
    total: Total
