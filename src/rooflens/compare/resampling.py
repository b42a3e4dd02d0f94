"""Bootstrap intervals: scipy resamples, the statistics take all resamples at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
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
    return _interval((np.arange(len(x)),), coefficient, paired=False)


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
