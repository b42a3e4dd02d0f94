"""Counters of AMD GPUs as rocprof 1, 2 and 3 and rocprof-compute write them: dispatches of kernels in a CSV file.

rocprof 1 and 2 and rocprof-compute write a row per dispatch and a column per counter, rocprof 3 a row per dispatch and
counter. Layouts: AMD's documentation, and the examples in the repositories of these tools.
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rooflens import units
from rooflens.errors import FileError
from rooflens.opening import at_most, opened_lines, text_of
from rooflens.sources.counters.printed_numbers import NOT_AVAILABLE

_NAME = ("KernelName", "Kernel_Name")
_NUMBER = ("Index", "Dispatch_ID", "Dispatch_Id")
_GPU = ("gpu-id", "GPU_ID", "Agent_Id")
_BEGIN, _END, _DURATION = ("BeginNs", "Start_Timestamp"), ("EndNs", "End_Timestamp"), ("DurationNs",)
_COUNTER, _VALUE, _PROCESS = "Counter_Name", "Counter_Value", ("Process_Id", "PID", "pid")
_LIKE_A_COUNTER = re.compile(r"[A-Z0-9]+(?:_[A-Z0-9]+)+(?:_sum|_avr|_max|\[\d+\])?")
_SUFFIX = re.compile(r"\s*(?:\[clone \.kd\]|\(\.kd\)|\.kd)$")
_MOST_DOUBTS = 5
_LONGEST = 10**12
"""Nanoseconds that no dispatch takes."""


@dataclass(slots=True)
class Dispatch:
    """One launch of a kernel.

    Attributes:
        gpu: the number by which the file calls its GPU.
        seconds: None where the file has no time, or one that cannot be true.
        counters: those that are read and have a value, by name.
    """

    name: str
    gpu: str
    seconds: float | None
    counters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchFile:
    """The dispatches of a file, names of its columns of counters, and what to know of them."""

    where: str
    dispatches: tuple[Dispatch, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()


@cache
def rocprof_tables() -> Mapping[str, Any]:
    """Return what ``rocprof.toml`` says of counters."""
    return tomllib.loads(files(__package__).joinpath("rocprof.toml").read_text(encoding="utf-8"))


@cache
def known_counters() -> frozenset[str]:
    """Return the counters that are read."""
    tables = rocprof_tables()
    terms = (name for entry in (*tables["flops"], *tables["bytes"]) for name in (*entry["terms"], entry.get("beside")))
    return frozenset(filter(None, (*terms, *tables["matrix"]["busy"])))


def first_row(head: bytes) -> frozenset[str]:
    """Return the cells of the first line of a file."""
    line = text_of(head).lstrip().partition("\n")[0]
    return frozenset(cell.strip().strip('"') for cell in line.split(","))


def is_wide(columns: Iterable[str]) -> bool:
    """True for the columns of rocprof 1 and 2, and of rocprof-compute."""
    return not {*_NAME}.isdisjoint(columns) and not {"gpu-id", "GPU_ID"}.isdisjoint(columns)


def is_long(columns: Iterable[str]) -> bool:
    """True for the columns of counters of rocprof 3."""
    return {"Kernel_Name", "Agent_Id", _COUNTER} <= {*columns}


def read_dispatches(path: Path) -> DispatchFile:
    """Return what a CSV file holds; FileError if it is damaged, or cannot be read."""
    where = repr(str(path))
    with opened_lines(path) as lines:
        try:
            rows = csv.reader(lines, strict=True, skipinitialspace=True)
            header = [cell.strip() for cell in next(rows, [])]
            table = _Table(where, header)
            for cells in at_most(rows, where):
                if any(cells):
                    table.add(cells, rows.line_num)
        except csv.Error as error:
            raise FileError(f"{where}: {error}; the file is damaged") from error
    return table.file()


class _Table:
    """Rows on their way to dispatches."""

    def __init__(self, where: str, header: Sequence[str]) -> None:
        self._where, self._header = where, header
        twice = [name for name in header if header.count(name) > 1]
        lacking = [] if any(name in header for name in _NAME) else [_NAME[1]]
        lacking += [_VALUE] if _COUNTER in header and _VALUE not in header else []
        if twice or lacking:
            what = f"column {twice[0]!r} stands twice" if twice else f"there is no column {lacking[0]!r}"
            raise FileError(f"{where}, line 1: {what}")
        self._long = _COUNTER in header
        self._counters = [name for name in header if name in known_counters()]
        self._dispatches: dict[tuple[str, ...], Dispatch] = {}
        others = (name for name in header if _LIKE_A_COUNTER.fullmatch(name) and name not in ("GPU_ID", "WGR", "GRD"))
        self._seen: dict[str, None] = dict.fromkeys(others)
        self._odd = self._without = 0
        self._begins: dict[str, list[float]] = {}
        self._from_zero: list[tuple[Dispatch, float]] = []
        self._doubts: list[str] = []

    def add(self, cells: Sequence[str], line: int) -> None:
        """Take a row; FileError if it is damaged."""
        if len(cells) != len(self._header):
            raise self._damaged(line, f"it has {len(cells)} fields, and the header {len(self._header)}")
        row = dict(zip(self._header, cells, strict=True))
        name = _SUFFIX.sub("", _first(row, _NAME))
        key = tuple(_first(row, names) for names in (_PROCESS, _GPU, _NUMBER))
        dispatch = self._dispatches.get(key)
        if dispatch is None or not self._long:
            if dispatch is not None:
                raise self._damaged(line, f"dispatch {key[2]} appears twice")
            dispatch = self._dispatches[key] = Dispatch(name, key[1], self._seconds(row, line))
            self._see_begin(row, dispatch, line)
        elif dispatch.name != name:
            raise self._damaged(line, f"dispatch {key[2]} is {name[:60]!r} here and {dispatch.name[:60]!r} above")
        counters = {row[_COUNTER]: row[_VALUE]} if self._long else {name: row[name] for name in self._counters}
        for counter, text in counters.items():
            self._seen[counter] = None
            if counter not in known_counters() or not text:
                continue
            if counter in dispatch.counters:
                raise self._damaged(line, f"{counter} has another value for the same dispatch above")
            if text.lower() in NOT_AVAILABLE:
                self._without += 1
            else:
                dispatch.counters[counter] = self._number(text, line)

    def file(self) -> DispatchFile:
        """Return what was read."""
        if not self._dispatches:
            raise FileError(f"{self._where} holds no dispatch of a kernel: no row stands below the header")
        self._forget_unset()
        odd = f"the times of {self._odd} dispatches cannot be true (nothing, less, or hours) and are unknown"
        without = f"{self._without} values are not available; what needs them is unknown and not zero"
        return DispatchFile(
            where=self._where,
            dispatches=tuple(self._dispatches.values()),
            columns=tuple(self._seen),
            notes=(
                *([odd] if self._odd else []),
                *([without] if self._without else []),
                *self._doubts[:_MOST_DOUBTS],
            ),
        )

    def _seconds(self, row: Mapping[str, str], line: int) -> float | None:
        """The duration of a dispatch; a clock that was not set, or an end before the begin, tells none."""
        duration, begin, end = (_first(row, names) for names in (_DURATION, _BEGIN, _END))
        if begin and end:
            first, last = self._number(begin, line), self._number(end, line)
            lasted = last - first
            true = 0 < lasted <= _LONGEST
            if true and duration and abs(self._number(duration, line) - lasted) > 1:
                self._doubts.append(
                    f"line {line} contradicts itself: end less begin is {lasted:.0f} ns, the duration {duration}"
                )
        elif duration:
            lasted = self._number(duration, line)
            true = 0 < lasted <= _LONGEST
        else:
            return None
        self._odd += not true
        return lasted * 1e-9 if true else None

    def _see_begin(self, row: Mapping[str, str], dispatch: Dispatch, line: int) -> None:
        begin = _first(row, _BEGIN)
        if begin and dispatch.seconds is not None:
            first = self._number(begin, line)
            self._begins.setdefault(dispatch.gpu, []).append(first)
            if not first:
                self._from_zero.append((dispatch, dispatch.seconds * 1e9))

    def _forget_unset(self) -> None:
        """Forget the times of dispatches that begin at zero while others begin before they end: no clock was read."""
        for dispatch, end in self._from_zero:
            others = self._begins[dispatch.gpu]
            if others.count(0) > 1 or any(0 < begin < end for begin in others):
                dispatch.seconds = None
                self._odd += 1

    def _number(self, text: str, line: int) -> float:
        value = units.number(text)
        if not 0 <= value <= units.MOST:
            raise self._damaged(line, f"{text[:60]!r} is no {'number' if math.isnan(value) else 'count'}")
        return int(text) if text.isdecimal() else value

    def _damaged(self, line: int, why: str) -> FileError:
        return FileError(f"{self._where}, line {line}: {why}; the row is damaged: remove it or write the file again")


def _first(row: Mapping[str, str], names: Iterable[str]) -> str:
    """The cell of the first of these columns that a row has, "" where it has none."""
    return next((row[name] for name in names if name in row), "")


def with_times(counted: DispatchFile, timed: DispatchFile) -> DispatchFile:
    """Return dispatches with the times of the same ones in another file; FileError if they are not the same."""
    names, others = ([dispatch.name for dispatch in each.dispatches] for each in (counted, timed))
    if names != others:
        raise FileError(f"{timed.where} has the times of other dispatches than {counted.where}: profile again")
    for dispatch, other in zip(counted.dispatches, timed.dispatches, strict=True):
        dispatch.seconds = other.seconds
    return replace(counted, notes=timed.notes)


def gpus_of(file: DispatchFile) -> Iterator[str]:
    """Give the GPUs of a file, in the order of their first dispatch."""
    yield from dict.fromkeys(dispatch.gpu for dispatch in file.dispatches)
