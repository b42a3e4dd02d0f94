"""The steps that somebody marked in a recording."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from rooflens.sources.profile.events import HostEvent

_PROFILER = re.compile(r"ProfilerStep\W*\d+")
"""How torch's profiler calls a step of its schedule."""
_BY_HAND = re.compile(r"(?:train(?:ing)?[\s_-]*)?(?:step|iter(?:ation)?|batch)[\s_#:.-]*\d+", re.IGNORECASE)


def is_step(name: str) -> bool:
    """True if a range of this name marks a step.

    >>> is_step("ProfilerStep#12"), is_step("iteration 3"), is_step("layer3")
    (True, True, False)
    """
    return by_profiler(name) or _BY_HAND.fullmatch(name) is not None


def by_profiler(name: str) -> bool:
    """True if torch's profiler marks a step so."""
    return _PROFILER.fullmatch(name) is not None


class MarkedSteps:
    """Steps in the order of time; what lies between them belongs to none. Without a mark, all is one step."""

    def __init__(self, events: Iterable[HostEvent]) -> None:
        """Take the ranges of torch's profiler; where it wrote none, at least two that a program numbered."""
        marks = sorted((event for event in events if is_step(event.name)), key=lambda mark: (mark.start, -mark.seconds))
        scheduled = [mark for mark in marks if by_profiler(mark.name)]
        self._starts: list[float] = []
        self._ends: list[float] = []
        for mark in scheduled or marks:
            if not self._ends or mark.start >= self._ends[-1]:  # else it lies in another one, or repeats it
                self._starts.append(mark.start)
                self._ends.append(mark.end)
        if not scheduled and len(self._starts) == 1:
            self._starts, self._ends = [], []

    @property
    def seconds(self) -> tuple[float, ...]:
        """How long each marked step took; () without a mark."""
        return tuple(end - start for start, end in zip(self._starts, self._ends, strict=True))

    def at(self, time: float) -> int | None:
        """Return the number of the step at a time of the host, None outside of all."""
        n = bisect_right(self._starts, time) - 1
        return 0 if not self._starts else n if n >= 0 and time < self._ends[n] else None
