"""Values of a file that are missing or impossible, and shares that nobody computes here, once for all launches."""

from __future__ import annotations

import re
from collections import Counter

from rooflens.sources.counters.metrics import near
from rooflens.sources.counters.printed_numbers import CounterValue, Deferred

_MOST_NAMES = 5
_OF_PEAK = re.compile(r"(\w+__(?:\w*throughput|warps_active))\.avg\.pct_of_peak_sustained_(?:elapsed|active)")
"""What Nsight Compute calls "speed of light", and occupancy."""


class ValueDoubts:
    """What is doubtful of each metric.

    Attributes:
        unavailable: how often it had no value.
        negative: how often its value was below zero, which is unknown then.
        above: its highest percentage above 100.
        of_peak: least and highest share of a peak, by Nsight Compute's own reckoning.
        rounded: rates that were printed as 0.00.
        disordered: what is wrong with averages that are not between minimum and maximum, in words.
    """

    def __init__(self) -> None:
        self.unavailable: Counter[str] = Counter()
        self.negative: Counter[str] = Counter()
        self.above: dict[str, float] = {}
        self.of_peak: dict[str, tuple[float, float]] = {}
        self.rounded: set[str] = set()
        self.disordered: list[str] = []

    def missing(self, metric: str) -> None:
        """Count a value that ncu could not give."""
        self.unavailable[metric] += 1

    def below_zero(self, metric: str) -> None:
        """Count a value that passes which did not agree leave of a difference."""
        self.missing(metric)
        self.negative[metric] += 1

    def percent(self, metric: str, value: CounterValue | Deferred) -> None:
        """Look at a share of something: more than all of it comes from passes that did not agree."""
        if not isinstance(value, int | float):
            return
        if value > 100:
            self.above[metric] = max(value, self.above.get(metric, 0.0))
        if (peak := _OF_PEAK.fullmatch(metric)) is not None:
            least, most = self.of_peak.get(peak[1], (value, value))
            self.of_peak[peak[1]] = min(least, value), max(most, value)

    def notes(self, cc: str | None) -> list[str]:
        """Return notes for the reader of a table; for names that this chip lacks they suggest others."""
        notes = []
        if self.unavailable:
            listed = ", ".join(f"{name} ({times})" for name, times in self.unavailable.most_common(_MOST_NAMES))
            more = ", ..." if len(self.unavailable) > _MOST_NAMES else ""
            total = sum(self.unavailable.values())
            notes.append(f"{total} values are not available: {listed}{more}; what needs them is unknown and not zero")
        for name in self.unavailable:
            if (instead := near(name, cc)) and len(notes) <= _MOST_NAMES:
                notes.append(f"{name} had no value; a metric of this chip with a similar name: {', '.join(instead)}")
        if self.negative:
            listed = ", ".join(f"{name} ({times})" for name, times in self.negative.most_common(_MOST_NAMES))
            notes.append(
                f"{sum(self.negative.values())} of them are below zero in the file, which no counter can be: {listed};"
                " its parts were counted in passes that did not agree"
            )
        notes += self.disordered[:_MOST_NAMES]
        if self.rounded:
            listed = ", ".join(sorted(self.rounded)[:_MOST_NAMES])
            notes.append(f"printed as 0.00, which is less than a digit can show and not zero, so unknown: {listed}")
        if self.of_peak:
            listed = ", ".join(f"{name} {_range(*its)} %" for name, its in sorted(self.of_peak.items()))
            notes.append(f"Nsight Compute's own shares of a peak: {listed}")
        return notes + [
            f"{name} reaches {value:g} %: its parts were counted in passes that did not agree"
            for name, value in list(self.above.items())[:_MOST_NAMES]
        ]


def _range(least: float, most: float) -> str:
    """Percentages with the digits that ncu prints."""
    return " to ".join(dict.fromkeys(f"{round(its, 2):g}" for its in (least, most)))
