"""Clocks that time the phases of a run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter  # itself, since code that is timed may set another clock in `time`
from typing import Any, Protocol

from rooflens.records.timing import TimingOrigin


class Clock(Protocol):
    """Times consecutive phases: `start`, then `mark` at the end of each phase, then `seconds`."""

    name: TimingOrigin

    def start(self) -> None:
        """Wait until earlier work is done, and begin."""
        ...

    def mark(self) -> None:
        """End a phase."""
        ...

    def seconds(self) -> list[float]:
        """Wait until all work is done; the duration of each phase."""
        ...


class MonotonicClock:
    """Wall time, for work that has ended when its call returns: the CPU.

    Args:
        flush: empties caches before each start, in time that does not count.
    """

    name: TimingOrigin = "monotonic"

    def __init__(self, flush: Callable[[], object] | None = None) -> None:
        self._flush = flush
        self._marks: list[float] = []

    def start(self) -> None:
        if self._flush is not None:
            self._flush()
        self._marks = [perf_counter()]

    def mark(self) -> None:
        self._marks.append(perf_counter())

    def seconds(self) -> list[float]:
        return [after - before for before, after in pairwise(self._marks)]


class CudaClock:
    """Time on the device between events in the current stream.

    An idle device waits for the host before each launch, so the time of short work includes host time.

    Args:
        flush: enqueues work that empties caches before each start, in time that does not count.
    """

    name: TimingOrigin = "cuda-events"

    def __init__(self, flush: Callable[[], object] | None = None) -> None:
        import torch  # here, since a policy needs no torch

        self._cuda = torch.cuda
        self._flush = flush
        self._events: list[Any] = []

    def start(self) -> None:
        self._cuda.synchronize()
        if self._flush is not None:
            self._flush()
        self._events = []
        self.mark()

    def mark(self) -> None:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def seconds(self) -> list[float]:
        self._events[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(self._events)]  # from milliseconds
