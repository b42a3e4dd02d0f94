"""The tables that Nsight Compute prints as CSV: one row per counter (long), or one per launch (raw page)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rooflens import opening
from rooflens.records.record import MOST_CALLS
from rooflens.sources.counters.counter_cells import CounterReading, Target, shape_of
from rooflens.sources.counters.csv_rows import IDENTITY, SEPARATOR, Header, damaged, fields, misshapen
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.metrics import kind_of, labelled
from rooflens.sources.counters.printed_numbers import NOT_AVAILABLE, Deferred
from rooflens.sources.counters.raw_table import RawTable

_LAST_OF_LAUNCH = "Section Name"
_WITH_UNIT = re.compile(r"(\w+__[\w.]+) \[([^\[\]]*)\]")
"""A counter of a raw page whose row of units was put into the header, as scripts that work on tables do."""
_SPAN = ("Minimum", "Average", "Maximum")
"""What a summary says of a counter, in this order of size."""


class LongTable:
    """A table with one row per launch and counter. Rows of a launch follow each other, within their process."""

    def __init__(self, reading: CounterReading, header: Header) -> None:
        self._reading = reading
        self._header = header
        self._summary = "Metric Value" not in header
        self._before = header.place(_LAST_OF_LAUNCH) if _LAST_OF_LAUNCH in header else header.place("Metric Name")
        self._metric, self._unit = header.place("Metric Name"), header.place("Metric Unit")
        self._value = header.place("Average" if self._summary else "Metric Value")
        self._least = 1 + max(self._before, self._metric, self._unit, self._value)
        named = range(self._before, self._value)
        self._usual = self._metric in named and self._unit in named and not self._summary
        self._launch = KernelLaunch(line=0, key=(), name="")
        self._cells: dict[tuple[str, ...], list[tuple[Target, str, int]]] = {}
        self._launch_cells: list[tuple[Target, str, int]] = []
        self._prefix = ""
        self._known: dict[str, Target] = {}
        self._open: dict[str, KernelLaunch] = {}
        self._closed: set[tuple[str, ...]] = set()
        self._identity: dict[tuple[str, ...], Sequence[str]] = {}
        self._spans: list[tuple[str, tuple[str, ...], int]] = []
        self._targets: dict[tuple[str, str, str], Target] = {}

    def quick(self, line: int, text: str) -> tuple[KernelLaunch, ...] | None:
        """Take a row that differs from the rows before in its value alone, as most do; FileError if that is damaged.

        Return None and do nothing if it is another row.
        """
        if text[-1:] == ",":
            text = text[:-1]
        if not self._prefix or not text.startswith(self._prefix) or text[-1] != '"':
            return None
        named, _, value = text[len(self._prefix) : -1].rpartition(SEPARATOR)
        target = self._known.get(named)
        if target is None or '"' in value:
            return None
        if target.read:
            self._keep(target, value, line)
        else:
            self._reading.unused(target.metric, value, line, counted=target.counted)
        return ()

    def _keep(self, target: Target, value: str, line: int) -> None:
        """Keep a cell until its launch is complete."""
        if len(self._launch_cells) >= opening.MOST_COUNTERS:
            raise opening.too_many(f"{self._reading.where}, line {line}: a launch", opening.MOST_COUNTERS, "counters")
        self._launch_cells.append((target, value, line))

    def add(self, line: int, text: str) -> KernelLaunch | None:
        """Take any row and return the launch that it completes; FileError if the row is damaged."""
        if text[-1:] == ",":  # ncu ends rows of counters so where the header has columns for rules
            text = text[:-1]
        row = fields(text)
        if row is None or not self._least <= len(row) <= self._header.size:
            raise misshapen(self._reading.where, line, row, self._header.size)
        done = self._enter(row, line)
        metric = row[self._metric]
        if metric:  # else the row of a rule, in which ncu 2022 writes another stream
            self._check_identity(row, line)
            named = (row[self._before], metric, row[self._unit])
            target = self._targets.get(named) or self._target(named, row[self._value], line)
            if target.read:
                self._keep(target, row[self._value], line)
                if self._summary:
                    self._spans.append((metric, tuple(self._header.get(row, name) for name in _SPAN), line))
            else:
                self._reading.unused(metric, row[self._value], line, counted=target.counted)
            if self._usual and named in self._targets:
                self._learn(row, text, target)
        return None if done is None else self._complete(done)

    def finish(self) -> Iterator[KernelLaunch]:
        """Give the launches that were still open."""
        for metric, cells, line in self._spans:
            self._reading.see_span(metric, cells, line)
        yield from map(self._complete, self._open.values())

    def _complete(self, launch: KernelLaunch) -> KernelLaunch:
        self._identity.pop(launch.key, None)
        if cells := self._cells.pop(launch.key):
            targets, texts, lines = zip(*cells, strict=True)
            self._reading.fill(launch, shape_of(targets), texts, lines)
        return launch

    def _learn(self, row: Sequence[str], text: str, target: Target) -> None:
        """Remember how rows like this one begin, as :meth:`quick` needs it."""
        named = SEPARATOR.join(row[self._before : self._value])
        tail = f'{named}{SEPARATOR}{row[self._value]}"'
        if '"' not in named.replace(SEPARATOR, "") and text.endswith(f"{SEPARATOR}{tail}"):
            self._known[named] = target
            self._prefix = text[: -len(tail)]
        else:
            self._prefix = ""

    def _enter(self, row: Sequence[str], line: int) -> KernelLaunch | None:
        header = self._header
        process = header.get(row, "Process ID")
        of_launch = (process, header.get(row, "ID"), header.get(row, "Device"))
        key = tuple(row[: self._before]) if self._summary else of_launch
        current = self._open.get(process)
        if current is not None and current.key == key:
            self._launch, self._launch_cells = current, self._cells[key]
            return None
        if len(self._closed) >= opening.MOST_LAUNCHES:
            raise opening.too_many(self._reading.where, opening.MOST_LAUNCHES, "launches")
        if key in self._closed:
            which = f"launch {header.get(row, 'ID') or header.get(row, 'Kernel Name')!r} of process {process}"
            raise damaged(self._reading.where, line, f"{which} appears again after others")
        self._closed.add(key)
        self._launch = self._open[process] = header.launch(row, line, key)
        self._launch_cells = self._cells[key] = []
        if self._summary:
            self._launch.calls = self._calls(row, line)
        return current

    def _check_identity(self, row: Sequence[str], line: int) -> None:
        """Raise FileError: what stands before the counters of a launch is the same in all of its rows."""
        above = self._identity.setdefault(self._launch.key, row[: self._before])
        if above == row[: self._before]:
            return
        name, other, this = next(
            each for each in zip(self._header.names, above, row, strict=False) if each[1] != each[2]
        )
        number = self._header.get(row, "ID")
        raise damaged(
            self._reading.where, line, f"launch {number} has the {name} {this[:60]!r} here and {other[:60]!r} above"
        )

    def _calls(self, row: Sequence[str], line: int) -> int:
        calls = self._reading.numbers.read(self._header.get(row, "Invocations"), 0, line, counted=True)
        if isinstance(calls, Deferred):
            calls = self._reading.numbers.settle(calls)
        if not isinstance(calls, int) or not 1 <= calls <= MOST_CALLS:
            raise damaged(self._reading.where, line, "the number of invocations is not known")
        return calls

    def _target(self, named: tuple[str, str, str], text: str, line: int) -> Target:
        section, metric, unit = named
        if len(self._targets) >= opening.MOST_COUNTERS:
            raise opening.too_many(self._reading.where, opening.MOST_COUNTERS, "names of counters")
        self._reading.metrics[metric] = None
        name = metric if "__" in metric else labelled(section, metric)
        if name is not None and unit == "" and (not text or text.lower() in NOT_AVAILABLE) and kind_of(name):
            return Target(name)  # without a value there is no unit; the next row may have both
        target = self._reading.unread(metric, unit) if name is None else self._reading.target(name, unit, line)
        if self._summary:
            target = replace(target, counted=False)  # a mean of whole numbers
        self._targets[named] = target
        return target


def table(reading: CounterReading, text: str, line: int) -> LongTable | RawTable:
    """Return the table that begins with this header; FileError if it is damaged, or columns are missing."""
    names = fields(text)
    if names is None:
        raise damaged(reading.where, line, "the header has a quote in the wrong place")
    if len(names) > opening.MOST_COUNTERS:
        raise opening.too_many(reading.where, opening.MOST_COUNTERS, "columns")
    united = [_WITH_UNIT.fullmatch(name) for name in names]
    header = Header([name if match is None else match[1] for name, match in zip(names, united, strict=True)])
    is_wide = "Metric Name" not in header
    if is_wide and "ID" not in header:
        raise damaged(reading.where, line, "the header has neither an ID nor a Metric Name")
    values = ("Metric Value",) if "ID" in header else ("Average", "Invocations")
    needed = ("Kernel Name", *(() if is_wide else ("Metric Unit", *values)))
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise damaged(reading.where, line, f"the header lacks {', '.join(lacking)}")
    opening.check_columns(header.names, {*IDENTITY, *needed, *values}, f"{reading.where}, line {line}")
    if not is_wide:
        return LongTable(reading, header)
    wide = RawTable(reading, header)
    if any(united):
        wide.take_units(["" if match is None else match[2] for match in united], line)
    return wide
