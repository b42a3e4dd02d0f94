"""What nvprof printed as CSV: a trace of the GPU, a summary of kernels, or metrics of kernels.

Layouts: NVIDIA's Profiler User's Guide, and files that others published. Lines of nvprof itself begin with ``==``;
below the header of a trace or summary stands a row of units.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rooflens import units
from rooflens.errors import FileError
from rooflens.opening import at_most, check_columns, opened_lines, text_of
from rooflens.records import Case, Record, Timing, Work
from rooflens.records.record import MOST_CALLS
from rooflens.records.timing import LONGEST
from rooflens.sources.profile.device_time import doubt_of_shares, plausible, summed_in_words
from rooflens.sources.profile.events import ActivityKind, DeviceActivity, Events
from rooflens.sources.profile.nsys import Export, records_of

_TRACE, _SUMMARY = {"Start", "Duration", "Stream", "Name"}, {"Time(%)", "Time", "Calls", "Avg", "Name"}
_METRICS, _EVENTS = {"Kernel", "Invocations", "Metric Name", "Avg"}, {"Kernel", "Invocations", "Event Name", "Avg"}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_COPIES: Mapping[str, ActivityKind] = {"[CUDA memcpy": "memcpy", "[CUDA memset": "memset"}
_TITLE = re.compile(r"(.*?) \((\d+)\)")
_WITH_TENSOR_CORES = re.compile(r"V100|TITAN V|GV100|Xavier")
"""Of the devices whose metrics nvprof reads, these alone have tensor cores."""
_FLOPS = {
    "flop_count_dp": "vector.fp64",
    "flop_count_sp": "vector.fp32",
    "flop_count_hp": "vector.fp16",
    "flop_count_sp_special": "special.fp32",
}
"""Metrics in which an FMA counts twice, by the unit whose FLOP they are."""
_BYTES = (
    ("dram", {"dram_read_bytes": 1, "dram_write_bytes": 1}),
    ("dram", {"dram_read_transactions": 32, "dram_write_transactions": 32}),
    ("l2", {"l2_read_transactions": 32, "l2_write_transactions": 32}),
)
_COLLECT = (
    "nvprof --csv --print-gpu-trace for times, or nvprof --csv --metrics"
    " flop_count_sp,flop_count_dp,dram_read_bytes,dram_write_bytes for work"
)
_MOST_NAMES = 5
_ROUGHLY = 0.02
"""Share by which a time may differ from calls times mean, which are printed with few digits."""


def is_nvprof(head: bytes) -> bool:
    """True if a file begins with lines of nvprof, or with the header of one of its tables."""
    text = text_of(head)
    return "NVPROF is profiling process" in text or any(map(_table, text.splitlines()[:20]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row below one of the headers: its cells and their units by column, and whether it tells calls on the host.

    `table` is the line of its header.
    """

    line: int
    table: int
    cells: Mapping[str, str]
    units: Mapping[str, str]
    of_host: bool = False


@dataclass(slots=True)
class NvprofFile:
    """What a file holds: activities with begin and end, rows of summaries, metrics by device and kernel, and notes."""

    where: str
    activities: list[DeviceActivity] = field(default_factory=list)
    titles: dict[int, str] = field(default_factory=dict)
    summed: list[tuple[str, float, int]] = field(default_factory=list)
    shares: dict[int, list[str]] = field(default_factory=dict)
    metrics: dict[tuple[str, str, int], dict[str, float]] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_nvprof(path: Path) -> NvprofFile:
    """Return what a file holds; FileError if it is damaged, or holds nothing that can be used."""
    file, host, twice, summaries = NvprofFile(repr(str(path))), 0, 0, set[tuple[int, str]]()
    with opened_lines(path) as lines:
        for columns, row in at_most(_rows(lines, file.where), file.where):
            if columns >= _TRACE:
                _take_activity(file, row)
            elif columns >= _SUMMARY:
                is_host = row.of_host or row.cells.get("Type", "GPU activities") != "GPU activities"
                host += is_host
                key = (row.table, "\0".join(row.cells.values()))
                twice += not is_host and key in summaries
                if not is_host and key not in summaries:
                    _take_summary(file, row)
                    summaries.add(key)
            elif columns >= _METRICS:
                _take_metric(file, row)
            else:
                file.seen[row.cells["Event Name"]] = None
    if host:
        file.notes.append(f"{host} rows of calls on the host are no time of the GPU and were left out")
    if twice:
        file.notes.append(f"{twice} rows of the summary stand there twice and count once")
    told = (doubt_of_shares(its, f"the table in line {line}") for line, its in file.shares.items())
    file.notes += filter(None, told)
    useful = any(
        name in _FLOPS or any(name in terms for _, terms in _BYTES) for its in file.metrics.values() for name in its
    )
    if not (file.activities or file.summed or useful):
        names = list(file.seen)[:_MOST_NAMES]
        has = f"it has {', '.join(names)}" if names else "no table of kernels is in it"
        why = "; ".join((has, *file.notes))
        raise FileError(f"{file.where} holds no time and no work of a kernel: {why}. Collect it with {_COLLECT}")
    return file


def nvprof_records(file: NvprofFile, case_of: Callable[[str | None, int | None], Case]) -> Iterator[Record]:
    """Give the records of a file; `case_of` gives the case of a device by title, and number where there are several."""
    notes = tuple(file.notes)
    if file.activities:
        activities, doubts = plausible(file.activities)
        export = Export(events=Events(activities=activities), titles=file.titles, named=False, notes=(*doubts, *notes))
        several = len(file.titles) > 1
        yield from records_of(export, lambda number: case_of(file.titles.get(number or 0), number if several else None))
        notes = ()
    for name, seconds, calls in file.summed:
        timing = Timing(samples=(seconds,), origin="profiler")
        yield Record(
            case=case_of(None, None), source="profile", scope="kernel", path="(unattributed)", kind="other", name=name,
            timing=timing, calls=calls, notes=notes,
        )  # fmt: skip
        notes = ()
    if file.summed:
        total = math.fsum(seconds * calls for _, seconds, calls in file.summed)
        told = summed_in_words(total, sum(calls for _, _, calls in file.summed), len(file.summed))
        yield Record(case=case_of(None, None), source="profile", scope="model", notes=(told,))
    for (title, kernel, calls), metrics in file.metrics.items():
        work, why = _work(title, kernel, metrics)
        yield Record(
            case=case_of(title or None, None), source="counters", scope="kernel", path="(unattributed)", kind="other",
            name=kernel, work=work, calls=calls, notes=(*why, *notes),
        )  # fmt: skip
        notes = ()


def _work(title: str, kernel: str, metrics: Mapping[str, float]) -> tuple[Work, tuple[str, ...]]:
    """What a kernel did in one launch, and notes."""
    flops = {resource: metrics[name] for name, resource in _FLOPS.items() if name in metrics}
    levels: dict[str, float] = {}
    for level, terms in _BYTES:
        if level not in levels and terms.keys() <= metrics.keys():
            levels[level] = sum(metrics[name] * factor for name, factor in terms.items())
    notes = []
    tensor = _WITH_TENSOR_CORES.search(title) is not None
    if tensor:
        notes.append("matrix FLOP are unknown: nvprof counts no operations of tensor cores")
    if left := [resource for resource in _FLOPS.values() if flops and resource not in flops]:
        notes.append(f"the file has no counters of {', '.join(left)}: such work is not in its FLOP")
    used = {resource: n for resource, n in flops.items() if n}
    missing = frozenset({kernel}) if tensor or not flops else frozenset[str]()
    return Work(flops=used, bytes=levels, origin="executed", missing=missing), tuple(notes)


def _table(line: str) -> frozenset[str] | None:
    """The columns of a header, None for another line."""
    try:
        columns = frozenset(cell.strip() for row in csv.reader([line]) for cell in row)
    except csv.Error:
        return None
    return columns if any(columns >= known for known in (_TRACE, _SUMMARY, _METRICS, _EVENTS)) else None


def _rows(lines: Iterable[str], where: str) -> Iterator[tuple[frozenset[str], _Row]]:
    """The rows of all tables, each with the columns of its own."""
    columns: frozenset[str] | None = None
    header: list[str] = []
    units: dict[str, str] | None = None
    of_host, table = False, 0
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("=="):
            columns = None
            of_host = of_host if not text else "API calls" in text
        elif (named := _table(text)) is not None:
            columns, header, units = named, [cell.strip() for cell in next(csv.reader([text]))], None
            check_columns(header, named, f"{where}, line {number}")
            table = number
        elif columns is not None:
            try:
                cells = next(csv.reader([text], strict=True))
            except csv.Error as error:
                raise FileError(f"{where}, line {number}: {error}; the row is damaged") from error
            if len(cells) != len(header):
                what = f"it has {len(cells)} fields, and the header {len(header)}"
                raise FileError(f"{where}, line {number}: {what}; the row is damaged")
            row = dict(zip(header, cells, strict=True))
            if units is None and not columns >= _METRICS and not columns >= _EVENTS:
                units = row
            else:
                yield columns, _Row(line=number, table=table, cells=row, units=units or {}, of_host=of_host)


def _take_activity(file: NvprofFile, row: _Row) -> None:
    title, number = _device(row.cells.get("Device", ""))
    if title:
        file.titles[number] = title
    name = row.cells["Name"]
    stream = row.cells["Stream"]
    file.activities.append(
        DeviceActivity(
            name=re.sub(r" \[\d+\]$", "", name),
            kind=next((kind for sign, kind in _COPIES.items() if name.startswith(sign)), "kernel"),
            start=_seconds(file, row, "Start"),
            seconds=_seconds(file, row, "Duration"),
            device=number if title else None,
            stream=int(stream) if stream.isascii() and stream.isdecimal() else None,
        )
    )


def _take_summary(file: NvprofFile, row: _Row) -> None:
    name, mean = row.cells["Name"], _seconds(file, row, "Avg")
    if {"Min", "Max"} <= row.cells.keys():
        _check_span(file, row, name)
    calls = _calls(file, row, "Calls")
    total = _seconds(file, row, "Time") if "Time" in row.cells else mean * calls
    if not math.isclose(total, mean * calls, rel_tol=_ROUGHLY):
        shown = f"{calls} calls of {units.show(mean, 's')} are {units.show(mean * calls, 's')}"
        file.notes.append(f"line {row.line} contradicts itself: {name[:60]} took {units.show(total, 's')}, and {shown}")
    if not 0 < mean <= LONGEST:
        why = "a kernel takes more than nothing and less than a day"
        file.notes.append(f"line {row.line} contradicts itself: {units.show(mean, 's')} for {name[:60]}, and {why}")
    file.summed.append((name, mean, calls))
    file.shares.setdefault(row.table, []).append(row.cells.get("Time(%)", ""))


def _take_metric(file: NvprofFile, row: _Row) -> None:
    name, text = row.cells["Metric Name"], row.cells["Avg"]
    file.seen[name] = None
    title, _ = _device(row.cells.get("Device", ""))
    its = file.metrics.setdefault((title, row.cells["Kernel"], _calls(file, row, "Invocations")), {})
    value = units.number(text)
    if math.isnan(value):  # a level like "Low (3)", a rate or a share
        return
    if not 0 <= value <= units.MOST:
        raise FileError(f"{file.where}, line {row.line}: {text[:60]!r} is no count; the row is damaged")
    if {"Min", "Max"} <= row.cells.keys():
        _check_span(file, row, name)
    if its.setdefault(name, value) != value:
        raise FileError(f"{file.where}, line {row.line}: {name} has another value for the same kernel above")


def _check_span(file: NvprofFile, row: _Row, name: str) -> None:
    """Note a mean that is not between the least and the most."""
    least, mean, most = (row.cells[column] for column in ("Min", "Avg", "Max"))
    values = [value for value in map(units.number, (least, mean, most)) if not math.isnan(value)]
    scales = [_SECONDS.get(row.units.get(column, ""), 1.0) for column in ("Min", "Avg", "Max")]
    ordered = [value * scale for value, scale in zip(values, scales, strict=False)]
    if len(values) == len(scales) and not ordered[0] <= ordered[1] * (1 + 1e-9) <= ordered[2] * (1 + 1e-6):
        file.notes.append(
            f"line {row.line} contradicts itself: {name[:60]} is {mean} on average, {least} at least and {most} at most"
        )


def _device(text: str) -> tuple[str, int]:
    """Title and number of a device, as in ``Tesla K20c (0)``."""
    match = _TITLE.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, 0)


def _seconds(file: NvprofFile, row: _Row, column: str) -> float:
    unit = row.units.get(column, "")
    if unit not in _SECONDS:
        raise FileError(
            f"{file.where}, line {row.line}: {column} cannot have the unit {unit!r}; the row of units is missing"
        )
    return _number(file, row, column) * _SECONDS[unit]


def _calls(file: NvprofFile, row: _Row, column: str) -> int:
    calls = _number(file, row, column)
    if calls != int(calls) or not 1 <= calls <= MOST_CALLS:
        raise FileError(f"{file.where}, line {row.line}: {row.cells[column][:60]!r} is no number of calls")
    return int(calls)


def _number(file: NvprofFile, row: _Row, column: str) -> float:
    text = row.cells.get(column, "")
    value = units.number(text)
    if not 0 <= value <= units.MOST:
        raise FileError(f"{file.where}, line {row.line}: {text[:60]!r} is no number; the row is damaged")
    return value
