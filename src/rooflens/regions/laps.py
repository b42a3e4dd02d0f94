"""Times a loop with marks that wait for nothing, and makes records of them afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import fsum
from typing import Any

import torch

from rooflens.records import Case, Conditions, Memory, Record, Timing
from rooflens.timing import Clock, CudaClock, MonotonicClock
from rooflens.units import show

ITERATION, LOADING = "iteration", "data loading"
"""Names of what a loop over a loader has besides its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One pass through a region, as numbers of marks on a tape.

    Attributes:
        waits: where waiting for data began; None without a loader.
        batch: samples that the loader gave; None if unknown.
    """

    begins: int
    ends: int
    waits: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds from each mark to the next on one clock."""

    clock: Clock
    between: tuple[float, ...]

    def span(self, start: int, end: int) -> float:
        return fsum(self.between[start:end])

    def timing(self, spans: Iterable[tuple[int, int]]) -> Timing:
        return Timing(samples=tuple(self.span(*span) for span in spans), origin=self.clock.name)


class Tape:
    """Marks on the host's clock and, on CUDA, on the device's clock too.

    A mark does not wait: the host runs as far ahead of the device as it would without marks. Only `read` waits for the
    device, and `start`, so that no earlier work is timed.
    """

    def __init__(self, host: Clock, device: Clock | None = None) -> None:
        self._clocks = [host] if device is None else [device, host]
        self._marks = 0

    @classmethod
    def on(cls, where: str) -> Tape:
        """The tape of a device, ``cpu`` or ``cuda``."""
        return cls(MonotonicClock(), CudaClock() if where == "cuda" else None)

    def start(self) -> int:
        """Make the first mark."""
        for clock in self._clocks:
            clock.start()
        return self._marks

    def mark(self) -> int:
        """Make a mark; its number."""
        for clock in self._clocks:
            clock.mark()
        self._marks += 1
        return self._marks

    def read(self) -> tuple[Seconds, Seconds]:
        """Seconds between the marks on the host's clock and on the device's; on the CPU these are the same."""
        read = [Seconds(clock, tuple(clock.seconds())) for clock in self._clocks]
        return read[-1], read[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a loop goes, over all timed iterations.

    Totals and not medians: a loader with workers hands out its batches in bursts.

    Attributes:
        iterations: number of timed iterations.
        seconds: from the first to the last, without the time between loops.
        loading: seconds in which the host waited for the loader.
        idle: seconds that the device spent between steps; None on a processor.
        samples_per_second: with data loading; None if the number of samples is unknown.
    """

    iterations: int
    seconds: float
    loading: float
    idle: float | None
    samples_per_second: float | None

    @property
    def loading_share(self) -> float:
        """Share of the wall time that the host waits for data."""
        return self.loading / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        rate = "" if self.samples_per_second is None else f"; {show(self.samples_per_second)} samples/s with it"
        idle = (
            "" if not self.idle else f"; {100 * self.idle / self.seconds:.0f} % of the device's time lies between steps"
        )
        share = f"{100 * self.loading_share:.1f} % of {show(self.seconds, 's')}"
        return f"data loading: {share} in {self.iterations} iterations{rate}{idle}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTimes:
    """The timed iterations of a loop.

    Attributes:
        name: of the region.
        case: of the step.
        laps: the iterations, all of one batch.
        inner: passes through the regions inside, by path.
        host: the wall clock.
        device: the device's clock; on the CPU the same.
    """

    name: str
    case: Case
    laps: Sequence[Lap]
    inner: Mapping[str, Sequence[Lap]] = field(default_factory=dict)
    host: Seconds
    device: Seconds
    memory: Memory | None = None
    conditions: Conditions | None = None
    notes: tuple[str, ...] = ()

    @property
    def pace(self) -> Pace | None:
        """How fast the loop goes; None without a loader."""
        watched = [(lap.waits, lap) for lap in self.laps if lap.waits is not None]
        if not watched:
            return None
        wall = fsum(self.host.span(waits, lap.ends) for waits, lap in watched)
        idle = None
        if self.device.clock is not self.host.clock:
            # The host may have run ahead: the loop is over when the device is.
            wall = max(wall, fsum(self.device.span(waits, lap.ends) for waits, lap in watched))
            idle = fsum(self.device.span(waits, lap.begins) for waits, lap in watched)
        batch = self.case.batch
        return Pace(
            iterations=len(watched),
            seconds=wall,
            loading=fsum(self.host.span(waits, lap.begins) for waits, lap in watched),
            idle=idle,
            samples_per_second=len(watched) * batch / wall if batch is not None and wall else None,
        )


def records(times: LoopTimes) -> Iterator[Record]:
    """Records of the step, of each region inside it, and of the iteration and data loading of a watched loader.

    Each is a case of its own, with an option ``region``: they time the same seconds, and a total over one case must not
    add a whole and its parts. The step's case has no such option, so that it joins estimates and measurements of the
    same step. The case of data loading has no batch: samples per second of waiting would not be a throughput.
    """
    pace = times.pace
    yield Record(
        case=times.case,
        source="measure",
        scope="model",
        name=times.name,
        timing=times.device.timing((lap.begins, lap.ends) for lap in times.laps),
        memory=times.memory,
        conditions=times.conditions,
        notes=(*times.notes, *([str(pace)] if pace is not None else [])),
    )
    for name, laps in times.inner.items():
        yield _inside(times.case, name, name, times.device.timing((lap.begins, lap.ends) for lap in laps))
    if pace is None:
        return
    watched = [(lap.waits, lap) for lap in times.laps if lap.waits is not None]
    wall = times.host.timing((waits, lap.ends) for waits, lap in watched)
    yield _inside(times.case, ITERATION, ITERATION, wall)
    of = "" if times.case.batch is None else f", batch {times.case.batch}"
    waiting = times.host.timing((waits, lap.begins) for waits, lap in watched)
    yield _inside(replace(times.case, batch=None), f"{LOADING}{of}", LOADING, waiting)


def _inside(case: Case, option: str, name: str, timing: Timing) -> Record:
    return Record(
        case=replace(case, options=(*case.options, ("region", option))),
        source="measure",
        scope="model",
        name=name,
        timing=timing,
    )


def where_is(model: Any) -> str:
    """The device type of a model's parameters; without a model, the one that torch uses already."""
    tensor = None if model is None else next(chain(model.parameters(), model.buffers()), None)
    if tensor is not None:
        return str(tensor.device.type)
    return "cuda" if torch.cuda.is_initialized() else "cpu"


def samples_in(item: Any) -> int | None:
    """The batch that a loader gave: the length of the first tensor or array in it; None if there is none."""
    shape = getattr(item, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) and shape[0] else None
    inside = item.values() if isinstance(item, Mapping) else item if isinstance(item, list | tuple) else ()
    return next((n for n in map(samples_in, inside) if n is not None), None)
