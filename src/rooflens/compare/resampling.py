"""Bootstrap intervals and exact p-values: statistics take all resamples, or all pairings, at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import DegenerateDataWarning, bootstrap, rankdata

from rooflens.compare.uncertainty import LEVEL, Interval

Numbers = NDArray[np.float64]
Statistic = Callable[..., Any]
"""A number of one or two arrays, along their last axis."""

RESAMPLES = 1999
SEED = 20_260
DIGITS = 12
"""Of a coefficient: a perfect one is 1, and not a little less by rounding."""
_CELLS = 4_000_000
"""Numbers that resampling holds at a time."""


def ratio_interval(
    before: Sequence[float], after: Sequence[float], statistic: Statistic, *, paired: bool = False
) -> Interval:
    """95 % interval of a statistic of two samples, like :func:`ratio_of_medians`."""
    return _interval((np.asarray(before, dtype=float), np.asarray(after, dtype=float)), statistic, paired=paired)


def correlation_interval(x: Sequence[float], y: Sequence[float], method: str) -> Interval:
    """95 % interval of a correlation coefficient; resamples of one point alone, which have none, are left out."""
    coefficient = _COEFFICIENTS[method](np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    low, high = _interval((np.arange(len(x)),), coefficient, paired=False)
    return round(low, DIGITS), round(high, DIGITS)


def pairings_p(x: Sequence[float], y: Sequence[float], method: str) -> float | None:
    """Two-sided p-value of a correlation coefficient: the share of all pairings that are as extreme, twice.

    None where even the most extreme pairing has a p-value above `LEVEL`: nothing can be told from chance then.
    """
    score = _SCORES[method](np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    scores = score(_orders(len(x)))
    own, slack = scores[0], 1e-9 * max(abs(scores.max()), abs(scores.min()))  # sums of the same numbers differ so much

    def twice(extreme: Any) -> float:
        return min(1.0, 2 * float(np.mean(extreme)))

    least = min(twice(scores >= scores.max() - slack), twice(scores <= scores.min() + slack))
    return None if least > LEVEL else min(twice(scores >= own - slack), twice(scores <= own + slack))


@cache
def _orders(points: int) -> NDArray[np.int8]:
    """All orders of some points as rows, their own order first."""
    rows = np.zeros((1, 0), dtype=np.int8)
    for n in range(points):
        rows = np.concatenate([np.insert(rows, place, n, axis=1) for place in range(n, -1, -1)])
    return rows


# What rises and falls with a coefficient, of all orders of x at once.


def _sums_of_products(x: Numbers, y: Numbers) -> Statistic:
    x, y = (values - values.mean() for values in (x, y))
    return lambda orders: x[orders] @ y


def _concordant_pairs(x: Numbers, y: Numbers) -> Statistic:
    ranks, pairs = rankdata(x, "dense").astype(np.int8), list(combinations(range(len(y)), 2))

    def score(orders: Any) -> Any:
        rows = ranks[orders].T
        return sum(np.sign(y[j] - y[i]) * np.sign(rows[j] - rows[i]) for i, j in pairs)

    return score


_SCORES: Mapping[str, Callable[[Any, Any], Statistic]] = {
    "pearson": _sums_of_products,
    "spearman": lambda x, y: _sums_of_products(rankdata(x), rankdata(y)),
    "kendall": _concordant_pairs,
}


def ratio_of_medians(before: Numbers, after: Numbers, axis: int = -1) -> Any:
    return np.median(after, axis=axis) / np.median(before, axis=axis)


def ratio_of_geometric_means(before: Numbers, after: Numbers, axis: int = -1) -> Any:
    return np.exp(np.log(after).mean(axis=axis) - np.log(before).mean(axis=axis))


def generator() -> np.random.Generator:
    """Always the same random numbers, so that the same data give the same interval."""
    return np.random.default_rng(SEED)


# Resamples are rows of indices of points, and each coefficient is taken of all rows at once.


def _pearson(x: Numbers, y: Numbers) -> Statistic:
    return lambda rows, axis=-1: _product_moment(x[rows], y[rows])


def _spearman(x: Numbers, y: Numbers) -> Statistic:
    return lambda rows, axis=-1: _product_moment(rankdata(x[rows], axis=-1), rankdata(y[rows], axis=-1))


def _product_moment(x: Numbers, y: Numbers) -> Any:
    x, y = (values - values.mean(axis=-1, keepdims=True) for values in (x, y))
    return _quotient((x * y).sum(axis=-1), np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1)))


def _kendall(x: Numbers, y: Numbers) -> Statistic:
    """Tau-b. A pair of points is in a resample as often as the product of how often each of the two is."""
    rises_x, rises_y = (np.sign(values[:, None] - values[None, :]) for values in (x, y))

    def statistic(rows: Any, axis: int = -1) -> Any:
        often = _counts(rows.reshape(-1, len(x)), len(x))

        def pairs(matrix: Numbers) -> Numbers:
            return np.asarray(((often @ matrix) * often).sum(axis=-1))

        tau = _quotient(pairs(rises_x * rises_y), np.sqrt(pairs(np.abs(rises_x)) * pairs(np.abs(rises_y))))
        return tau.reshape(rows.shape[:-1])

    return statistic


def _counts(rows: Any, points: int) -> Numbers:
    """Return how often each point is in each row."""
    places = rows + points * np.arange(len(rows))[:, None]
    return np.bincount(places.ravel(), minlength=points * len(rows)).reshape(-1, points).astype(float)


def _quotient(part: Numbers, whole: Numbers) -> Any:
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


_COEFFICIENTS: Mapping[str, Callable[[Any, Any], Statistic]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}


def _interval(data: tuple[Any, ...], statistic: Statistic, *, paired: bool) -> Interval:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # about the resamples that are left out
        drawn = bootstrap(
            data,
            statistic,
            paired=paired,
            vectorized=True,
            method="percentile",
            n_resamples=RESAMPLES,
            batch=max(1, _CELLS // sum(map(len, data))),
            rng=generator(),
        ).bootstrap_distribution
    low, high = np.nanquantile(drawn, (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)
