"""Rows of predicted and measured times, their bands, and the tables of their errors."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import mean, median
from typing import Any

LEAST = 12
"""Rows from which a band of its own is read."""
Bands = Mapping[tuple[str, str], tuple[float, float]]
"""Measured over predicted, by level and name of the band."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A measured time beside its prediction and its bound.

    Attributes:
        source: the set of measurements.
        model: what is left out together: a model, or a shape of an operation.
        device, level, mode, regime, batch, dtype: what tables group by.
        bands: names of the bands that suit it, the most fitting first.
        steps: it is a step, and no operation.
        seen: constants were read off this kind of rows, or chosen in their sight: no proof.
        published: what somebody else predicted for it.
        low, high: ends of the band that the prediction came with, of steps.
    """

    source: str
    model: str
    device: str
    level: str
    mode: str
    regime: str
    batch: str = ""
    dtype: str = ""
    measured: float
    predicted: float
    bound: float
    bands: tuple[str, ...]
    steps: bool = True
    seen: bool = False
    published: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted

    @property
    def half(self) -> int:
        """Which half of the models it belongs to: what is read off one half is judged on the other."""
        return zlib.crc32(self.model.replace(":", "_").encode()) % 2


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def bands_of(rows: Iterable[Judged]) -> dict[tuple[str, str], tuple[float, float]]:
    """Bands that hold 8 of 10 further rows: quantiles of conformal prediction, wider where rows are few."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for name in row.bands:
            ratios.setdefault((row.level, name), []).append(row.ratio)
    found = {}
    for key, values in ratios.items():
        if len(values) >= LEAST or key[1].count(",") == 0:
            ranked, n = sorted(values), len(values)
            low = ranked[max(0, floor(0.1 * (n + 1)) - 1)]
            high = ranked[min(n - 1, ceil(0.9 * (n + 1)) - 1)]
            found[key] = (min(low, 0.99), max(high, 1.01))  # a band holds the prediction
    return found


def held(row: Judged, bands: Bands) -> bool | None:
    """True if the measured time lies in the band; None if there is none."""
    for name in row.bands:
        if (row.level, name) in bands:
            low, high = bands[row.level, name]
            return low <= row.ratio <= high
    return None


def errors(rows: Sequence[Judged], halves: tuple[Bands, Bands]) -> dict[str, Any]:
    """Number, mean, median, p90 and bias of the errors, in percent; the bound's, one efficiency's, others', coverage.

    Args:
        halves: bands that were read off either half: each row is held against those of the other.
    """
    sizes = [100 * abs(row.error) for row in rows]
    inside = [found for row in rows if (found := held(row, halves[1 - row.half])) is not None]
    others = [100 * abs(row.published / row.measured - 1) for row in rows if row.published]
    return {
        "rows": len(rows),
        "mean": mean(sizes),
        "median": median(sizes),
        "p90": quantile(sizes, 0.9),
        "bias": 100 * mean(row.error for row in rows),
        "bound": 100 * mean(abs(row.bound / row.measured - 1) for row in rows),
        "one efficiency": one_efficiency(rows),
        "coverage": 100 * mean(inside) if inside else None,
        "published": mean(others) if others else None,
    }


def one_efficiency(rows: Sequence[Judged]) -> float | None:
    """Mean error, in percent, of the bound over one efficiency, which is fitted on the other half of the models."""
    halves = [[row for row in rows if row.half == half] for half in (0, 1)]
    if not all(halves):
        return None
    total = 0.0
    for mine, others in (halves, halves[::-1]):
        efficiency = median(row.bound / row.measured for row in others)
        total += sum(abs(row.bound / efficiency / row.measured - 1) for row in mine) if efficiency else len(mine)
    return 100 * total / len(rows)


def grouped(rows: Iterable[Judged], key: Callable[[Judged], tuple[str, ...]]) -> dict[tuple[str, ...], list[Judged]]:
    """Rows by what they share, sorted."""
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return dict(sorted(groups.items()))


HEADER = ("rows", "mean", "median", "p90", "bias", "bound", "one efficiency", "coverage")


def markdown(
    groups: Mapping[tuple[str, ...], Sequence[Judged]], names: Sequence[str], halves: tuple[Bands, Bands]
) -> str:
    """One line for each group; errors in percent."""
    found = {key: errors(rows, halves) for key, rows in groups.items()}
    header = HEADER + (("published",) if any(its["published"] for its in found.values()) else ())
    lines = ["| " + " | ".join((*names, *header)) + " |", "|" + "---|" * (len(names) + len(header))]
    lines += [
        "| " + " | ".join((*key, *(_cell(name, its[name]) for name in header))) + " |" for key, its in found.items()
    ]
    return "\n".join(lines)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if name in ("rows", "coverage", "p90") else f"{value:.1f}"
