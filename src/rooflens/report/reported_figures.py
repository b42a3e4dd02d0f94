"""Reported figures beside ours as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rooflens import units
from rooflens.report.table import COUNT, Column, Entries, Entry, Table, build, plain
from rooflens.reported import ComparedFigure, OurNumber
from rooflens.reported.figures import QUANTITIES, ReportedFigure

COLUMNS = (
    Column("place", "place", align="left", show="files"),
    Column("quantity", "quantity", align="left"),
    Column("model", "model", align="left"),
    Column("device", "device", align="left"),
    Column("batch", "batch", COUNT),
    Column("dtype", "dtype", align="left", show="files"),
    Column("phase", "phase", align="left"),
    Column("reported", "reported"),
    Column("ours", "ours"),
    Column("ratio", "ratio"),
    Column("of", "ours is", align="left"),
    Column("measured", "measured"),
    Column("measured_of", "measured as", align="left"),
    Column("unit", "unit", align="left", show="files"),
    Column("findings", "findings", align="left"),
)
NOT_COMPUTED = (
    Column("quantity", "quantity", align="left"),
    Column("model", "model", align="left"),
    Column("device", "device", align="left"),
    Column("batch", "batch", COUNT),
    Column("phase", "phase", align="left"),
    Column("reported", "reported"),
    Column("why", "not computed, since", align="left"),
    Column("findings", "findings", align="left"),
)


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
        build("Reported beside ours", COLUMNS, map(_compared, compared), notes=notes),
        build("Reported, not computed", NOT_COMPUTED, map(_rest, rest)),
    )


def _compared(row: ComparedFigure) -> Entries:
    ours, measured = row.ours, row.measured
    return {
        **_figure(row),
        "place": row.figure.place,
        "dtype": row.figure.dtype,
        "unit": QUANTITIES.get(row.figure.quantity, ""),
        "ours": _cell(row.figure, None if ours is None else ours.value),
        "of": _of(ours),
        "ratio": Entry(row.ratio, label=None if row.ratio is None else _ratio(row.ratio)),
        "measured": _cell(row.figure, None if measured is None else measured.value),
        "measured_of": _of(measured),
    }


def _rest(row: ComparedFigure) -> Entries:
    return {**_figure(row), "why": row.why}


def _figure(row: ComparedFigure) -> Entries:
    """What both tables say of a reported figure."""
    figure = row.figure
    return {
        "quantity": figure.quantity.replace("_", " "),
        "model": figure.model,
        "device": figure.device,
        "batch": figure.batch,
        "phase": figure.phase,
        "reported": _cell(figure, figure.value),
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


def _of(ours: OurNumber | None) -> str | None:
    return None if ours is None else ours.of


def _ratio(ratio: float) -> str:
    """Three digits, without an exponent: 0.00123, 0.98, 1290."""
    rounded = float(f"{ratio:.3g}")
    return f"{rounded:.0f}" if abs(rounded) >= 100 else f"{rounded:.6f}".rstrip("0").rstrip(".")
