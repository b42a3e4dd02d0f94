"""Rows of predicted and measured times, and the tables of their errors."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import Any

FITTED, JUDGED = 0, 1
"""Halves of the rows: bands are read off one, and their coverage is counted on the other."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A measured time beside its prediction and its bound.

    Attributes:
        source: the set of measurements; key: which row of it.
        device, level, family, regime: what tables group by.
        seen: constants were read off rows of this kind, so that it is no proof.
    """

    source: str
    key: str
    device: str
    level: str
    family: str
    regime: str
    measured: float
    predicted: float
    bound: float
    low: float | None = None
    high: float | None = None
    seen: bool = False

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def half(self) -> int:
        """Which half of the rows it belongs to, by models and shapes: what is fitted on one is judged on the other."""
        return zlib.crc32(self.key.partition(" ")[0 if self.source.startswith("own") else 2].encode()) % 2


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def errors(rows: Sequence[Judged]) -> dict[str, Any]:
    """Number, mean, median, p90 and bias of the errors, and those of the bound and of one efficiency, in percent."""
    sizes = [100 * abs(row.error) for row in rows]
    banded = [row for row in rows if row.low is not None and row.high is not None and row.half == JUDGED]
    inside = [row for row in banded if (row.low or 0) <= row.measured <= (row.high or 0)]
    return {
        "rows": len(rows),
        "mean": mean(sizes),
        "median": median(sizes),
        "p90": quantile(sizes, 0.9),
        "bias": 100 * mean(row.error for row in rows),
        "bound": 100 * mean(abs(row.bound / row.measured - 1) for row in rows),
        "one efficiency": one_efficiency(rows),
        "coverage": 100 * len(inside) / len(banded) if banded else None,
    }


def one_efficiency(rows: Sequence[Judged]) -> float | None:
    """Mean error, in percent, of the bound over one efficiency, which is fitted on the other half of the rows."""
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


def markdown(groups: dict[tuple[str, ...], list[Judged]], names: Sequence[str]) -> str:
    """One line for each group; errors in percent."""
    lines = ["| " + " | ".join((*names, *HEADER)) + " |", "|" + "---|" * (len(names) + len(HEADER))]
    for key, rows in groups.items():
        found = errors(rows)
        numbers = [
            "-"
            if found[name] is None
            else f"{found[name]:.0f}"
            if name in ("rows", "coverage")
            else f"{found[name]:.1f}"
            for name in HEADER
        ]
        lines.append("| " + " | ".join((*key, *numbers)) + " |")
    return "\n".join(lines)


def summary(groups: dict[tuple[str, ...], list[Judged]]) -> list[dict[str, Any]]:
    """The same as data."""
    return [{"group": list(key)} | errors(rows) for key, rows in groups.items()]


def plain(rows: Iterable[Judged]) -> list[dict[str, Any]]:
    """Rows as JSON can hold them."""
    return [asdict(row) for row in rows]
