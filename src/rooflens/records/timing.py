"""Timing: every sample of a duration, and their statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

from rooflens.errors import InvalidValue

TimingOrigin = Literal["cuda-events", "monotonic", "profiler", "ncu"]
Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
Z_99 = 2.5758293035489004
"""99.5 % quantile of the normal distribution."""
TREND_POINTS = 100


LONGEST = 1e5
"""Seconds that no kernel takes: more than a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations of the same thing, in seconds, in the order in which they were taken.

    Attributes:
        samples: every steady sample; none is thrown away.
        origin: the clock.
        cold: seconds of the first call, kept apart: it includes loading, compilation and algorithm choice.
        compiling: seconds of the first call that went into torch.compile, None where nothing was compiled.
        warmup: seconds of the calls between the first one and the first sample.
    """

    samples: tuple[float, ...]
    origin: TimingOrigin
    cold: float | None = None
    compiling: float | None = None
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
        low, _, high = quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / self.median

    @property
    def drift(self) -> float | None:
        """Relative change from the first third of the samples to the last; 0 without a trend, None below nine samples.

        There is a trend if the Mann-Kendall test says so at the 1 % level.
        """
        n = len(self.samples)
        if n < 9 or self.median == 0:
            return None
        if abs(trend(self.samples)) < Z_99:
            return 0.0
        third = n // 3
        return median(self.samples[-third:]) / median(self.samples[:third]) - 1


def in_sequence(parts: Sequence[Timing]) -> Timing:
    """Phases that follow each other, as one: each sample is the sum of theirs; InvalidValue if some have fewer."""
    if len({len(part.samples) for part in parts}) != 1:
        raise InvalidValue(f"cannot join timings of {', '.join(str(len(part.samples)) for part in parts)} samples")
    colds = [part.cold for part in parts if part.cold is not None]
    return Timing(
        samples=tuple(map(math.fsum, zip(*(part.samples for part in parts), strict=True))),
        origin=parts[0].origin,
        cold=math.fsum(colds) if len(colds) == len(parts) else None,
        compiling=next((part.compiling for part in parts if part.compiling is not None), None),
    )


def trend(values: Sequence[float]) -> float:
    """The Mann-Kendall statistic of a series: standard normal where there is no trend, positive where it rises.

    Kendall, Rank Correlation Methods, chapter 5: z = (S -+ 1) / sqrt(n (n - 1) (2 n + 5) / 18) for S pairs that rise
    less pairs that fall. More than `TREND_POINTS` values are first thinned to medians of consecutive blocks.
    """
    block = -(-len(values) // TREND_POINTS)
    points = [median(values[i : i + block]) for i in range(0, len(values), block)] if block > 1 else list(values)
    n = len(points)
    if n < 2:
        return 0.0
    score = sum((later > earlier) - (later < earlier) for i, earlier in enumerate(points) for later in points[i + 1 :])
    toward_zero = (score > 0) - (score < 0)
    return (score - toward_zero) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
