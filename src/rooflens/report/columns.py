"""Columns that tables share: they read a case, a total, or a piece of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rooflens.records import MEMORY_CAUSES, Record
from rooflens.report.case_names import short_device
from rooflens.report.expected_notes import waits_for
from rooflens.report.table import COUNT, PERCENT, Column, Entry
from rooflens.results import Quantity
from rooflens.results.quantities import (
    ALL_FLOPS,
    AS_WRITTEN_FLOPS,
    BOUND,
    BOUND_BYTES,
    BOUND_FLOPS,
    BOUND_INTENSITY,
    BOUND_MACS,
    BOUND_MATMUL_FLOPS,
    BYTES,
    EFFICIENCY,
    INTENSITY,
    MACS,
    MATMUL_FLOPS,
    PREDICTED,
    RECOMPUTED_FLOPS,
    TIME,
    ratio,
)
from rooflens.units import show_range

CAUSE_WORDS = {cause: cause.replace("_", " ") for cause in (*MEMORY_CAUSES, "workspace")}
"""Causes of memory as people read them."""


def at_least(value: float | None, lower: bool, most: float | None = None) -> Entry:
    """Return a value, marked where it is a lower bound; "at least nothing" is unknown to a person.

    Args:
        most: a value above it is marked: an efficiency above 1 is faster than its bound.
    """
    mark = "!" if most is not None and (value or 0) > most else ""
    return Entry(value, ">=" if lower and value else "", mark, label="-" if lower and not value else None)


def whole(number: float | None) -> int | float | None:
    """Return a float without a fraction as an integer: counts stay counts in files."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def sum_of_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def p_entry(value: float | None) -> Entry:
    """Return a p-value: three decimals are enough for a person."""
    return Entry(value, label=None if value is None else "<0.001" if value < 0.001 else f"{value:.3f}")


def _count(quantity: Quantity, key: str = "", **how: Any) -> Column:
    """Return the column of something that is counted in the total of a row."""

    def read(row: Any) -> Entry:
        reading = quantity.of(row.total)
        # Where all work is recomputed there is no algorithmic work: that is known, and zero.
        counts = quantity.grows and quantity.unit != INTENSITY.unit
        only_repeats = counts and reading.value is None and row.total is not None and row.total.as_written.work
        return at_least(0 if only_repeats else whole(reading.value), reading.at_least)

    return Column(key or quantity.name, quantity.header, quantity.unit, read, group="work", **how)


def case_columns(of: str) -> tuple[Column, ...]:
    """Return a column per field of the case that a row holds as `of`."""
    text: dict[str, Any] = {"align": "left", "title": "{}"}
    return (
        Column("model", "model", read=f"{of}.model", **text),
        Column("batch", "batch", COUNT, f"{of}.batch", title="batch {}"),
        Column("dtype", "dtype", read=f"{of}.dtype", **text),
        Column("mode", "mode", read=f"{of}.mode", **text),
        Column(
            "options",
            "options",
            read=lambda row: " ".join([f"{name}={value}" for name, value in getattr(row, of).options]) or None,
            words=True,
            **text,
        ),
        Column("device", "device", read=lambda row: _device(getattr(row, of).device), align="left", title="on {}"),
    )


def _device(name: str | None) -> Entry:
    """Return the name of a device, which is short for people."""
    short = None if name is None else short_device(name)
    return Entry(name, label=None if short == name else short)


def cause_columns(of: str) -> tuple[Column, ...]:
    """Return a column per cause of the memory that a row holds as `of`."""
    return tuple(
        Column(cause, CAUSE_WORDS[cause], "B", f"{of}.{cause}", group="memory", if_any=True) for cause in MEMORY_CAUSES
    )


CASE = case_columns("case")
SOURCE = Column("source", "source", align="left", title="{}")
PHASE = Column("phase", "phase", align="left", title="{}")
WORK = (
    _count(MATMUL_FLOPS),
    _count(RECOMPUTED_FLOPS, if_any=True),
    _count(ALL_FLOPS),
    _count(MACS, show="room"),
    _count(BYTES, "dram_bytes"),
    _count(INTENSITY),
    _count(AS_WRITTEN_FLOPS, show="files"),
    *(
        _count(quantity, show="files")
        for quantity in (BOUND_MATMUL_FLOPS, BOUND_FLOPS, BOUND_MACS, BOUND_BYTES, BOUND_INTENSITY)
    ),
    Column(
        "lower_bound", "lower bound", group="work", show="files", read=lambda row: row.total and bool(row.total.missing)
    ),
)
"""FLOP, bytes and intensity of the code as written, and for files those that the bound counts."""
PIECE_OF_WORK = tuple(
    column
    if column.key in ("flops", "recomputed_flops") or column.show == "files"
    else replace(column, show="room" if column.key == "dram_bytes" else "more")
    for column in WORK
)
"""`WORK` where sizes and times are shown too: FLOP, and where there is room bytes."""
PART_OF_WORK = tuple(replace(column, show="room") if column.key == "intensity" else column for column in WORK)
"""`WORK` where names are long and many: intensity gives way to totals, which can be compared down a column."""
BOUNDS = (
    Column(
        "seconds",
        BOUND.header,
        BOUND.unit,
        lambda row: row.total and row.total.bound and at_least(row.total.bound.seconds, bool(row.total.missing)),
        group="time",
    ),
    Column(
        "bound_by",
        "bound by",
        read=lambda row: row.total and row.total.bound and (row.total.bound.bound_by or None),
        align="left",
        group="time",
    ),
)


def _band(row: Any) -> Entry:
    """Return the lower end of the band, with the whole band for people."""
    known = row.total and row.total.prediction
    return Entry(known and known.low, label=known and show_range(known.low, known.high, "s"))


def _expected(row: Any) -> Entry:
    """Return the expected time, marked where it is below the bound."""
    return Entry(row.total and row.total.predicted_seconds, mark="!" if row.total and row.total.below_bound else "")


EXPECTED = (
    Column("predicted_seconds", PREDICTED.header, PREDICTED.unit, _expected, group="time"),
    Column("predicted_low", "10 to 90 %", "s", _band, group="time", show="room"),
    Column("predicted_high", "90 %", "s", "total.prediction.high", group="time", show="files"),
    Column("predicted_level", "level", read="total.prediction.level", align="left", group="time", show="files"),
)
"""The expected time with its band, which is one column for people."""


WAITS = Column(
    "regime",
    "waits for",
    read=lambda row: Entry(
        row.total and row.total.prediction and row.total.prediction.regime, label=waits_for(row.total)
    ),
    align="left",
    group="time",
    show="room",
)
TIME_SHARE = Column(
    "time_share",
    "share of time",
    PERCENT,
    lambda row: None if row.seconds is None else ratio(row.seconds, row.of_seconds),
    group="time",
)
PIECE_TIME = Column("measured_seconds", TIME.header, "s", "seconds", group="time")
PROFILED_TIME = replace(PIECE_TIME, header="profiled")
PIECE_PREDICTED = replace(EXPECTED[0], show="room")
PIECE_EFFICIENCY = Column(
    "efficiency",
    EFFICIENCY.header,
    PERCENT,
    lambda row: at_least(row.reached, bool(row.total.missing), 1),
    group="time",
)
ROOM = (
    Column("fits", "fits", read="room.fits", group="fit", show="files"),
    Column("needed", "needs", "B", "room.needed", group="fit", show="files"),
    Column("memory_excess", "exceeds memory by", "B", "room.excess", group="fit"),
)
SHARE = Column("share", "share", PERCENT, lambda row: ratio(row.total.seconds, row.of.seconds), group="time")


def headed_by_clock(columns: Iterable[Column], times: Iterable[Record]) -> tuple[Column, ...]:
    """Return columns in which times of a profiler are headed so: a step takes longer under it than when measured."""
    clocks = {r.timing.origin for r in times if r.timing is not None and r.scope != "model"}
    return tuple(PROFILED_TIME if c == PIECE_TIME and clocks & {"profiler", "ncu"} else c for c in columns)
