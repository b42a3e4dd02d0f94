"""Tables of kernel times: what ``nsys stats``, rocprof and rocprofv3 write as CSV.

They are known by their columns, which the documents of each tool show; lines around a table are those of the tool.
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from rooflens import opening, units
from rooflens.errors import FileError
from rooflens.opening import at_most
from rooflens.records import Case, Record, Timing
from rooflens.records.record import MOST_CALLS
from rooflens.records.timing import LONGEST
from rooflens.sources.profile.attribution import TimeShare
from rooflens.sources.profile.device_time import doubt_of_shares, plausible, summed_in_words
from rooflens.sources.profile.events import DeviceActivity
from rooflens.sources.profile.operation_records import activity_name, record_of, whole_record
from rooflens.sources.profile.places import EventPlace

_MAY_LACK = frozenset({"card", "stream", "process", "number", "least", "most", "kind", "share"})
_COUNTERS = frozenset({"counter_name", "counter_value"})
"""Columns of a table with times that is one of counters."""
_UNITS = {
    **dict.fromkeys(("ns", "nsec"), 1e-9),
    **dict.fromkeys(("us", "usec", "\N{MICRO SIGN}s", "\N{GREEK SMALL LETTER MU}s"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("s", "sec"), 1.0),
}
_ROUGHLY = 0.01
"""Share by which cells of a row may differ, that are printed with few digits."""
_DIGITS = 20
_HEADED = re.compile(r"(.*?)\s*\(([^()]*)\)")
_OF_HOST = re.compile(r"api", re.IGNORECASE)
_COPY = re.compile(r"\[CUDA mem|MEMORY_COPY|^Memcpy|^Memset", re.IGNORECASE)
_CARD = re.compile(r"(.*?)\s*\((\d{1,4})\)|(?:(?:agent|gpu)\s*)?(\d{1,4})", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSum:
    """All launches of a kernel, copy or fill: their number, and the seconds of a mean one, the shortest and longest.

    `doubt` says how the cells of its row contradict each other.
    """

    name: str
    calls: int
    mean: float
    least: float | None = None
    most: float | None = None
    card: int | None = None
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """What the tables of a file hold: launches, or where it has none of these, sums.

    Attributes:
        titles: names of the devices by their numbers in the file.
        notes: what was left out.
    """

    launches: tuple[DeviceActivity, ...] = ()
    sums: tuple[TimedSum, ...] = ()
    titles: Mapping[int | None, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TimeTable:
    """One table: where its columns are, the seconds of their units, and what its rows are about."""

    rows: Literal["launches", "sums", "host"]
    about: Literal["kernels", "copies", "both"]
    host_names: str
    places: Mapping[str, int]
    seconds: Mapping[str, float | None]
    width: int
    line: int
    assumed: bool

    @property
    def place(self) -> str:
        """The table in words."""
        return f"the table in line {self.line}"

    def cell(self, row: Sequence[str], name: str) -> str:
        """Return a cell, "" where the table has no such column."""
        return row[self.places[name]].strip() if name in self.places else ""

    def time(self, row: Sequence[str], name: str, place: str) -> float | None:
        """Return a time in seconds, None where the table has no such column, or the row no value."""
        text = self.cell(row, name)
        if not text:
            return None
        unit = self.seconds[name]
        if unit is None:
            raise FileError(
                f"{place}: no unit is told for {name!r} ({text[:40]}); keep the header as the tool writes it"
            )
        return number(text, f"{place}, column {name}") * unit


def is_time_table(head: bytes) -> bool:
    """True if a file that begins like this holds such a table."""
    lines = opening.text_of(head).splitlines()
    return any(_table(_cells(line), n) for n, line in enumerate(lines, start=1) if "," in line)


def read_tables(lines: Iterable[str], where: str) -> KernelTimes:
    """Return what the tables in the lines of a file hold; `where` names it in errors.

    A file may hold several tables about the same kernels. Those of launches say most; without one, the first table of
    sums of kernels and the first one of copies count.

    Raises:
        FileError: a row is cut, a cell is no number, or no table is of a device.
    """
    titles: dict[int | None, str] = {}
    launches: dict[_TimeTable, list[DeviceActivity]] = {}
    sums: dict[_TimeTable, list[TimedSum]] = {}
    shares: dict[_TimeTable, list[str]] = {}
    begin: list[Decimal] = []
    host = 0
    distinct = _Distinct()
    for table, row, place in distinct.of(_rows(lines, where)):
        shares.setdefault(table, []).append(table.cell(row, "share"))
        if table.rows == "host" or _OF_HOST.search(table.cell(row, "kind")):
            host += 1
        elif table.rows == "launches":
            launches.setdefault(table, []).append(_launch(table, row, place, _card(table, row, titles), begin))
        else:
            sums.setdefault(table, []).append(_sum(table, row, place, _card(table, row, titles)))
    for table in [table for table, its in sums.items() if all(re.fullmatch(table.host_names, one.name) for one in its)]:
        host += len(sums.pop(table))
    chosen = _chosen(launches) or _chosen(sums)
    if not chosen:
        raise FileError(
            f"{where} holds no time of a kernel{f', but {host} calls of the host' if host else ''}; write a table of"
            " kernels: nsys stats -r cuda_gpu_kern_sum or cuda_gpu_trace, rocprofv3 --kernel-trace"
        )
    notes = [
        f"the table in line {table.line} is about the same times and is left out"
        for table in (*launches, *sums)
        if table not in chosen
    ]
    if any(table.assumed for table in chosen):
        notes.append("no unit is told for the total times: they were read as nanoseconds, as the tool writes them")
    if host:
        notes.append(f"{host} rows are about calls of the host and are left out")
    notes += [doubt for table in chosen if (doubt := doubt_of_shares(shares[table], table.place))]
    notes += [f"{n} rows of {table.place} stand there twice and count once" for table, n in distinct.twice.items()]
    return KernelTimes(
        launches=tuple(its for table in chosen for its in launches.get(table, ())),
        sums=tuple(its for table in chosen for its in sums.get(table, ())),
        titles=titles,
        notes=tuple(notes),
    )


class _Distinct:
    """Rows of tables without those of sums that stand there twice, to the last digit: each is about one name."""

    def __init__(self) -> None:
        self.twice: dict[_TimeTable, int] = {}
        self._seen: set[tuple[int, str]] = set()

    def of(self, rows: Iterable[tuple[_TimeTable, list[str], str]]) -> Iterator[tuple[_TimeTable, list[str], str]]:
        """Give the rows; those that stand there twice are counted by table."""
        for table, row, place in rows:
            key = (table.line, "\0".join(row))
            if table.rows == "sums" and key in self._seen:
                self.twice[table] = self.twice.get(table, 0) + 1
                continue
            if table.rows == "sums":
                self._seen.add(key)
            yield table, row, place


def number(text: str, place: str) -> float:
    """Return a number that is not negative; `place` names it in errors."""
    value = units.number(text)
    if not 0 <= value <= units.MOST:
        raise FileError(f"{place} holds {text[:40]!r}, which is no time and no count; export the table again")
    return value


def _exact(text: str, place: str) -> Decimal:
    """Return a number with all digits: nanoseconds of a clock that has run for weeks are too many for a float."""
    number(text, place)
    try:
        return Decimal(text)
    except ArithmeticError as error:  # an exponent that not even a decimal holds
        raise FileError(f"{place} holds {text[:40]!r}, which is no time; export the table again") from error


def _chosen(tables: Iterable[_TimeTable]) -> list[_TimeTable]:
    """The tables that do not tell the same: the first of kernels and the first of copies, else the first of both."""
    first: dict[str, _TimeTable] = {}
    for table in tables:
        first.setdefault(table.about, table)
    apart = [first[about] for about in ("kernels", "copies") if about in first]
    return apart if "kernels" in first or "both" not in first else [first["both"]]


def _rows(lines: Iterable[str], where: str) -> Iterator[tuple[_TimeTable, list[str], str]]:
    """Give the rows of all tables, each with its table and its place; lines of the tool are left out."""
    table: _TimeTable | None = None
    for n, line in enumerate(at_most(lines, where), start=1):
        if len(line) >= opening.MOST_LINE:
            raise opening.too_long(where, n)
        text = line.strip()
        if "," not in text:  # a line of the tool ends a table
            table = table if text else None
            continue
        row = _cells(text)
        begun = _table(row, n)
        if begun is not None:
            names = [_named(cell)[0] for cell in row]
            opening.check_columns(names, {names[at] for at in begun.places.values()}, f"{where}, line {n}")
            table = begun
        elif table is not None and not text.startswith("=="):
            place = f"{where}, line {n}"
            if len(row) != table.width:
                raise FileError(f"{place} has {len(row)} cells, the header has {table.width}: it was cut")
            yield table, row, place


def _cells(line: str) -> list[str]:
    """The cells of a line, none where it is no row of any table."""
    try:
        return next(csv.reader([line.strip()]), [])
    except csv.Error:
        return []


def _named(cell: str) -> tuple[str, str]:
    """Return the name and the unit of a column."""
    match = _HEADED.fullmatch(cell.strip())
    unit = match[2].strip() if match else ""
    return (match[1] if match and unit != "%" else cell).strip().lower(), unit


def _table(header: Sequence[str], line: int) -> _TimeTable | None:
    """The table of a header, None if it has the columns of none."""
    keys: dict[str, int] = {}
    written: dict[str, str] = {}
    for at, cell in enumerate(header):
        key, unit = _named(cell)
        keys.setdefault(key, at)
        written.setdefault(key, unit)
    if _COUNTERS & keys.keys():
        return None
    for layout in _layouts():
        named = {name: next((key for key in its if key in keys), None) for name, its in layout["columns"].items()}
        needed = {name for name in named if name not in _MAY_LACK or (name, layout.get("about")) == ("kind", "both")}
        if any(named[name] is None for name in needed) or keys.keys().isdisjoint(layout.get("of_device", keys)):
            continue
        has = {name: key for name, key in named.items() if key is not None}
        return _TimeTable(
            rows=layout["rows"],
            about=layout.get("about", "kernels"),
            host_names=layout.get("host_names", "(?!)"),
            places={name: keys[key] for name, key in has.items()},
            seconds={name: _UNITS.get(written[key] or layout.get("unit", "")) for name, key in has.items()},
            width=len(header),
            line=line,
            assumed="total" in has and not written[has["total"]] and not has["total"].endswith("ns"),
        )
    return None


@cache
def _layouts() -> Sequence[Mapping[str, Any]]:
    text = files("rooflens.sources.profile").joinpath("kernel_times.toml").read_text(encoding="utf-8")
    tables: Sequence[Mapping[str, Any]] = tomllib.loads(text)["table"]
    return tables


def _card(table: _TimeTable, row: Sequence[str], titles: dict[int | None, str]) -> int | None:
    """The number of the device in a row, whose name is taken down: ``Tesla T4 (0)``, ``Agent 4``, ``0``."""
    text = table.cell(row, "card")
    match = _CARD.fullmatch(text)
    card = None if match is None else int(match[2] or match[3])
    title = text if match is None else match[1]
    if title:
        titles.setdefault(card, title)
    return card


def _launch(
    table: _TimeTable, row: Sequence[str], place: str, card: int | None, begin: list[Decimal]
) -> DeviceActivity:
    """A launch; its start counts from the first one of the file, whose time `begin` takes."""
    start, unit = table.time(row, "start", place), table.seconds["start"]
    if start is None or unit is None:
        raise FileError(f"{place} has no start; export the table again")
    exact = _exact(table.cell(row, "start"), f"{place}, column start")
    if not begin:
        begin.append(exact)
    if "end" in table.places:
        seconds = float(_exact(table.cell(row, "end"), f"{place}, column end") - exact) * unit
    else:
        seconds = table.time(row, "duration", place) or 0.0
    if seconds < 0 or not table.cell(row, "end" if "end" in table.places else "duration"):
        raise FileError(f"{place} has no usable time; export the table again")
    name = table.cell(row, "name")
    stream, process, launch = (_whole(table.cell(row, column)) for column in ("stream", "process", "number"))
    return DeviceActivity(
        name=name,
        kind="memcpy" if _COPY.search(name) else "kernel",
        start=float(exact - begin[0]) * unit,
        seconds=seconds,
        device=card,
        stream=stream,
        correlation=launch,
        process=process,
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None


def _sum(table: _TimeTable, row: Sequence[str], place: str, card: int | None) -> TimedSum:
    """The launches of a row; the mean is total over calls where the row tells both."""
    total, mean = table.time(row, "total", place), table.time(row, "mean", place)
    least, most = table.time(row, "least", place), table.time(row, "most", place)
    calls = number(table.cell(row, "calls"), f"{place}, column calls")
    if not 1 <= calls <= MOST_CALLS or calls != int(calls):
        raise FileError(f"{place}: {table.cell(row, 'calls')!r} is no number of launches")
    exact = total / calls if total is not None else mean
    if exact is None:
        raise FileError(f"{place} has no time; export the table again")
    told = exact if mean is None else mean
    doubts = []
    if not math.isclose(told, exact, rel_tol=_ROUGHLY, abs_tol=1e-9):
        doubts.append(f"mean {units.show(told, 's')} for {units.show(exact, 's')} by total and calls")
    if not exact or exact > LONGEST:
        doubts.append(f"{units.show(exact, 's')} a call, and a kernel takes more than nothing and less than a day")
    for bound, word, beyond in ((least, "shortest", -1), (most, "longest", 1)):
        if bound is not None and beyond * (exact - bound) > _ROUGHLY * bound + 1e-9:
            doubts.append(f"mean {units.show(exact, 's')} beyond the {word}, {units.show(bound, 's')}")
    return TimedSum(
        name=table.cell(row, "name"),
        calls=int(calls),
        mean=exact,
        least=least,
        most=most,
        card=card,
        doubt=", ".join(doubts),
    )


def records_of(times: KernelTimes, case: Case, card: int | None) -> Iterator[Record]:
    """Give a record per launch on a device, or per row of sums with its number of calls; then one of the model."""
    activities, doubts = plausible([each for each in times.launches if each.device == card])
    place = EventPlace(path="")
    shares = [
        TimeShare(seconds=its.seconds, place=place, activity=its, span=(its.start, its.start + its.seconds))
        for its in activities
    ]
    for share in shares:
        yield record_of([share], case, "kernel", activity_name(share), [0])
    if shares:
        yield from whole_record(shares, case, (), (*doubts, *times.notes))
        return
    sums = [each for each in times.sums if each.card == card]
    for each in sums:
        yield Record(
            case=case,
            source="profile",
            scope="kernel",
            kind="other",
            name=each.name,
            timing=Timing(samples=(each.mean,), origin="profiler"),
            calls=each.calls,
            notes=(f"{each.name[:60]}: cells of its row contradict each other: {each.doubt}",) if each.doubt else (),
        )
    total, calls = math.fsum(each.mean * each.calls for each in sums), sum(each.calls for each in sums)
    told = summed_in_words(total, calls, len(sums))
    yield Record(case=case, source="profile", scope="model", notes=(told, *times.notes))
