"""Comparisons as tables: two runs, evidence, kernels, devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rooflens.compare import (
    Advice,
    Agreement,
    AskedNumber,
    Correlation,
    DeviceComparison,
    DeviceRanking,
    Exponent,
    Joined,
    KernelComparison,
    PhaseRatio,
    RunChange,
    RunComparison,
    Sweep,
)
from rooflens.compare.agreement import ESTIMATED
from rooflens.compare.devices import TIME_WORDS
from rooflens.compare.doubts import Doubtful
from rooflens.compare.kernel_pairs import spelling
from rooflens.compare.uncertainty import LEVEL
from rooflens.errors import InvalidValue
from rooflens.records import LEVELS, Case
from rooflens.report.advice import advice_table
from rooflens.report.columns import CASE, PHASE, ROOM, case_columns, p_entry, whole
from rooflens.report.kernel_names import with_short_names
from rooflens.report.ranking import ranking_for_files, ranking_tables
from rooflens.report.series import asked_table, correlation_table, exponent_table, phases_table, sweep_table
from rooflens.report.table import COUNT, PERCENT, Column, ColumnNote, Entry, Show, Table, at, build
from rooflens.results import Time

STEP = "step"
_LONGEST = 40
"""Letters of a kernel's name that people see: its beginning tells the function."""
_MOST = 20
"""Rows that a table of launches or of worst pieces shows to people."""


def comparison_tables(compared: object, *, for_files: bool = False) -> list[Table]:
    """Return the tables of what a function of :mod:`rooflens.compare` gave.

    Args:
        for_files: leave out tables whose columns another one has too.

    Raises:
        InvalidValue: it is none of these.
    """
    if for_files and isinstance(compared, DeviceRanking):
        return _with_doubts(ranking_for_files(compared), compared)
    if isinstance(compared, tuple) and compared and isinstance(compared[0], Advice):
        return [advice_table(one) for one in compared]
    if isinstance(compared, tuple) and compared and type(compared[0]) in SERIES:
        return _with_doubts([SERIES[type(compared[0])](compared)], compared[0])
    if isinstance(compared, Doubtful) and type(compared) in SHOWN:
        return _with_doubts(SHOWN[type(compared)](compared), compared)
    hint = f"; read it first: rl.read({str(compared)!r})" if isinstance(compared, str | Path) else ""
    raise InvalidValue(f"cannot show {type(compared).__name__}: it is no comparison and no record set{hint}")


def _with_doubts(tables: Sequence[Table], compared: Doubtful) -> list[Table]:
    """Return the tables, the first with the doubts that its notes do not hold yet."""
    first, *others = tables
    new = (f"doubtful: {with_short_names(doubt)}" for doubt in compared.doubts if doubt not in first.notes)
    return [replace(first, notes=(*first.notes, *new)), *others]


def _across(before: Column, after: Column) -> Column:
    """Return the column of a field of the second side where it is not that of the first."""
    return replace(
        after,
        key=f"after_{after.key}",
        header=f"{after.header} after",
        title="",
        read=lambda row: None if after.entry(row) == before.entry(row) else after.entry(row),
    )


def _values(row: RunChange) -> Entry:
    """The values of the first side; people see those of both in one column."""
    if row.change.values is None:
        return Entry(None)
    before, after = row.change.values
    return Entry(before, label=f"{before}" if before == after else f"{before}, {after}")


def _verdict(row: RunChange) -> Entry:
    return Entry(row.direction, label=f"{row.direction}, doubtful" if row.doubts else None)


_BEFORE = case_columns("before")
_RUNS = (
    *_BEFORE,
    *map(_across, _BEFORE, case_columns("after")),
    replace(PHASE, read=lambda row: row.phase or STEP),
    Column("before", "before", "s", "before_seconds", group="time"),
    Column("after", "after", "s", "after_seconds", group="time"),
    Column("ratio", "ratio", read="change.ratio", group="change"),
    Column("low", "low", read="change.interval.0", group="change", show="room"),
    Column("high", "high", read="change.interval.1", group="change", show="room"),
    Column("p", "p", read=lambda row: p_entry(row.p), group="change"),
    Column("verdict", "verdict", read=_verdict, align="left", group="change"),
    Column("unit", "unit", read="change.unit", align="left", group="change", show="files"),
    Column("values_before", "n", COUNT, _values, group="change", show="room"),
    Column("values_after", "values after", COUNT, "change.values.1", group="change", show="files"),
)
_DIFFERENCE = (
    Column(
        "what",
        "differs",
        read=lambda item: item.what + ("" if item.cases is None else f" ({item.cases} cases)"),
        align="left",
    ),
    Column("before", "before", read=lambda item: _known(item.before), align="left"),
    Column("after", "after", read=lambda item: _known(item.after), align="left"),
    Column("forbids", "forbids", align="left", show="files"),
)


def runs_tables(compared: RunComparison) -> list[Table]:
    """Return one row per case and phase; then what differs around them, and cases without a partner."""
    notes = [
        "ratio: after over before, of medians",
        ColumnNote("low, high: its 95 % interval", "low"),
        ColumnNote(
            f"p: that nothing changed, adjusted for the number of rows; slower or faster: below {LEVEL:g}, and 1 is not"
            " in the interval",
            "p",
        ),
        ColumnNote("n: how many values of each side: samples, or runs where there are several", "values_before"),
        *compared.notes,
    ]
    tables = [build("Two runs", _RUNS, compared.changes, notes=notes)]
    if compared.differences:
        tables.append(build("What else differs", _DIFFERENCE, compared.differences))
    return [*tables, *_alone({"the first side": compared.only_before, "the second side": compared.only_after})]


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class _Alone:
    """A case without a partner, and where it was seen."""

    case: Case
    where: str


def _alone(sides: dict[str, Sequence[Case]]) -> Iterator[Table]:
    rows = [_Alone(case, where) for where, cases in sides.items() for case in cases]
    if rows:
        yield build("Without a partner", (*CASE, Column("where", "only on", align="left")), rows)


def _amount(key: str, header: str, unit: str, path: str) -> Column:
    """Return the column of what one source says of the work of a piece."""
    return Column(key, header, unit, lambda row: whole(at(row, path.split("."))), group="work")


def _piece_phase(row: Joined) -> str | None:
    is_whole = not row.key.path + row.key.kind + row.key.name
    return row.key.phase or (STEP if is_whole else None)


_AGREEMENT = (
    *CASE,
    replace(PHASE, read=_piece_phase),
    Column("path", "module", read="key.path", align="left"),
    Column("kind", "family", read="key.kind", align="left"),
    Column("name", "operation", read=lambda row: _short(row.key.name) if row.key.name else None, align="left"),
    Column("predicted", "expected", "s", "estimated.predicted", group="time"),
    Column("predicted_error", "error", PERCENT, lambda row: row.error("predicted"), group="time"),
    Column("bound", "bound", "s", "estimated.seconds", group="time"),
    Column("measure_seconds", "measured", "s", "observed.measure.seconds", group="time"),
    Column("profile_seconds", "profiled", "s", "observed.profile.seconds", group="time"),
    Column("counters_seconds", "under ncu", "s", "observed.counters.seconds", group="time"),
    Column("bound_ratio", "over bound", read=lambda row: row.ratio("bound"), group="time"),
    _amount("flops", "FLOP", "FLOP", "estimated.flops"),
    _amount("executed", "executed", "FLOP", "observed.counters.flops"),
    Column("flops_ratio", "executed over FLOP", read=lambda row: row.ratio("flops"), group="work"),
    _amount("dram", "DRAM", "B", "estimated.dram"),
    _amount("counted", "counted", "B", "observed.counters.dram"),
    Column("dram_ratio", "counted over DRAM", read=lambda row: row.ratio("dram"), group="work"),
    Column("paired", "paired", group="work", show="files"),
)
_ERRORS = (
    Column("quantity", "estimated", align="left"),
    Column("count", "pairs", COUNT),
    Column("mape", "MAPE", PERCENT),
    Column("median", "median", PERCENT),
    Column("p90", "p90", PERCENT),
    Column("bias", "bias", PERCENT),
)
_SHARES = (
    Column("source", "source", align="left"),
    Column("pieces", "pieces", COUNT),
    Column("joined", "with a partner", COUNT),
    Column("share", "of its time", PERCENT),
)


def agreement_tables(compared: Agreement) -> list[Table]:
    """Return what each source says of every piece, the errors of the estimates, and how much of each was joined.

    Pieces without a partner stand below the others, alone in their rows.
    """
    notes = [
        "ratios: observed over estimated; errors: (estimated - observed) / observed; MAPE, median, p90 without sign",
        *compared.notes,
    ]
    observers = {name for row in compared.rows for name in row.observed}
    if observers and ("measure" not in observers or any(row.key.path + row.key.kind for row in compared.rows)):
        notes.append(ColumnNote("expected: on the device alone, without waiting for the host", "predicted"))
    alone = len(compared.unpaired)
    if alone:
        notes.append(f"{alone} of {len(compared.rows)} rows have no partner: a dash where a source has no such piece")
    errors = {name: their for name in ESTIMATED if (their := compared.errors(name)) is not None}
    rows = sorted(compared.rows, key=lambda row: not row.paired)
    tables = [build("Evidence", _AGREEMENT, rows, notes=notes)]
    if errors:
        named = ({"quantity": ESTIMATED[name].title, **asdict(their)} for name, their in errors.items())
        tables.append(build("Errors of the estimates", _ERRORS, named))
    if errors and len(compared.rows) > _MOST:
        tables.append(build("Furthest apart", _AGREEMENT, compared.worst(next(iter(errors)), _MOST)))
    return [*tables, build("Joined", _SHARES, compared.coverage)]


def _short(kernel: str) -> Entry:
    """Return the name, for people without what makes it long."""
    short = spelling(kernel).removeprefix("void ")
    return Entry(kernel, label=short if len(short) <= _LONGEST else short[: _LONGEST - 3] + "...")


def _both(key: str, header: str, unit: str, show: Show = "always", path: str = "") -> Iterator[Column]:
    """Yield the columns of an amount on both sides; what a side does not launch has no amount there."""

    def read(side: str) -> Callable[[Any], int | float | None]:
        def amount(kernel: Any) -> int | float | None:
            what = getattr(kernel, side)
            return whole(at(what, (path or key).split("."))) if what.launches or key == "launches" else None

        return amount

    for side in ("before", "after"):
        yield Column(f"{key}_{side}", f"{header} {side}", unit, read(side), group=key, show=show)


_RATIO = Column("ratio", "ratio", group="seconds")
_GREW = Column("gained", "grew by", "s", group="seconds")
_KERNEL = (
    Column("kernel", "kernel", read=lambda kernel: _short(kernel.name), align="left"),
    *_both("launches", "launches", COUNT),
    *_both("seconds", "time", "s"),
    _RATIO,
    _GREW,
    *_both("flops", "FLOP", "FLOP", "room"),
    *_both("dram", "DRAM", "B", "room"),
)


def _pieces(by: str) -> Iterator[Column]:
    """Yield the columns of launches by phase, module or family: what each level moved, too."""
    unknown = {"module": "(the model itself)"}.get(by, "(unknown)")
    yield Column(by, by, read=lambda row: Entry(row.name, label=row.name or unknown), align="left")
    for column in (*_KERNEL[1:5], replace(_RATIO, header="time ratio"), _GREW):
        yield replace(column, group="time")
    ratios = {level: partial(lambda row, level: row.bytes_ratio(level), level=level) for level in LEVELS}
    for key, header, unit, group in (
        ("flops", "FLOP", "FLOP", "work"),
        *((level, level.upper(), "B", "work" if level == "dram" else "caches") for level in LEVELS),
    ):
        for column in _both(key, header, unit, path="" if key == "flops" else f"bytes.{key}"):
            yield replace(column, group=group)
        yield Column(f"{key}_ratio", f"{header} ratio", read=ratios.get(key, f"{key}_ratio"), group=group)


_LAUNCH = (
    Column("kernel", "kernel", read=lambda launch: _short(launch.name), align="left"),
    Column("number", "launch", COUNT),
    Column(
        "where",
        "only on",
        read=lambda launch: "the first side" if launch.after is None else "the second side",
        align="left",
    ),
    Column("seconds_before", "time before", "s", "before.seconds", group="seconds"),
    Column("seconds_after", "time after", "s", "after.seconds", group="seconds"),
)


def kernel_tables(compared: KernelComparison) -> list[Table]:
    """Return one row per kernel, phase, module or family, the largest change first; then launches without a partner."""
    total = replace(compared.total, name="all")
    if compared.by != "kernel":
        columns, title = _pieces(compared.by), f"Kernels by {compared.by}"
        notes = ["ratio: after over before; a single step says nothing of chance"]
        return [build(title, columns, compared.kernels, total=total, notes=notes)]
    notes = ["the n-th launch of a name is put beside the n-th of that name; a single launch says nothing of chance"]
    tables = [build("Kernels", _KERNEL, compared.kernels, total=total, notes=notes)]
    alone = [*compared.only_before, *compared.only_after]
    if alone:
        tables.append(build("Launches without a partner", _LAUNCH, alone))
    return tables


_DEVICES = (
    *CASE,
    Column("seconds", "time", "s", group="time"),
    Column("speedup", "speed-up", group="time"),
    Column("low", "low", read="interval.0", group="time", show="room"),
    Column("high", "high", read="interval.1", group="time", show="room"),
    Column("watts", "power", "W", group="power"),
    Column("joules_per_sample", "J per sample", group="power", show="room"),
    Column("speedup_per_watt", "speed-up per watt", group="power"),
    Column("price", "price", group="price"),
    Column("speedup_per_price", "speed-up per price", group="price"),
    Column("time_is", "time is", read="time", align="left", group="time", show="files"),
    *ROOM,
)


_TIME_HEADERS: Mapping[Time, str] = {"measured": "measured", "predicted": "expected", "bound": "bound"}


def devices_tables(compared: DeviceComparison) -> list[Table]:
    """Return one row per step and device."""
    times = {row.time: TIME_WORDS[row.time] for row in compared.rows}
    header = _TIME_HEADERS[compared.rows[0].time] if len(times) == 1 else "time"
    columns = [replace(column, header=header) if column.key == "seconds" else column for column in _DEVICES]
    notes = [
        f"speed-up: seconds on {compared.baseline} over those on the device, {' and '.join(times.values())}",
        "per watt, per price: speed-up over the ratio of rated powers, of prices; above 1 it does more for it",
    ]
    return [build("Devices", columns, compared.rows, notes=notes), *_alone({"one device": compared.alone})]


SHOWN: Mapping[type, Callable[[Any], list[Table]]] = {
    RunComparison: runs_tables,
    Agreement: agreement_tables,
    KernelComparison: kernel_tables,
    DeviceComparison: devices_tables,
    DeviceRanking: ranking_tables,
}
SERIES: Mapping[type, Callable[[Any], Table]] = {
    Correlation: correlation_table,
    Exponent: exponent_table,
    PhaseRatio: phases_table,
    Sweep: sweep_table,
    AskedNumber: asked_table,
}
