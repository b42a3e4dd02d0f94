"""What tables share: columns that read a case or a total, and the notes below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rooflens.records import MEMORY_CAUSES, Case, Cause, Record
from rooflens.report.case_names import short_device
from rooflens.report.expected_notes import expected_notes, waits_for
from rooflens.report.one_step import IN_BOUND, does_more
from rooflens.report.table import COUNT, PERCENT, Column, ColumnNote, Entry, percent
from rooflens.results import Coverage, Evidence, Quantity, Surplus, Total
from rooflens.results.parts import PieceOfCase
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
from rooflens.units import show, show_range

_NAMED, _LONG = 3, 48
NO_DEVICE = "no device is named: bounds are unknown"
FASTER = (
    "! faster than the bound: data stayed in a cache, an algorithm with less work (Winograd, FFT) ran, or a ceiling is"
    " too low"
)
BELOW_BOUND = ColumnNote(
    "! expected below the bound, which has all operands from DRAM: some stay in the cache between operations",
    "predicted_seconds",
)


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
        Column(cause, cause.replace("_", " "), "B", f"{of}.{cause}", group="memory", if_any=True)
        for cause in MEMORY_CAUSES
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


def coverage_line(coverage: Coverage) -> str:
    """Return how much was counted, in one line; operations without a formula are named.

    >>> coverage_line(Coverage(operations=3, counted=3, uncounted=(), bytes_share=1.0))
    'counted 3 of 3 operations (100 % of bytes)'
    >>> coverage_line(Coverage(operations=3, counted=2, uncounted=("gemm",), bytes_share=None, pieces="kernels"))
    'counted all FLOP of 2 of 3 kernels; not of gemm'
    """
    share = "" if coverage.bytes_share is None else f" ({percent(coverage.bytes_share)} of bytes)"
    missing = f"; {_uncounted(coverage)}" if coverage.uncounted else ""
    what = "all FLOP of " if missing and coverage.pieces == "kernels" else ""  # some of a kernel may be known
    return f"counted {what}{coverage.counted} of {coverage.operations} {coverage.pieces}{share}{missing}"


def _uncounted(coverage: Coverage) -> str:
    """Operations without a formula are all named; names of kernels are long, and some of them are enough."""
    if coverage.pieces == "operations":
        return f"without a formula: {', '.join(coverage.uncounted)}"
    named = [name if len(name) <= _LONG else f"{name[:_LONG]}..." for name in coverage.uncounted[:_NAMED]]
    more = len(coverage.uncounted) - len(named)
    return f"not of {', '.join(named)}{f' and {more} more' if more else ''}"


def total_notes(totals: Iterable[Total]) -> Iterator[str]:
    """What a reader of these totals must know: lower bounds, and resources that the device has no rate for."""
    seen = list(totals)
    yield from _bound_notes(seen)
    yield from expected_notes(seen)
    several = dict.fromkeys(t.device.name for t in seen if t.device and t.device.count > 1 and t.bound is not None)
    if several:
        yield (
            f"no time can be expected of {', '.join(several)}: nothing says how devices share a step, and what they"
            " send each other. The bound assumes a perfect split; for copies of the model, each with its part of the"
            " batch, estimate that part on one device"
        )


def number_notes(totals: Iterable[Total | None]) -> Iterator[str]:
    """Yield why an expected time of some totals is marked, if one is, and what their work is of."""
    known = [total for total in totals if total is not None]
    yield from [IN_BOUND] if any(total.bound is not None and does_more(total) for total in known) else []
    yield from [BELOW_BOUND] if any(total.below_bound for total in known) else []


def piece_notes(of: Total, rows: Sequence[PieceOfCase]) -> Iterator[str]:
    """Yield coverage, lower bounds, and what numbers of the rows of a total need a word."""
    if of.coverage.operations:
        yield coverage_line(of.coverage)
        if of.device is None and rows:
            yield no_bounds(rows[0].case)
    yield from _bound_notes([of])
    if of.prediction is not None:
        yield ColumnNote("expected of a piece: on the device alone, without waiting for the host", PIECE_PREDICTED.key)
    yield from number_notes(row.total for row in rows)
    yield from surplus_notes([of])
    if any((row.reached or 0) > 1 for row in rows):
        yield FASTER


def _bound_notes(seen: Sequence[Total]) -> Iterator[str]:
    for pieces in dict.fromkeys(total.pieces for total in seen if total.missing):
        yield {
            "operations": ">= lower bound: operations without a formula are not in it",
            "kernels": ">= lower bound: of some kernels FLOP were not counted",
        }[pieces]
    for total in seen:
        if total.bound is not None and total.device is not None:
            for resource in sorted(total.bound.skipped):
                yield f"{resource} has no ceiling on {total.device.name}: left out of the bound"


def surplus_notes(totals: Iterable[Total]) -> Iterator[str]:
    """One line that says by cause what the code of these steps does beyond what every implementation needs."""
    by_cause: dict[Cause, list[Surplus]] = {}
    seen = list(totals)
    for total in seen:
        for cause, surplus in total.surplus.items():
            by_cause.setdefault(cause, []).append(surplus)
    if by_cause:
        parts = (_surplus(cause, some, len(seen)) for cause, some in by_cause.items())
        yield f"the code as written does more than the bound: {'; '.join(parts)} (docs/floors.md)"


def recomputation_notes(totals: Iterable[Total]) -> Iterator[str]:
    """One line that says how much of the bound computes again what checkpointing did not keep; of several, the most."""
    seen = list(totals)
    shares = [share for t in seen if (share := ratio(t.recomputed_seconds, t.seconds))]
    if shares:
        several = "up to " if len(seen) > 1 else ""
        yield f"checkpointing: {several}{percent(max(shares))} of the bound computes again what the step does not keep"


def _surplus(cause: Cause, some: Sequence[Surplus], steps: int) -> str:
    """A cause with its bytes, FLOP and seconds; of several steps the largest."""
    amounts = (
        (max(each.bytes for each in some), "B"),
        (max(each.flops for each in some), "FLOP"),
        (max(each.seconds or 0 for each in some), "s"),
    )
    shown = ", ".join(show(amount, unit) for amount, unit in amounts if amount > 0)
    return f"{cause} {'up to ' if steps > 1 else ''}{shown or 'nothing'}"


def coverage_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """The coverage of one case as a line; of several, the incomplete ones by name and the others together."""
    known = [(item, total.coverage) for item in evidence if (total := item.total()) is not None]
    if len(known) == 1:
        yield coverage_line(known[0][1])
        return
    complete = [coverage for _, coverage in known if not coverage.uncounted]
    if complete:
        which = "every case" if len(complete) == len(known) else f"{len(complete)} of {len(known)} cases"
        yield f"counted all operations in {which}"
    for item, coverage in known:
        if coverage.uncounted:
            yield f"{item.case.label()}: {coverage_line(coverage)}"


def no_bounds(case: Case) -> str:
    """Say why the bounds of a case are unknown."""
    if case.device is None:
        return NO_DEVICE
    return (
        f"no ceilings of {case.device} are known here: its bounds are unknown; give a device file as the roof, or"
        " measure it (--roof measured)"
    )


def device_notes(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Why a bound is unknown, and which steps do not fit into the memory of their device."""
    for item in evidence:
        if item.work is None or item.device is not None:
            continue
        yield no_bounds(item.case)
    if not all(item.room is None or item.room.fits for item in evidence):
        yield from misfits(evidence)


def misfits(evidence: Iterable[Evidence]) -> Iterator[str]:
    """Steps that do not fit into the memory of their device, the first ones by name: by how much, and the remedy.

    Then those of which nobody knows whether they do.
    """
    evidence = list(evidence)
    too_large = [(item.case, item.room) for item in evidence if item.room is not None and item.room.fits is False]
    for case, room in too_large[:_NAMED]:
        remedy = ""
        if room.largest == 0:
            remedy = "; not even one sample does"
        elif room.largest is not None:
            remedy = f"; batch {room.largest} is about the largest that fits (--largest-batch finds it exactly)"
        yield (
            f"{case.label()} does not fit: it needs {show(room.needed, 'B')} ({show(room.reserved, 'B')} of it to stay"
            f" free) of {show(room.memory, 'B')}, {show(room.excess, 'B')} too much{remedy}"
        )
    if len(too_large) > _NAMED:
        more = len(too_large) - _NAMED
        yield f"{more} more {'steps do not fit into the memory of their devices' if more > 1 else 'step does not fit'}"
    edge = [(item.case, item.room) for item in evidence if item.room is not None and item.room.borderline]
    for case, room in edge[:_NAMED]:
        yield (
            f"{case.label()} is at the borderline: it needs {show(room.needed, 'B')}, and the device has"
            f" {show(room.memory, 'B')} at least; how much more depends on its driver"
        )
