"""Cells of a table: what becomes of them, and how they become values of a launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress

from rooflens import units
from rooflens.sources.counters.csv_rows import damaged
from rooflens.sources.counters.launches import CounterNames, KernelLaunch, names_of
from rooflens.sources.counters.log import Log
from rooflens.sources.counters.metrics import SHARE, is_share, kind_of, rollup_of
from rooflens.sources.counters.printed_numbers import (
    NOT_AVAILABLE,
    CounterNumbers,
    CounterValue,
    Deferred,
    UnitKind,
    power_of,
    shifted,
)
from rooflens.sources.counters.value_doubts import ValueDoubts

_NANO = -9
"""The power of nanoseconds, in which time is counted."""
_COUNTED = re.compile(
    r"device__attribute_\w+|launch__(?:(?:grid|block)_(?:size|dim_[xyz])|thread_count|registers_per_thread)"
    r"|\w+__cycles_elapsed\.(?:max|min)|Grid Size|Block Size|Threads|Registers Per Thread|Elapsed Cycles"
)
_COUNTED_IN = frozenset({"", "block", "cycle", "register/thread", "thread"})
"""Other numbers that are whole, and units in which they are counted."""
_MOST_TOLD = 5
_BASE_UNITS: dict[UnitKind, str] = {"byte": "B", "second": "s", "hertz": "Hz", "byte/s": "B/s"}
"""Counts have none."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What becomes of the cells of a metric. One object per metric and unit of a table, told apart by identity.

    Attributes:
        power: of ten, of its unit.
        counted: its values are whole numbers, and printed in the unit in which they are counted.
        percent: it is a share, which is looked at and not kept.
        read: whether somebody needs its values.
    """

    metric: str
    power: int = 0
    counted: bool = False
    percent: bool = False
    read: bool = True

    @property
    def whole(self) -> bool:
        """True if its values are whole numbers, as sums are."""
        return self.metric.endswith(".sum") and not self.percent


class CounterReading:
    """A file on its way to launches: its numbers, what stands around its tables, and what is doubtful in it.

    Attributes:
        metrics: names of the metrics that it has, as it writes them.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.log = Log()
        self.numbers = CounterNumbers(where)
        self.doubts = ValueDoubts()
        self.metrics: dict[str, None] = {}

    @property
    def is_details(self) -> bool:
        """True if it names metrics by labels for people."""
        return any("__" not in metric for metric in self.metrics)

    def notes(self, cc: str | None) -> list[str]:
        """Return what to know of the launches, once the last of them was read."""
        return [*self.log.notes(), *self.doubts.notes(cc), *separator_notes(self.numbers)]

    def target(self, metric: str, unit: str, line: int) -> Target:
        """Return what becomes of the cells of a metric; FileError if one that is read cannot have this unit."""
        kind = kind_of(metric)
        if kind is None:
            return self.unread(metric, unit)
        self.metrics.setdefault(metric)
        power = power_of(unit, kind)
        if power is None and rollup_of(metric) is not None:  # a form of a counter that can be done without
            return self.unread(metric, unit)
        if power is None:
            raise damaged(self.where, line, f"{metric} cannot have the unit {unit!r}")
        counted = metric.endswith(".sum") and power == (_NANO if kind == "second" else 0)
        return Target(metric, power, counted)

    def unread(self, metric: str, unit: str) -> Target:
        """Return the target of a metric that nobody needs: shares that were measured are looked at all the same."""
        self.metrics[metric] = None
        share = unit == "%" and is_share(metric)
        return Target(metric, counted=is_counted(metric, unit), percent=share, read=share)

    def put(self, launch: KernelLaunch, target: Target, text: str, line: int) -> None:
        """Keep a cell that is read; FileError if it is no number, or the launch has another value already."""
        if target.percent:
            if text.endswith(")"):  # of many instances: their sum is no share
                return
            value = self.numbers.read(text, target.power, line)
            if value is None:
                self.doubts.missing(target.metric)
            self.doubts.percent(target.metric, value)
        elif not launch.add(target.metric, self._value(target, text, line)):
            raise damaged(self.where, line, f"{target.metric} has another value for the same launch above")

    def fill(self, launch: KernelLaunch, shape: RowShape, texts: Sequence[str], lines: Sequence[int]) -> None:
        """Keep the cells of a launch, which has none yet; FileError as in :meth:`put`.

        Sums are read at once: most are zero, or whole numbers.
        """
        values = shape.given.copy()
        busy = [i for i in shape.sums if texts[i] != "0"]
        numbers = self.numbers.whole_numbers([texts[i] for i in busy])
        targets = shape.targets
        if numbers is None:
            for i in busy:
                value = values[targets[i].metric] = self._value(targets[i], texts[i], lines[i])
                launch.waits |= isinstance(value, Deferred)
        else:
            for i, number in zip(busy, numbers, strict=True):
                target = targets[i]
                values[target.metric] = shifted(number, target.power) if target.power else number
        launch.take(shape.keys, values)
        for i in shape.others:
            self.put(launch, targets[i], texts[i], lines[i])

    def _value(self, target: Target, text: str, line: int) -> CounterValue | Deferred:
        value = self.numbers.read(text, target.power, line, counted=target.counted)
        if isinstance(value, int | float) and value < 0:
            self.doubts.below_zero(target.metric)
            return None
        if value == 0 and text != "0" and rollup_of(target.metric) is not None:  # ncu prints zero as 0
            self.doubts.rounded.add(target.metric)
            return None
        if value is None:
            self.doubts.missing(target.metric)
        if SHARE in target.metric:
            self.doubts.percent(target.metric, value)
        return value

    def see_span(self, metric: str, texts: Sequence[str], line: int) -> None:
        """Look at least, mean and most of a counter, as a summary has them: they must be in this order."""
        cells = [self.numbers.read(text, 0, line) for text in texts]
        values = [self.numbers.settle(cell) if isinstance(cell, Deferred) else cell for cell in cells]
        known = [value for value in values if value is not None]
        if len(known) == len(texts) and known != sorted(known):
            least, mean, most = texts
            self.doubts.disordered.append(
                f"line {line} contradicts itself: {metric} is {mean} on average, {least} at least and {most} at most"
            )

    def unused(self, metric: str, text: str, line: int, *, counted: bool) -> None:
        """Look at a cell that nobody needs: it may be missing, or tell how numbers are written."""
        if text.lower() in NOT_AVAILABLE:
            self.doubts.missing(metric)
        elif self.numbers.style is None:
            self.numbers.see(text, line)
            if counted:
                self.numbers.see_whole(text)


def is_counted(metric: str, unit: str) -> bool:
    """True for one of the other numbers that are whole by what they count."""
    return unit in _COUNTED_IN and _COUNTED.fullmatch(metric) is not None


def separator_notes(numbers: CounterNumbers) -> list[str]:
    """Return what to know of cells that can be read in two ways, and what decided, once all were read."""
    if numbers.style is not None:
        return []
    if len(numbers.whole) == 1:
        text = next(iter(numbers.whole.values()))
        told = f"nothing in the file tells the decimal separator but that {text!r} is a whole number by what it counts"
        return [f"{told}: {(',' if ',' in text else '.')!r} was taken to separate thousands"]
    notes = []
    for metric, cell in list(numbers.undecided.items())[:_MOST_TOLD]:
        unit = _BASE_UNITS.get(kind_of(metric) or "count", "")
        here, other = (units.show(cell.read(style), unit) for style in ("point", "comma"))
        notes.append(
            f"{metric} can be read in two ways, and nothing in the file tells which: {cell.text!r} was read as {here},"
            f" as ncu writes it in English; where a comma is the decimal sign it is {other}"
        )
    more = len(numbers.undecided) - len(notes)
    return [*notes, f"{more} more counters can be read in two ways"] if more else notes


@dataclass(frozen=True, slots=True)
class RowShape:
    """The cells that launches have in common.

    Attributes:
        targets: what becomes of each cell.
        sums: places of the sums, each counter once.
        given: values of the launch before any cell is read: zero for a sum, which most are.
        keys: the names of `given`.
        others: places of all other cells.
    """

    targets: tuple[Target, ...]
    sums: tuple[int, ...]
    given: dict[str, CounterValue | Deferred]
    keys: CounterNames
    others: tuple[int, ...]


@lru_cache(maxsize=1024)
def shape_of(targets: tuple[Target, ...]) -> RowShape:
    """Return the shape of rows whose cells have these targets."""
    first = {target: i for i, target in reversed(list(enumerate(targets)))}
    sums = tuple(i for i, target in enumerate(targets) if target.whole and first[target] == i)
    names = tuple(targets[i].metric for i in sums)
    if len(set(names)) < len(names):  # one counter in two units: its values are compared one by one
        sums, names = (), ()
    others = tuple(i for i in range(len(targets)) if i not in sums)
    return RowShape(targets, sums, dict.fromkeys(names, 0), names_of(names), others)


def collected(shape: RowShape, texts: Sequence[str]) -> tuple[RowShape, tuple[str, ...]]:
    """Return shape and cells without those that are empty: these counters were not collected for a launch."""
    lacking = {target.metric for target, text in zip(shape.targets, texts, strict=True) if not text}
    filled = shape_of(tuple(compress(shape.targets, texts)))
    given = filled.given | {name: value for name, value in shape.given.items() if name not in lacking}
    return replace(filled, given=given, keys=names_of(tuple(given))), tuple(filter(None, texts))
