"""Timing: every sample of a duration, and what can be said from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rooflens.errors import InvalidValue

Clock = Literal["cuda-events", "monotonic", "profiler", "ncu"]
Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations of the same thing, in seconds, in the order in which they were taken.

    Attributes:
        samples: every steady sample; none is thrown away.
        origin: the clock.
        cold: seconds of the first call, kept apart: it includes loading, compilation and algorithm choice.
        warmup: seconds of the calls between the first one and the first sample.
    """

    samples: tuple[float, ...]
    origin: Clock
    cold: float | None = None
    warmup: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.samples:
            raise InvalidValue("a timing needs at least one sample")
        wrong = [s for s in self.samples if not 0 <= s < math.inf]
        if wrong:
            raise InvalidValue(f"a timing holds a sample that is no duration: {wrong[0]}")

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval of the median by order statistics; None below six samples.

        The ranks are those of the binomial distribution, n/2 -+ 1.96 sqrt(n)/2 (Conover, Practical Nonparametric
        Statistics, chapter 3). With five samples or fewer not even the extremes cover 95 %.
        """
        n = len(self.samples)
        if n < 6:
            return None
        ordered = sorted(self.samples)
        half = Z_95 * math.sqrt(n) / 2
        low = max(0, math.floor(n / 2 - half) - 1)
        high = min(n - 1, math.ceil(n / 2 + half))
        return ordered[low], ordered[high]

    @property
    def noise(self) -> float | None:
        """Interquartile range over the median; None below four samples or for a median of zero."""
        n = len(self.samples)
        if n < 4 or self.median == 0:
            return None
        ordered = sorted(self.samples)
        return (_quantile(ordered, 0.75) - _quantile(ordered, 0.25)) / self.median


def _quantile(ordered: list[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
