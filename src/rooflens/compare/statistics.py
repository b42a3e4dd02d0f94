"""How sure a ratio, a correlation or an exponent is: numbers in, numbers out, the statistics themselves scipy's.

Everything is at the 95 % level. Resampling starts from a fixed seed, so that the same numbers give the same interval.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median
from typing import Literal

from rooflens.compare.resampling import (
    LEVEL,
    Interval,
    correlation_interval,
    generator,
    ratio_interval,
    ratio_of_geometric_means,
    ratio_of_medians,
)

Method = Literal["pearson", "spearman", "kendall"]
METHODS: tuple[Method, ...] = ("pearson", "spearman", "kendall")

FEWEST = 6
"""Values from which on a median has a 95 % interval: below, not even the extremes hold it that often."""
FEWEST_POINTS = 5
"""Points from which on a correlation has an interval: fewer give mostly resamples without any spread."""
_LARGEST = math.log(sys.float_info.max)
HANGING = 1.2815515655446004
"""Neighbours hang together if their rank correlation times sqrt(n) exceeds this 90 % quantile of the normal curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChange:
    """What came after, over what was before.

    Attributes:
        ratio: of the typical times (:func:`typical`); None where one is zero.
        interval: 95 % interval of the ratio; None where there are too few values.
        p: two-sided p-value of "nothing changed"; None likewise.
        unit: what varies by chance here: samples of one run each, or whole runs.
        values: how many of these units each side has; none where it was timed in pieces.
    """

    ratio: float | None
    interval: Interval | None = None
    p: float | None = None
    unit: Literal["samples", "runs"] = "samples"
    values: tuple[int, int] = (1, 1)

    def significant(self, p: float | None = None) -> bool | None:
        """Whether test and interval both say that something changed; None where nothing can be said.

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
    """A correlation coefficient: its value, 95 % bootstrap interval and two-sided p-value of "unrelated"."""

    value: float
    interval: Interval | None
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """``y = factor * x ** exponent``, by least squares on logarithms.

    Attributes:
        interval: 95 % interval of the exponent; None for two points.
        r_squared: share of the variance of log y that the line explains.
        points: how many there are.
    """

    exponent: float
    factor: float
    interval: Interval | None
    r_squared: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of some estimates against what was observed.

    Attributes:
        count: how many.
        mape: mean of the absolute errors.
        median: median of the absolute errors.
        p90: 90 % quantile of the absolute errors.
        bias: mean of the signed errors: negative where estimates are too small.
    """

    count: int
    mape: float
    median: float
    p90: float
    bias: float


def change(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> RatioChange:
    """The ratio of two times, each observed in one or several runs of one or many samples.

    Between one run and one run, samples vary: a Mann-Whitney test, and a bootstrap interval of the ratio of medians,
    both over samples that are made independent first (:func:`independent`). What changes from run to run is invisible
    then. Where a side has several runs, the medians of runs vary: the same over these medians from six runs a side on,
    and below a t-test on their logarithms, with its interval.

    Args:
        before: the samples of each run, in the order in which they were taken; after: likewise.
    """
    start, end = typical(before), typical(after)
    ratio = end / start if start > 0 else None
    if len(before) == len(after) == 1:
        return _over_samples(independent(before[0]), independent(after[0]), ratio)
    one, other = ([median(run) for run in runs] for runs in (before, after))
    return _over_runs(one, other, ratio)


def typical(runs: Sequence[Sequence[float]]) -> float:
    """One number for a time that was observed in some runs: the geometric mean of the medians of the runs."""
    medians = [median(run) for run in runs]
    if len(medians) == 1 or min(medians) <= 0:
        return min(medians)
    return geometric_mean(medians)


def independent(samples: Sequence[float]) -> list[float]:
    """Medians of consecutive blocks of samples, the blocks doubled as long as neighbours hang together.

    A clock that wanders makes neighbouring samples alike, and a test that takes them for independent finds differences
    between runs of the same thing. Samples that do not hang together are given back as they are.
    """
    return _blocks(samples, _block_length(samples))


def _block_length(samples: Sequence[float]) -> int:
    """How many neighbours make a block that does not hang together with the next one."""
    length, blocks = 1, list(samples)
    while len(blocks) >= FEWEST and _hang_together(blocks):
        length *= 2
        blocks = _blocks(samples, length)
    return length


def _blocks(samples: Sequence[float], length: int) -> list[float]:
    """Medians of whole blocks; what is left over is left out in front, where a run is least settled."""
    return [median(samples[i : i + length]) for i in range(len(samples) % length, len(samples), length)]


def rank_test(one: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided p-value of the Mann-Whitney test; by permutations where values are few and tied."""
    from scipy.stats import PermutationMethod, mannwhitneyu

    values = [*one, *other]
    if min(values) == max(values):
        return 1.0
    few_and_tied = min(len(one), len(other)) <= 8 and len(set(values)) < len(values)
    method = PermutationMethod(n_resamples=9999, rng=generator()) if few_and_tied else "auto"
    return float(mannwhitneyu(one, other, method=method).pvalue)


def adjusted(p_values: Sequence[float]) -> list[float]:
    """P-values of several tests made at once, by Benjamini and Hochberg.

    Where nothing changed at all, at most `LEVEL` of such sets hold a single value below `LEVEL`.
    """
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values)] if p_values else []


def correlate(x: Sequence[float], y: Sequence[float], method: Method) -> Coefficient | None:
    """A correlation coefficient with its uncertainty; None below three points, or where one side is constant."""
    from scipy import stats

    if len(x) < 3 or min(x) == max(x) or min(y) == max(y):
        return None
    test = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}[method]
    found = test(x, y)
    interval = correlation_interval(x, y, method) if len(x) >= FEWEST_POINTS else None
    return Coefficient(value=float(found.statistic), interval=interval, p=float(found.pvalue))


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """The exponent with which y grows with x; None below two points, for a constant x, or where a value is zero."""
    from scipy.stats import linregress, t

    if len(x) < 2 or min(x) == max(x) or min(*x, *y) <= 0:
        return None
    line = linregress([math.log(value) for value in x], [math.log(value) for value in y])
    half = float(t.ppf(1 - LEVEL / 2, len(x) - 2) * line.stderr) if len(x) > 2 else None
    slope = float(line.slope)
    return PowerLaw(
        exponent=slope,
        factor=math.exp(line.intercept),
        interval=None if half is None else (slope - half, slope + half),
        r_squared=float(line.rvalue) ** 2,
        points=len(x),
    )


def errors_of(errors: Sequence[float]) -> Errors | None:
    """What some relative errors amount to; None without any."""
    import numpy as np

    if not errors:
        return None
    sizes = [abs(error) for error in errors]
    return Errors(
        count=len(sizes),
        mape=fmean(sizes),
        median=median(sizes),
        p90=float(np.quantile(sizes, 0.9)),
        bias=fmean(errors),
    )


def quotient_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval | None:
    """95 % bootstrap interval of the ratio of medians of two parts of the same steps, sample by sample."""
    length = max(_block_length(numerators), _block_length(denominators))
    parts, wholes = _blocks(numerators, length), _blocks(denominators, length)
    if len(parts) < FEWEST or min(wholes) <= 0:
        return None
    return ratio_interval(wholes, parts, ratio_of_medians, paired=True)


def _over_samples(one: list[float], other: list[float], ratio: float | None) -> RatioChange:
    sizes = (len(one), len(other))
    if ratio is None or min(sizes) < FEWEST or min(one) <= 0:
        return RatioChange(ratio=ratio, values=sizes)
    interval = ratio_interval(one, other, ratio_of_medians)
    return RatioChange(ratio=ratio, interval=interval, p=rank_test(one, other), values=sizes)


def _over_runs(one: list[float], other: list[float], ratio: float | None) -> RatioChange:
    sizes = (len(one), len(other))
    p: float | None
    interval: Interval | None
    if ratio is None or min(*one, *other) <= 0:
        p, interval = None, None
    elif min(sizes) >= FEWEST:
        p, interval = rank_test(one, other), ratio_interval(one, other, ratio_of_geometric_means)
    else:
        p, interval = _t_test(one, other)
    return RatioChange(ratio=ratio, interval=interval, p=p, unit="runs", values=sizes)


def _hang_together(values: Sequence[float]) -> bool:
    """Whether the ranks of neighbours are correlated by more than chance."""
    from scipy.stats import rankdata

    ranks = rankdata(values) - (len(values) + 1) / 2
    spread = float(ranks @ ranks)
    return spread > 0 and float(ranks[1:] @ ranks[:-1]) / spread * math.sqrt(len(values)) > HANGING


def _t_test(before: Sequence[float], after: Sequence[float]) -> tuple[float | None, Interval | None]:
    """Student's test on logarithms, with one variance for both sides: two runs a side are too few for two."""
    from scipy.stats import ttest_ind

    if len(before) + len(after) < 3:
        return None, None
    one, other = ([math.log(value) for value in values] for values in (before, after))
    if len(set(one)) == len(set(other)) == 1:  # runs that agree to the last digit leave nothing to test with
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a side whose runs agree to the last digit has no variance
        test = ttest_ind(other, one)
        low, high = (float(end) for end in test.confidence_interval(1 - LEVEL))
    return float(test.pvalue), (_exp(low), _exp(high))


def _exp(logarithm: float) -> float:
    """The number, which two runs that are far apart may leave without an end."""
    return math.exp(logarithm) if logarithm < _LARGEST else math.inf
