"""How sure a ratio, a correlation or an exponent is: what the statistics give, at the 95 % level, without scipy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median
from typing import Literal

Interval = tuple[float, float]
LEVEL = 0.05
"""What is called significant would appear in at most this share of comparisons of equal things."""
Method = Literal["pearson", "spearman", "kendall"]
METHODS: tuple[Method, ...] = ("pearson", "spearman", "kendall")

FEWEST = 6
"""Values from which on a median has a 95 % interval: below, not even the extremes hold it that often."""
FEWEST_POINTS = 5
"""Points from which on a correlation has an interval: fewer give mostly resamples without any spread."""
FEWEST_ASYMPTOTIC = 10
"""Points from which on scipy's p-value of a correlation is taken; below it is that of all pairings, exactly."""
FEWEST_FITTED = 4
"""Different values from which on a power law is fitted: two more than it has parameters."""


TOO_FEW = f"fewer than {FEWEST} samples that are independent of their neighbours, or too few runs"
IN_PIECES = "timed in pieces, once"
OF_ZERO = "a time of 0 s, which is below what the clock resolves"
"""Why nothing can be said about chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChange:
    """What came after, over what was before.

    Attributes:
        ratio: of the typical times (:func:`typical`); None where one is zero.
        interval: 95 % interval of the ratio; None where there are too few values.
        p: two-sided p-value of "nothing changed"; None likewise.
        unit: what varies by chance here: samples of one run each, or whole runs.
        values: how many of these units each side has; None where it was timed in pieces.
        undecided: why nothing can be said about chance, "" where something can.
    """

    ratio: float | None
    interval: Interval | None = None
    p: float | None = None
    unit: Literal["samples", "runs"] = "samples"
    values: tuple[int, int] | None = (1, 1)
    undecided: str = ""

    def significant(self, p: float | None = None) -> bool | None:
        """True if test and interval both say that something changed; None where nothing can be said.

        Args:
            p: the p-value to go by, where that of this change was adjusted for the company of others.
        """
        p = self.p if p is None else p
        if p is None:
            return None
        outside = self.interval is None or not self.interval[0] <= 1 <= self.interval[1]
        return p <= LEVEL and outside


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A correlation coefficient: its value, 95 % bootstrap interval and two-sided p-value of "unrelated".

    Of few points both are None: there is no interval below `FEWEST_POINTS`, and no p-value where none below `LEVEL` is
    possible.
    """

    value: float
    interval: Interval | None
    p: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """``y = factor * x ** exponent``, by least squares on logarithms.

    Attributes:
        interval: 95 % interval of the exponent.
        r_squared: share of the variance of log y that the line explains.
    """

    exponent: float
    factor: float
    interval: Interval
    r_squared: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of some estimates against what was observed.

    Attributes:
        mape: mean of the absolute errors, `median` and `p90` (90 % quantile) likewise.
        bias: mean of the signed errors: negative where estimates are too small.
    """

    count: int
    mape: float
    median: float
    p90: float
    bias: float


def typical(runs: Sequence[Sequence[float]]) -> float:
    """One number for a time that was observed in some runs: the geometric mean of the medians of the runs."""
    medians = [median(run) for run in runs]
    if len(medians) == 1 or min(medians) <= 0:
        return min(medians)
    return geometric_mean(medians)


def errors_of(errors: Sequence[float]) -> Errors | None:
    """Return what some relative errors amount to; None without any."""
    if not errors:
        return None
    sizes = sorted(abs(error) for error in errors)
    below, weight = divmod(0.9 * (len(sizes) - 1), 1)
    low, high = sizes[int(below)], sizes[min(int(below) + 1, len(sizes) - 1)]
    return Errors(
        count=len(sizes),
        mape=fmean(sizes),
        median=median(sizes),
        # Between two values, as numpy does: from the nearer one.
        p90=low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight),
        bias=fmean(errors),
    )
