"""Reported figures beside ours as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rooflens import units
from rooflens.report.table import COUNT, Column, Entry, Table, build, plain
from rooflens.reported import ComparedFigure
from rooflens.reported.figures import QUANTITIES, ReportedFigure

QUANTITY = Column("quantity", "quantity", read=lambda row: row.figure.quantity.replace("_", " "), align="left")
MODEL, DEVICE, PHASE = (Column(key, key, read=f"figure.{key}", align="left") for key in ("model", "device", "phase"))
BATCH = Column("batch", "batch", COUNT, "figure.batch")
REPORTED = Column("reported", "reported", read=lambda row: _cell(row.figure, row.figure.value))
CODES = Column("findings", "findings", read=lambda row: ", ".join(row.codes), align="left")
COMPARED = (
    Column("place", "place", read="figure.place", align="left", show="files"),
    QUANTITY,
    MODEL,
    DEVICE,
    BATCH,
    Column("dtype", "dtype", read="figure.dtype", align="left", show="files"),
    PHASE,
    REPORTED,
    Column("ours", "ours", read=lambda row: _cell(row.figure, row.ours.value)),
    Column("ratio", "ratio", read=lambda row: Entry(row.ratio, label=None if row.ratio is None else _ratio(row.ratio))),
    Column("of", "ours is", read="ours.of", align="left"),
    Column("measured", "measured", read=lambda row: row.measured and _cell(row.figure, row.measured.value)),
    Column("measured_of", "measured as", read="measured.of", align="left"),
    Column("unit", "unit", read=lambda row: QUANTITIES.get(row.figure.quantity, ""), align="left", show="files"),
    CODES,
)
WHY = Column("why", "not computed, since", align="left")
NOT_COMPUTED = (QUANTITY, MODEL, DEVICE, BATCH, PHASE, REPORTED, WHY, CODES)


def figures_tables(rows: Iterable[ComparedFigure]) -> tuple[Table, Table]:
    """The figures that have a number of ours, and those that have none and why."""
    every = list(rows)
    compared = [row for row in every if row.ours is not None]
    rest = [row for row in every if row.ours is None]
    notes = [
        "ratio: reported over ours; findings: codes of 'rooflens check', docs/check.md",
        "a bound is the least time that the rates of a datasheet allow: what was measured lies above it",
    ]
    return (
        build("Reported figures and ours", COMPARED, compared, notes=notes),
        build("Reported, not computed", NOT_COMPUTED, rest),
    )


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
