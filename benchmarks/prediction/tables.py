"""Rows of predicted and measured times, their bands, and the tables of their errors."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

Held = Callable[["Judged"], bool | None]
"""True if a row lies in the band that other models tell; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A measured time beside its prediction and its bound.

    Attributes:
        source: the set of measurements.
        model: what is left out together: a model, or a shape of an operation.
        device, level, mode, regime, batch, dtype: what tables group by.
        bands: names of the bands that suit it, the most fitting first.
        parts: of a whole answer, the expected seconds of its phases with the names of their bands.
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
    parts: tuple[tuple[float, tuple[str, ...]], ...] = ()
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
    def number(self) -> int:
        """A number of the model, by which models are dealt into groups."""
        return zlib.crc32(self.model.replace(":", "_").encode())

    @property
    def half(self) -> int:
        """Which half of the models it belongs to: one was looked at, the other not."""
        return self.number % 2


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def errors(rows: Sequence[Judged], held: Held) -> dict[str, Any]:
    """Number, mean, median, p90, bias of the errors in percent; of the bound, one efficiency, others; coverage."""
    sizes = [100 * abs(row.error) for row in rows]
    inside = [found for row in rows if (found := held(row)) is not None]
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


def markdown(groups: Mapping[tuple[str, ...], Sequence[Judged]], names: Sequence[str], held: Held) -> str:
    """One line for each group; errors in percent."""
    found = {key: errors(rows, held) for key, rows in groups.items()}
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
