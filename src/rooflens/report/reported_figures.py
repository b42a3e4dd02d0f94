"""Reported figures beside ours as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rooflens import units
from rooflens.report.table import COUNT, Column, Entries, Entry, Table, build, plain
from rooflens.reported import ComparedFigure
from rooflens.reported.figures import QUANTITIES, ReportedFigure

QUANTITY, MODEL, DEVICE, PHASE, CODES = (
    Column(key, key, align="left") for key in ("quantity", "model", "device", "phase", "findings")
)
BATCH, REPORTED = Column("batch", "batch", COUNT), Column("reported", "reported")
COMPARED = (
    Column("place", "place", align="left", show="files"),
    QUANTITY,
    MODEL,
    DEVICE,
    BATCH,
    Column("dtype", "dtype", align="left", show="files"),
    PHASE,
    REPORTED,
    Column("ours", "ours"),
    Column("ratio", "ratio"),
    Column("of", "ours is", align="left"),
    Column("measured", "measured"),
    Column("measured_of", "measured as", align="left"),
    Column("unit", "unit", align="left", show="files"),
    CODES,
)
WHY = Column("why", "not computed, since", align="left")
NOT_COMPUTED = (QUANTITY, MODEL, DEVICE, BATCH, PHASE, REPORTED, WHY, CODES)


def figures_tables(rows: Iterable[ComparedFigure]) -> tuple[Table, Table]:
    """The figures that have a number of ours, and those that have none and why."""
    every = list(rows)
    compared = [_row(row) for row in every if row.ours is not None]
    rest = [_row(row) for row in every if row.ours is None]
    notes = [
        "ratio: reported over ours; findings: codes of 'rooflens check', docs/check.md",
        "a bound is the least time that the rates of a datasheet allow: what was measured lies above it",
    ]
    return (
        build("Reported figures and ours", COMPARED, compared, notes=notes),
        build("Reported, not computed", NOT_COMPUTED, rest),
    )


def _row(row: ComparedFigure) -> Entries:
    figure, ours, measured = row.figure, row.ours, row.measured
    return {
        "place": figure.place,
        "quantity": figure.quantity.replace("_", " "),
        "model": figure.model,
        "device": figure.device,
        "batch": figure.batch,
        "dtype": figure.dtype,
        "phase": figure.phase,
        "reported": _cell(figure, figure.value),
        "ours": _cell(figure, None if ours is None else ours.value),
        "ratio": Entry(row.ratio, label=None if row.ratio is None else _ratio(row.ratio)),
        "of": None if ours is None else ours.of,
        "measured": _cell(figure, None if measured is None else measured.value),
        "measured_of": None if measured is None else measured.of,
        "unit": QUANTITIES.get(figure.quantity, ""),
        "why": row.why,
        "findings": ", ".join(row.codes),
    }


def _cell(figure: ReportedFigure, value: float | None) -> Entry:
    """A number with the unit of its figure, since rows of one column have different ones."""
    unit = QUANTITIES.get(figure.quantity, "")
    if value is None:
        return Entry(None)
    if unit == "FLOP/B":
        return Entry(value, label=f"{plain(value, 4)} FLOP/B")
    return Entry(value, label=units.show(value, unit) if unit else f"{value:.0f}" if value >= 1e4 else plain(value, 3))


def _ratio(ratio: float) -> str:
    """Three digits, without an exponent: 0.00123, 0.98, 1290."""
    rounded = float(f"{ratio:.3g}")
    return f"{rounded:.0f}" if abs(rounded) >= 100 else f"{rounded:.6f}".rstrip("0").rstrip(".")
