"""The table that tells which device, at what batch; what is the same on all of them stands once, above."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rooflens.compare import DeviceRanking
from rooflens.compare.ranking import RankedBy, RankedDevice, quantity_by
from rooflens.records import Failure
from rooflens.report.case_names import differing
from rooflens.report.columns import BOUNDS, EXPECTED, WAITS, WORK, case_columns
from rooflens.report.counts import counts
from rooflens.report.expected_notes import few
from rooflens.report.table import COUNT, Column, Entry, Sign, Table, build
from rooflens.report.table_notes import number_notes, total_notes
from rooflens.results import Quantity
from rooflens.results.answers import COST_PER_ANSWER, COST_PER_SAMPLE
from rooflens.results.quantities import MEMORY, PARAMETERS
from rooflens.results.totals import grouped_by
from rooflens.units import show

_SMALL = {COST_PER_SAMPLE: (1e6, "cost /M samples"), COST_PER_ANSWER: (1e3, "cost /1000 answers")}
"""Costs of one that people read better of many."""
_STEP = case_columns("step")
_ANYWHERE = tuple(column for column in _STEP if column.key != "device")
_PARAMETERS = Column("parameters", PARAMETERS.header, read="evidence.parameters", group="work")
_PEAK = Column("peak", "peak memory", "B", lambda row: MEMORY.read(row.evidence).value, group="work")


def _numbered(mode: str, by: RankedBy) -> Column:
    """Return the column of a number that devices can be ranked by."""
    quantity = quantity_by(mode, by)
    factor, header = _SMALL.get(quantity, (1.0, f"expected {quantity.header}" if by == "energy" else quantity.header))

    def read(row: RankedDevice) -> Entry:
        value = row.value(by)
        if row.fits is False:
            return Entry(value, label="-")
        sign: Sign = "" if value is None or row.time == "predicted" else _limit(quantity)
        return Entry(value, sign, label=None if value is None or factor == 1 else show(factor * value, "", 3))

    return Column(quantity.name, header, quantity.unit, read, group="time")


def _limit(quantity: Quantity) -> Sign:
    """The least time makes the most of a rate, and the least of a cost."""
    return "<=" if quantity.better == "more" else ">="


def _price(row: RankedDevice) -> Entry:
    value = dict(row.evidence.case.options).get("price_per_hour")
    return Entry(value, label=None if value is None else f"{value:g}")


def _fitting(row: RankedDevice) -> Entry:
    if row.room is not None and row.room.borderline:
        return Entry(None, label="borderline")
    if row.fits is not False or row.room is None:
        return Entry(row.fits, label=None if row.fits is None else "yes")
    largest = row.room.largest
    return Entry(False, label="no" if largest is None else f"no, <= {largest}" if largest else "not even 1")


def _columns(mode: str, by: RankedBy, *, marked: bool) -> tuple[Column, ...]:
    leading = {column.key: column for column in _STEP}
    batch = leading["batch"]
    if marked:
        batch = replace(
            batch, read=lambda row: Entry(row.step.batch, mark="*" if row.best and row.fits is not False else "")
        )
    return (
        replace(leading["device"], title=""),  # a row is a device, even the only one
        *(batch if key == "batch" else column for key, column in leading.items() if key != "device"),
        *(replace(column, show="always") if column.key == "predicted_low" else column for column in EXPECTED),
        replace(BOUNDS[0], show="room"),
        replace(BOUNDS[1], show="files"),
        replace(WAITS, show="files"),
        Column("price", "price /h", read=_price, group="time", if_any=True),
        *(_numbered(mode, name) for name in ("throughput", "cost")),
        replace(_numbered(mode, "energy"), show="room" if by == "cost" else "always"),
        Column("fits", "fits", read=_fitting, align="left", group="time", title="fits: {}"),
        Column("largest_batch", "largest batch", COUNT, "room.largest", group="time", show="files"),
        Column("needed", "needs", "B", "room.needed", group="time"),
        Column("best", "best batch", group="time", show="files"),
        *(replace(column, show="files") for column in (_PARAMETERS, *WORK, _PEAK)),
    )


def ranking_tables(compared: DeviceRanking) -> list[Table]:
    """Return for each mode what is counted, and the devices in their order; the latter has all in its columns for
    files.
    """
    tables = []
    for mode, rows in grouped_by(compared.rows, lambda row: row.step.mode).items():
        columns = _columns(mode, compared.by, marked=not all(row.best for row in rows))
        counted = counts("Counts on any device", _ANYWHERE, _by_batch(rows), (_PARAMETERS, _PEAK))
        counted = replace(counted, rows=tuple(dict.fromkeys(counted.rows)))
        tables += [counted, build("Which card", columns, rows, notes=_notes(compared, mode, rows))]
    return tables


def _by_batch(rows: Sequence[RankedDevice]) -> list[RankedDevice]:
    """The rows of each step that differs in more than its batch, the smallest batch first."""
    alike = grouped_by(rows, lambda row: replace(row.step, device=None, batch=None))
    return [row for group in alike.values() for row in sorted(group, key=lambda row: row.step.batch or 0)]


def ranking_for_files(compared: DeviceRanking) -> list[Table]:
    """Return the tables that have everything in their columns."""
    return ranking_tables(compared)[1::2]


def _notes(compared: DeviceRanking, mode: str, rows: Sequence[RankedDevice]) -> Iterator[str]:
    title = "time" if compared.by == "time" else quantity_by(mode, compared.by).title
    at = ""
    if compared.batches:
        alone = all(row.best for row in rows)
        tried = f" of {', '.join(map(str, compared.batches))} (-b shows each)" if alone else " (*)"
        at = f" at the device's best batch that fits{tried}"
    steps = list(dict.fromkeys(replace(row.step, device=None, batch=None) for row in rows))
    apart = f", each {' and '.join(differing(steps))} by itself" if len(steps) > 1 else ""
    missing = list(dict.fromkeys(row.step.device or "" for row in rows if row.best and row.fits is False))
    if any(row.best and row.fits is not False for row in rows):
        yield f"in the order of the expected {title}{at}{apart}"
    if missing:
        yield (
            f"does not fit on {few(missing)}: last, the least shortage of memory first, without rates and costs;"
            " expected and bound are those of a larger memory"
        )
    yield from total_notes(row.total for row in rows if row.total is not None)
    yield from compared.records.where(mode=mode).notes
    waiting = [row for row in rows if (p := row.total and row.total.prediction) and p.regime == "host-bound"]
    if waiting:
        names = dict.fromkeys(row.step.device or "" for row in waiting)
        yield (
            f"host-bound, so that the card hardly matters: {few(list(names))}; --cuda-graph and --compile tell what"
            " less work for the host gives"
        )
    yield from number_notes(row.total for row in rows)
    if any(row.value("energy") is not None for row in rows):
        energy = quantity_by(mode, "energy").header
        yield f"expected {energy}: the card at its power limit all the time, an upper figure"
    bounded = list(dict.fromkeys(row.step.device or "" for row in rows if row.time == "bound"))
    if bounded:
        yield (
            f"no time can be expected of {few(bounded)}, since it is known of single GPUs only: last, by what the"
            " bound allows (<=, >=)"
        )
    if any(row.room is not None and row.room.largest for row in rows):
        yield "fits: no, <= the largest batch that does, about (estimate --largest-batch finds it exactly)"
    if any(row.room is not None and row.room.borderline for row in rows):
        yield "fits: borderline, it depends on what the card's driver takes (docs/memory.md)"
    for message, failed in grouped_by(compared.failed, _reason).items():
        devices = dict.fromkeys(failure.case.device or "" for failure in failed)
        yield f"not ranked: {few(list(devices))}: {message}"


def _reason(failure: Failure) -> str:
    """What a device lacks, without what it has; of anything else the whole message."""
    return failure.message.partition(":")[0] if failure.kind == "unsupported" else failure.message
