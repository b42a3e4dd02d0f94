"""Totals over records: the views that tables, figures and JSON show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

from rooflens.notebook import Displayed
from rooflens.predict import Conduct, Prediction, card_of, predicted
from rooflens.records import Bound, Cause, Device, Phase, Record, Work
from rooflens.results.work_sum import WorkSum
from rooflens.roofline import Bounds, serial_bound
from rooflens.units import show

Pieces = Literal["operations", "kernels"]
Key = TypeVar("Key")
Item = TypeVar("Item")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """What code does beyond what every implementation needs, for one cause.

    Attributes:
        bytes: DRAM bytes; flops: of all units; either may be below zero, where more of one saves more of the other.
        seconds: the difference of the two bounds; None without a device.
    """

    bytes: float
    flops: float
    seconds: float | None

    def __add__(self, other: Surplus) -> Surplus:
        seconds = None if self.seconds is None or other.seconds is None else self.seconds + other.seconds
        return Surplus(bytes=self.bytes + other.bytes, flops=self.flops + other.flops, seconds=seconds)


class Total(Displayed):
    """The sum of some records of one case and one source, on a device where one is given.

    Work is summed over calls. The bound is the sum of the operations' bounds. Each number is computed once.

    Attributes:
        as_written: all that the code does, with what it computes again; `bytes` and `intensity` are those of it.
        floor: what every implementation needs: the bound counts it, and pictures have their marks there.
        work: `as_written` without recomputation; None where no record has any. `matmul_flops`, `flops` (element-wise
            and special functions, too) and `macs` (half of `matmul_flops`) are those of it.
        recomputed_work: work that repeats forward work during backward; `recomputed_flops`: its matrix FLOP.
        missing: operations whose FLOP are unknown: with any, FLOP and bound are lower bounds.
        surplus: what the code as written does beyond the bound, by cause; empty where it does no more.
    """

    def __init__(
        self,
        records: Iterable[Record],
        device: Device | None,
        bounds: Bounds | None = None,
        conduct: Conduct | None = None,
        phase: Phase | None = None,
    ) -> None:
        """Sum some records; totals of the same records share the bounds that are known already.

        Args:
            conduct: how the step runs, for its expected time; default: pieces on the device.
            phase: the only one of the records, where they are one.
        """
        self.records = tuple(records)
        self._conduct, self._phase = conduct, phase
        self.device = device
        self._bounds = Bounds() if bounds is None else bounds
        worked = [(r, r.work) for r in self.records if r.work is not None]
        whole = not worked and any(r.source == "estimate" and r.scope == "model" for r in self.records)
        nothing = Work(bytes={"dram": 0}) if whole else None  # estimated as a whole, and no operation: a known zero
        self.work = nothing or Work.of_calls((work, r.calls) for r, work in worked if not r.recomputed)
        self.recomputed_work = Work.of_calls((work, r.calls) for r, work in worked if r.recomputed)
        both = [work for work in (self.work, self.recomputed_work) if work is not None]
        self.as_written = WorkSum.of(both[0] + both[1] if len(both) == 2 else next(iter(both), None))
        once = self.as_written if self.recomputed_work is None else WorkSum.of(self.work)
        self.missing = frozenset[str]() if self.work is None else self.work.missing
        self.matmul_flops, self.flops, self.macs = once.matmul_flops, once.flops, once.macs
        self.recomputed_flops = 0 if self.recomputed_work is None else self.recomputed_work.matmul_flops
        self.bytes, self.intensity = self.as_written.bytes, self.as_written.intensity
        self.pieces: Pieces = "kernels" if any(r.scope == "kernel" for r, _ in worked) else "operations"
        self._needed = [(work, r.calls) for r in self.records if (work := r.bound_work) is not None]
        if nothing is not None:
            self._needed.append((nothing, 1))
        self._written = self._needed
        if any(r.floor is not None for r in self.records):
            self._written = [(work, r.calls) for r in self.records if (work := r.written) is not None]

    def __repr__(self) -> str:
        return (
            f"Total({show(self.flops, 'FLOP')}, {show(self.bytes.get('dram'), 'B')}, bound {show(self.seconds, 's')})"
        )

    @cached_property
    def bound(self) -> Bound | None:
        """The sum of the operations' bounds; None without a device or without work."""
        return self._serial(self._needed)

    @cached_property
    def written_bound(self) -> Bound | None:
        """The same of the step as the code is written, which may do more than every implementation needs."""
        return self.bound if self._written is self._needed else self._serial(self._written)

    @cached_property
    def recomputed_seconds(self) -> float | None:
        """The part of the bound that repeats forward work; None without a device, zero where nothing is repeated."""
        repeated = [(work, r.calls) for r in self.records if r.recomputed and (work := r.bound_work) is not None]
        if self.device is None:
            return None
        bound = self._serial(repeated)
        return 0.0 if bound is None else bound.seconds

    @cached_property
    def surplus(self) -> Mapping[Cause, Surplus]:
        """What the code as written does beyond the bound, by cause; the seconds are `written_bound` less `bound`."""
        found: dict[Cause, Surplus] = {}
        for record in self.records:
            if record.floor is not None and record.written is not None:
                cause, one = record.floor.cause, self._surplus(record.written, record.floor.work, record.calls)
                found[cause] = found[cause] + one if cause in found else one
        return found

    def _surplus(self, written: Work, needed: Work, calls: int) -> Surplus:
        seconds = None
        if self.device is not None:
            seconds = self._bounds.of(written, self.device).seconds - self._bounds.of(needed, self.device).seconds
            seconds *= calls
        moved = written.bytes.get("dram", 0) - needed.bytes.get("dram", 0)
        return Surplus(bytes=calls * moved, flops=calls * (written.total_flops - needed.total_flops), seconds=seconds)

    def _serial(self, works: Sequence[tuple[Work, int]]) -> Bound | None:
        if self.device is None or not works:
            return None
        ones = [(self._bounds.of(work, self.device), calls) for work, calls in works]
        return serial_bound(one if calls == 1 else replace(one, seconds=one.seconds * calls) for one, calls in ones)

    @cached_property
    def floor(self) -> WorkSum:
        """What every implementation needs, as the bound counts it and a roofline draws it."""
        return WorkSum.of(Work.of_calls(self._needed))

    @property
    def below_bound(self) -> bool:
        """True if the expected time is below the bound: some operands stay in a cache between operations."""
        expected, bound = self.predicted_seconds, self.seconds
        return expected is not None and bound is not None and expected < bound

    @cached_property
    def whole_bound(self) -> Bound | None:
        """The bound of the summed work, smaller or equal: what a roofline of the whole model as one point says.

        None where some record lacks the bytes of a level that others have: nothing is known of their sum there.
        """
        whole = self.floor.work
        if self.device is None or whole is None:
            return None
        partly_known = {level for work, _ in self._needed for level in work.bytes} - set(whole.bytes)
        return None if any(map(self.device.ceiling, partly_known)) else self._bounds.of(whole, self.device)

    @property
    def seconds(self) -> float | None:
        """Seconds of the bound."""
        return None if self.bound is None else self.bound.seconds

    @property
    def bound_by(self) -> str | None:
        """The unit or level that holds the largest share of the bound."""
        return None if self.bound is None else self.bound.bound_by

    @cached_property
    def measured_seconds(self) -> float | None:
        """The sum of the median times of the records; None where one has no time.

        Records of a whole model that only tell its memory or a note are no part of the sum.
        """
        return sum_of_all(r.seconds for r in self.records if r.timing is not None or r.scope != "model")

    @cached_property
    def prediction(self) -> Prediction | None:
        """The time to expect of the step, a phase of it, or pieces; None where the device or a call is not known."""
        card = None if self.device is None else card_of(self.device)
        return None if card is None else predicted(self.records, card, self._conduct, self._phase)

    @property
    def predicted_seconds(self) -> float | None:
        """The time to expect."""
        return None if self.prediction is None else self.prediction.seconds

    @property
    def predicted_low(self) -> float | None:
        """Nine of ten measured times are above this."""
        return None if self.prediction is None else self.prediction.low

    @property
    def predicted_high(self) -> float | None:
        """Nine of ten measured times are below this."""
        return None if self.prediction is None else self.prediction.high

    @cached_property
    def coverage(self) -> Coverage:
        """Operations counted, and the shares of the bytes and of the time that they hold."""
        worked = [(r, r.work) for r in self.records if r.work is not None]
        counted = [(r, work) for r, work in worked if not work.missing]
        sized = all("dram" in work.bytes for _, work in worked)
        known = sum(work.bytes.get("dram", 0) * r.calls for r, work in worked) if sized else 0
        timed = [(r, r.seconds) for r in self.records if r.scope in ("op", "kernel") and r.timing is not None]
        time = sum(seconds or 0 for _, seconds in timed)
        placed = [s or 0 for r, s in timed if (r.scope == "op" or r.operation) and r.path != UNATTRIBUTED]
        return Coverage(
            operations=sum(r.calls for r, _ in worked),
            counted=sum(r.calls for r, _ in counted),
            uncounted=tuple(sorted({name for _, work in worked for name in work.missing})),
            bytes_share=sum(work.bytes.get("dram", 0) * r.calls for r, work in counted) / known if known else None,
            time_share=sum(placed) / time if time else None,
            pieces=self.pieces,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some records of one case and source that belong together, and their sum.

    Attributes:
        key: module path, family, operation name or phase, by what was asked for.
        kind: family of the records if they share one, else ""; `phase`: likewise, else None.
    """

    key: str
    kind: str
    phase: Phase | None
    total: Total


def sum_of_all(values: Iterable[float | None]) -> float | None:
    """Return the sum; None where a value is not known, or there is none."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if known and len(known) == len(every) else None


def grouped_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return items by their key, keys and items in order of appearance."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
