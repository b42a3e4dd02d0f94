"""Bands of predictions, read off residuals, and how often they hold times of models that were left out.

A band is an interval of measured over predicted: a share of the rows lies inside, or, where that does not hold enough
of other models, the whole range, stretched. Models are dealt into folds. How wide a band is made is chosen so that each
fold, held against what the others tell, is inside in 8 of 10 rows. Coverage in the tables leaves a fold out once more:
neither the interval nor its width has seen the model that is counted.

Steps of one model are alike, so models count, and not rows: a further model lies between the least and the greatest of
n others with a chance of (n - 1) / (n + 1), so fewer than nine others tell no band of 8 in 10. Steps that fewer models
have share the band of all steps that wait for the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from benchmarks.prediction.tables import Judged

AIM = 0.8
FOLDS = 10
LEAST = 10
"""Models from which a band of its own is read: one is left out, and nine others tell it."""
WIDTHS = (
    *(0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
    *(1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0),
)
"""The share of rows inside; above 1, the power of the whole range around its median."""
Band = tuple[float, float]
Bands = Mapping[tuple[str, str], Band]
"""Measured over predicted, by level and name of the band."""


def interval(ranked: Sequence[float], width: float) -> Band:
    """The interval of a width among ratios in order. A band holds the prediction."""
    tail = max(0.0, (1 - width) / 2)
    low, high = _at(ranked, tail), _at(ranked, 1 - tail)
    if width > 1:
        middle = median(ranked)
        low, high = middle * (low / middle) ** width, middle * (high / middle) ** width
    return min(low, 0.99), max(high, 1.01)


def _at(ranked: Sequence[float], share: float) -> float:
    """The value below which a share lies, between two of them."""
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def width(folds: Mapping[int, Sequence[float]]) -> float:
    """The width with which ratios of a fold lie most nearly 8 of 10 times in what the others tell; the wider of two."""
    if len(folds) < 2:
        return 1.0
    apart = [
        (sorted(its), sorted(r for f, some in folds.items() if f != fold for r in some)) for fold, its in folds.items()
    ]
    count = sum(map(len, folds.values()))

    def far(one: float) -> tuple[float, float]:
        bands = ((mine, interval(others, one)) for mine, others in apart)
        inside = sum(bisect_right(mine, high) - bisect_left(mine, low) for mine, (low, high) in bands)
        return abs(inside / count - AIM), -one

    return min(WIDTHS, key=far)


def bands_of(rows: Iterable[Judged]) -> dict[tuple[str, str], Band]:
    """The band of each level and name that has models enough; names without a comma always have one."""
    known = list(rows)
    return _bands(known, told(known))


def told(rows: Iterable[Judged]) -> frozenset[tuple[str, str]]:
    """Levels and names of which a band can be told."""
    models: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for name in row.bands:
            models.setdefault((row.level, name), set()).add(row.model)
    return frozenset(key for key, its in models.items() if len(its) >= LEAST or "," not in key[1])


def _bands(rows: Iterable[Judged], known: Collection[tuple[str, str]]) -> dict[tuple[str, str], Band]:
    groups: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        for key in ((row.level, name) for name in row.bands):
            if key in known and not row.parts:  # a whole answer has the bands of its parts
                groups.setdefault(key, {}).setdefault(fold_of(row), []).append(row.ratio)
    return {
        key: interval(sorted(ratio for its in folds.values() for ratio in its), width(folds))
        for key, folds in groups.items()
    }


def of_folds(rows: Sequence[Judged]) -> tuple[Bands, ...]:
    """For each fold, the bands that all others tell."""
    known = told(rows)
    return tuple(_bands((row for row in rows if fold_of(row) != fold), known) for fold in range(FOLDS))


def fold_of(row: Judged) -> int:
    """The fold of a row's model."""
    return row.number % FOLDS


def held(row: Judged, folds: Sequence[Bands]) -> bool | None:
    """True if the measured time lies in the band that other models tell; None if there is none.

    The band of a whole answer is the sum of those of its parts, as the product shows it.
    """
    bands = folds[fold_of(row)]
    low = high = 0.0
    for seconds, names in row.parts or ((row.predicted, row.bands),):
        pair = next((bands[row.level, name] for name in names if (row.level, name) in bands), None)
        if pair is None:
            return None
        low, high = low + seconds * pair[0], high + seconds * pair[1]
    return low <= row.measured <= high
