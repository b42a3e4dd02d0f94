"""Comparisons as tables: two runs, evidence, kernels, devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace

from rooflens.compare import (
    Agreement,
    DeviceComparison,
    Joined,
    Kernel,
    KernelComparison,
    OnDevice,
    RunChange,
    RunComparison,
)
from rooflens.compare.agreement import ESTIMATED, OBSERVERS
from rooflens.compare.kernel_pairs import KernelSum, LaunchPair, spelling
from rooflens.compare.resampling import LEVEL
from rooflens.records import Case
from rooflens.report.columns import CASE, PHASE, case_cells, p_cell, whole
from rooflens.report.table import COUNT, PERCENT, Column, Entries, Entry, Table, build

STEP = "step"
_LONGEST = 40
"""Letters of a kernel's name that people see: its beginning tells the function."""
_MOST = 20
"""Rows that a table of launches or of worst pieces shows to people."""

_ACROSS = tuple(
    replace(column, key=f"after_{column.key}", header=f"{column.header} after", title="") for column in CASE
)
"""Fields of the second side that are not those of the first."""
_RUNS = (
    Column(key="before", header="before", unit="s", group="time"),
    Column(key="after", header="after", unit="s", group="time"),
    Column(key="ratio", header="ratio", group="change"),
    Column(key="low", header="low", group="change", show="room"),
    Column(key="high", header="high", group="change", show="room"),
    Column(key="p", header="p", group="change"),
    Column(key="verdict", header="verdict", align="left", group="change"),
    Column(key="unit", header="unit", align="left", group="change", show="files"),
    Column(key="values_before", header="values before", unit=COUNT, group="change", show="files"),
    Column(key="values_after", header="values after", unit=COUNT, group="change", show="files"),
)
_DIFFERENCE = (
    Column(key="what", header="differs", align="left"),
    Column(key="before", header="before", align="left"),
    Column(key="after", header="after", align="left"),
    Column(key="forbids", header="forbids", align="left", show="files"),
)
_ALONE = (*CASE, Column(key="where", header="only on", align="left"))


def runs_tables(found: RunComparison) -> list[Table]:
    """One row per case and phase; then what differs around them, and cases without a partner."""
    notes = [
        "ratio: after over before, of medians, with its 95 % interval",
        f"p: that nothing changed, adjusted for the number of rows; slower or faster: below {LEVEL:g}, and no 1 inside",
        *found.notes,
    ]
    tables = [build("Two runs", (*CASE, *_ACROSS, PHASE, *_RUNS), map(_run, found.changes), notes=notes)]
    if found.differences:
        rows: list[Entries] = [
            {
                "what": item.what + ("" if item.cases is None else f" ({item.cases} cases)"),
                "before": _told(item.before),
                "after": _told(item.after),
                "forbids": item.forbids,
            }
            for item in found.differences
        ]
        tables.append(build("What else differs", _DIFFERENCE, rows))
    return [*tables, *_alone({"the first side": found.only_before, "the second side": found.only_after})]


def _run(row: RunChange) -> Entries:
    low, high = row.change.interval or (None, None)
    before, after = case_cells(row.before), case_cells(row.after)
    return {
        **before,
        **{f"after_{key}": value for key, value in after.items() if value != before[key]},
        "phase": row.phase or STEP,
        "before": row.before_seconds,
        "after": row.after_seconds,
        "ratio": row.change.ratio,
        "low": low,
        "high": high,
        "p": p_cell(row.p),
        "verdict": row.direction,
        "unit": row.change.unit,
        "values_before": row.change.values[0],
        "values_after": row.change.values[1],
    }


def _told(value: object) -> str:
    return "unknown" if value is None else str(value)


def _alone(sides: dict[str, Sequence[Case]]) -> Iterator[Table]:
    rows = [case_cells(case) | {"where": where} for where, cases in sides.items() for case in cases]
    if rows:
        yield build("Without a partner", _ALONE, rows)


_PIECE = (
    PHASE,
    Column(key="path", header="module", align="left"),
    Column(key="kind", header="family", align="left"),
    Column(key="name", header="operation", align="left"),
)
_OBSERVED = tuple(
    Column(key=f"{source}_seconds", header=header, unit="s", group="time")
    for source, header in (("measure", "measured"), ("profile", "profiled"), ("counters", "under ncu"))
)
_AGREEMENT = (
    Column(key="predicted", header="predicted", unit="s", group="time"),
    Column(key="predicted_error", header="error", unit=PERCENT, group="time"),
    Column(key="bound", header="bound", unit="s", group="time"),
    *_OBSERVED,
    Column(key="bound_ratio", header="over bound", group="time"),
    Column(key="flops", header="FLOP", unit="FLOP", group="work"),
    Column(key="executed", header="executed", unit="FLOP", group="work"),
    Column(key="flops_ratio", header="executed over FLOP", group="work"),
    Column(key="dram", header="DRAM", unit="B", group="work"),
    Column(key="counted", header="counted", unit="B", group="work"),
    Column(key="dram_ratio", header="counted over DRAM", group="work"),
    Column(key="paired", header="paired", group="work", show="files"),
)
_ERRORS = (
    Column(key="quantity", header="estimated", align="left"),
    Column(key="count", header="pairs", unit=COUNT),
    Column(key="mape", header="MAPE", unit=PERCENT),
    Column(key="median", header="median", unit=PERCENT),
    Column(key="p90", header="p90", unit=PERCENT),
    Column(key="bias", header="bias", unit=PERCENT),
)
_COVERAGE = (
    Column(key="source", header="source", align="left"),
    Column(key="pieces", header="pieces", unit=COUNT),
    Column(key="joined", header="with a partner", unit=COUNT),
    Column(key="share", header="of its time", unit=PERCENT),
)


def agreement_tables(found: Agreement) -> list[Table]:
    """Every piece in the eyes of each source, the errors of the estimates, and how much of each source was joined.

    Pieces without a partner stand below the others, alone in their rows.
    """
    rows = sorted(found.rows, key=lambda row: not row.paired)
    notes = [
        "ratios: observed over estimated; errors: (estimated - observed) / observed; MAPE, median, p90 without sign",
        *found.notes,
    ]
    alone = len(found.unpaired)
    if alone:
        notes.append(f"{alone} of {len(found.rows)} rows have no partner: a dash where a source has no such piece")
    errors: list[Entries] = [
        {"quantity": quantity.title, **asdict(their)}
        for name, quantity in ESTIMATED.items()
        if (their := found.errors(name)) is not None
    ]
    covered: list[Entries] = [asdict(item) for item in found.coverage]
    tables = [build("Evidence", (*CASE, *_PIECE, *_AGREEMENT), map(_joined, rows), notes=notes)]
    if errors:
        tables.append(build("Errors of the estimates", _ERRORS, errors))
    quantity = next((name for name in ESTIMATED if found.errors(name) is not None), None)
    if quantity is not None and len(found.rows) > _MOST:
        worst = found.worst(quantity, _MOST)
        tables.append(build("Furthest apart", (*CASE, *_PIECE, *_AGREEMENT), map(_joined, worst)))
    return [*tables, build("Joined", _COVERAGE, covered)]


def _joined(row: Joined) -> Entries:
    estimated = row.estimated
    seen = {source: row.observed.get(source) for source in OBSERVERS}
    pairs = {quantity: row.pair(quantity) for quantity in ("flops", "dram")}
    counters = seen["counters"]
    return {
        **case_cells(row.case),
        "phase": row.key.phase or (STEP if not row.key.path + row.key.kind + row.key.name else None),
        "path": row.key.path,
        "kind": row.key.kind,
        "name": _named(row.key.name) if row.key.name else None,
        "predicted": None if estimated is None else estimated.predicted,
        "predicted_error": row.error("predicted"),
        "bound": None if estimated is None else estimated.seconds,
        **{f"{source}_seconds": None if what is None else what.seconds for source, what in seen.items()},
        "bound_ratio": row.ratio("bound"),
        "flops": None if estimated is None else whole(estimated.flops),
        "executed": None if counters is None else whole(counters.flops),
        "flops_ratio": None if pairs["flops"] is None else row.ratio("flops"),
        "dram": None if estimated is None else whole(estimated.dram),
        "counted": None if counters is None else whole(counters.dram),
        "dram_ratio": None if pairs["dram"] is None else row.ratio("dram"),
        "paired": row.paired,
    }


def _sides(key: str, header: str, unit: str, show: str = "always") -> tuple[Column, Column]:
    first, second = (
        Column(key=f"{key}_{side}", header=f"{header} {side}", unit=unit, group=key, show=show)  # type: ignore[arg-type]
        for side in ("before", "after")
    )
    return first, second


_KERNEL = (
    Column(key="kernel", header="kernel", align="left"),
    *_sides("launches", "launches", COUNT),
    *_sides("seconds", "time", "s"),
    Column(key="ratio", header="ratio", group="seconds"),
    Column(key="gained", header="grew by", unit="s", group="seconds"),
    *_sides("flops", "FLOP", "FLOP", "room"),
    *_sides("dram", "DRAM", "B", "room"),
)
_LAUNCH = (
    Column(key="kernel", header="kernel", align="left"),
    Column(key="number", header="launch", unit=COUNT),
    Column(key="where", header="only on", align="left"),
    *_sides("seconds", "time", "s"),
)


def kernel_tables(found: KernelComparison) -> list[Table]:
    """One row per kernel, the largest change first; then the launches that have no partner."""
    notes = ["the n-th launch of a name is put beside the n-th of that name; a single launch says nothing of chance"]
    total = _kernel(found.total) | {"kernel": "all"}
    tables = [build("Kernels", _KERNEL, map(_kernel, found.kernels), total=total, notes=notes)]
    alone = [*found.only_before, *found.only_after]
    if alone:
        tables.append(build("Launches without a partner", _LAUNCH, map(_launch, alone)))
    return tables


def _kernel(kernel: Kernel) -> Entries:
    return {
        "kernel": _named(kernel.name),
        **_beside("launches", kernel.before, kernel.after),
        **_beside("seconds", kernel.before, kernel.after),
        "ratio": kernel.ratio,
        "gained": kernel.gained,
        **_beside("flops", kernel.before, kernel.after),
        **_beside("dram", kernel.before, kernel.after),
    }


def _named(kernel: str) -> Entry:
    """The name, for people without what makes it long."""
    short = spelling(kernel).removeprefix("void ")
    return Entry(kernel, label=short if len(short) <= _LONGEST else short[: _LONGEST - 3] + "...")


def _beside(name: str, before: KernelSum, after: KernelSum) -> Entries:
    """An amount on both sides; what a side does not launch has no amount there."""
    return {
        f"{name}_{side}": whole(getattr(what, name)) if what.launches or name == "launches" else None
        for side, what in (("before", before), ("after", after))
    }


def _launch(launch: LaunchPair) -> Entries:
    times = [
        None if record is None or record.timing is None else record.timing.median * record.calls
        for record in (launch.before, launch.after)
    ]
    before, after = times
    return {
        "kernel": _named(launch.name),
        "number": launch.number,
        "where": None if launch.paired else "the first side" if launch.after is None else "the second side",
        "seconds_before": before,
        "seconds_after": after,
    }


_DEVICES = (
    Column(key="seconds", header="time", unit="s", group="time"),
    Column(key="speedup", header="speed-up", group="time"),
    Column(key="low", header="low", group="time", show="room"),
    Column(key="high", header="high", group="time", show="room"),
    Column(key="watts", header="power", unit="W", group="power"),
    Column(key="joules_per_sample", header="J per sample", group="power", show="room"),
    Column(key="speedup_per_watt", header="speed-up per watt", group="power"),
    Column(key="price", header="price", group="price"),
    Column(key="speedup_per_price", header="speed-up per price", group="price"),
    Column(key="time_is", header="time is", align="left", group="time", show="files"),
)


def devices_tables(found: DeviceComparison) -> list[Table]:
    """One row per step and device."""
    notes = [
        f"speed-up: seconds on {found.baseline} over those on the device, {_time_words(found.rows)}",
        "per watt, per price: speed-up over the ratio of rated powers, of prices; above 1 it does more for it",
    ]
    tables = [build("Devices", (*CASE, *_DEVICES), map(_on_device, found.rows), notes=notes)]
    return [*tables, *_alone({"one device": found.alone})]


def _time_words(rows: Iterable[OnDevice]) -> str:
    return " and ".join("measured" if time == "measured" else "at the bound" for time in {row.time for row in rows})


def _on_device(row: OnDevice) -> Entries:
    low, high = row.interval or (None, None)
    return {
        **case_cells(row.case),
        "seconds": row.seconds,
        "speedup": row.speedup,
        "low": low,
        "high": high,
        "watts": row.watts,
        "joules_per_sample": row.joules_per_sample,
        "speedup_per_watt": row.speedup_per_watt,
        "price": row.price,
        "speedup_per_price": row.speedup_per_price,
        "time_is": row.time,
    }
