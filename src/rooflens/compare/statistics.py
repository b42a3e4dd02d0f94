"""Tests, intervals, correlations and exponents: numbers in, numbers out, the statistics themselves scipy's.

Resampling starts from a fixed seed, so that the same numbers give the same interval. Who needs this module imports it
when it computes something: scipy takes a second to load.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from statistics import median
from typing import Literal

from scipy import stats

from rooflens.compare.resampling import (
    DIGITS,
    correlation_interval,
    generator,
    pairings_p,
    ratio_interval,
    ratio_of_geometric_means,
    ratio_of_medians,
)
from rooflens.compare.uncertainty import (
    FEWEST,
    FEWEST_ASYMPTOTIC,
    FEWEST_FITTED,
    FEWEST_POINTS,
    LEVEL,
    OF_ZERO,
    TOO_FEW,
    Coefficient,
    Interval,
    Method,
    PowerLaw,
    RatioChange,
    typical,
)

_LARGEST = math.log(sys.float_info.max)
HANGING = 1.2815515655446004
"""Neighbours hang together if their rank correlation times sqrt(n) exceeds this 90 % quantile of the normal curve."""


def change(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> RatioChange:
    """Return the ratio of two times, each observed in one or several runs of one or many samples.

    Between one run and one run, samples vary: a Mann-Whitney test, and a bootstrap interval of the ratio of medians,
    both over samples that are made independent first (:func:`independent`). What changes from run to run is invisible
    then. Where a side has several runs, the medians of runs vary: the same over these medians from six runs a side on,
    and below a t-test on their logarithms, with its interval.

    Args:
        before: the samples of each run, in the order in which they were taken; after: likewise.
    """
    start, end = typical(before), typical(after)
    unit: Literal["samples", "runs"] = "samples" if len(before) == len(after) == 1 else "runs"
    if unit == "samples":
        one, other, statistic = independent(before[0]), independent(after[0]), ratio_of_medians
    else:
        one, other, statistic = (
            [median(run) for run in before],
            [median(run) for run in after],
            ratio_of_geometric_means,
        )
    p: float | None = None
    interval: Interval | None = None
    if start > 0 and min(*one, *other) > 0:
        if min(len(one), len(other)) >= FEWEST:
            p, interval = rank_test(one, other), ratio_interval(one, other, statistic)
        elif unit == "runs":
            p, interval = _t_test(one, other)
    ratio = end / start if start > 0 else None
    why = "" if p is not None else OF_ZERO if min(start, *one, *other) <= 0 else TOO_FEW
    return RatioChange(ratio=ratio, interval=interval, p=p, unit=unit, values=(len(one), len(other)), undecided=why)


def independent(samples: Sequence[float]) -> list[float]:
    """Return medians of consecutive blocks of samples, the blocks doubled as long as neighbours hang together.

    A clock that wanders makes neighbouring samples alike, and a test that takes them for independent finds differences
    between runs of the same thing. Samples that do not hang together are given back as they are.
    """
    return _blocks(samples, _block_length(samples))


def _block_length(samples: Sequence[float]) -> int:
    """Return how many neighbours make a block that does not hang together with the next one."""
    length, blocks = 1, list(samples)
    while len(blocks) >= FEWEST and _hang_together(blocks):
        length *= 2
        blocks = _blocks(samples, length)
    return length


def _blocks(samples: Sequence[float], length: int) -> list[float]:
    """Return medians of whole blocks; what is left over is left out in front, where a run is least settled."""
    return [median(samples[i : i + length]) for i in range(len(samples) % length, len(samples), length)]


def rank_test(one: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided p-value of the Mann-Whitney test; by permutations where values are few and tied."""
    values = [*one, *other]
    if min(values) == max(values):
        return 1.0
    few_and_tied = min(len(one), len(other)) <= 8 and len(set(values)) < len(values)
    method = stats.PermutationMethod(n_resamples=9999, rng=generator()) if few_and_tied else "auto"
    return float(stats.mannwhitneyu(one, other, method=method).pvalue)


def adjusted(p_values: Sequence[float]) -> list[float]:
    """P-values of several tests made at once, by Benjamini and Hochberg.

    Where nothing changed at all, at most `LEVEL` of such sets hold a single value below `LEVEL`.
    """
    return [float(p) for p in stats.false_discovery_control(p_values)] if p_values else []


def correlate(x: Sequence[float], y: Sequence[float], method: Method) -> Coefficient | None:
    """Return a correlation coefficient with its uncertainty; None below three points, or where one side is constant."""
    if len(x) < 3 or min(x) == max(x) or min(y) == max(y):
        return None
    test = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}[method]
    tested = test(x, y)
    interval = correlation_interval(x, y, method) if len(x) >= FEWEST_POINTS else None
    p = pairings_p(x, y, method) if len(x) < FEWEST_ASYMPTOTIC else float(tested.pvalue)
    return Coefficient(value=round(float(tested.statistic), DIGITS), interval=interval, p=p)


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """The exponent with which y grows with x.

    Returns:
        None where fewer than `FEWEST_FITTED` values of x differ, or where a value is zero.
    """
    if len(set(x)) < FEWEST_FITTED or min(*x, *y) <= 0:
        return None
    line = stats.linregress([math.log(value) for value in x], [math.log(value) for value in y])
    half = float(stats.t.ppf(1 - LEVEL / 2, len(x) - 2) * line.stderr)
    slope = float(line.slope)
    return PowerLaw(
        exponent=slope,
        factor=math.exp(line.intercept),
        interval=(slope - half, slope + half),
        r_squared=float(line.rvalue) ** 2,
        points=len(x),
    )


def quotient_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval | None:
    """95 % bootstrap interval of the ratio of medians of two parts of the same steps, sample by sample."""
    length = max(_block_length(numerators), _block_length(denominators))
    parts, wholes = _blocks(numerators, length), _blocks(denominators, length)
    if len(parts) < FEWEST or min(wholes) <= 0:
        return None
    return ratio_interval(wholes, parts, ratio_of_medians, paired=True)


def _hang_together(values: Sequence[float]) -> bool:
    """True if the ranks of neighbours are correlated by more than chance."""
    ranks = stats.rankdata(values) - (len(values) + 1) / 2
    spread = float(ranks @ ranks)
    return spread > 0 and float(ranks[1:] @ ranks[:-1]) / spread * math.sqrt(len(values)) > HANGING


def _t_test(before: Sequence[float], after: Sequence[float]) -> tuple[float | None, Interval | None]:
    """Student's test on logarithms, with one variance for both sides: two runs a side are too few for two."""
    if len(before) + len(after) < 3:
        return None, None
    one, other = ([math.log(value) for value in values] for values in (before, after))
    if len(set(one)) == len(set(other)) == 1:  # runs that agree to the last digit leave nothing to test with
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a side whose runs agree to the last digit has no variance
        test = stats.ttest_ind(other, one)
        low, high = (float(end) for end in test.confidence_interval(1 - LEVEL))
    return float(test.pvalue), (_exp(low), _exp(high))


def _exp(logarithm: float) -> float:
    """Return the number, which two runs that are far apart may leave without an end."""
    return math.exp(logarithm) if logarithm < _LARGEST else math.inf
