"""The raw page as CSV: one row per launch, one column per counter, units in the row below the header."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from rooflens import opening
from rooflens.sources.counters.counter_cells import CounterReading, RowShape, collected, is_counted, shape_of
from rooflens.sources.counters.csv_rows import SEPARATOR, Header, damaged, fields, misshapen
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.metrics import is_fact, kind_of, needless
from rooflens.sources.counters.printed_numbers import is_whole

_DEVICE = ("device__",)
_COUNTS = ("sm__inst_", "sm__ops_", "sm__sass_", "smsp__inst_", "smsp__sass_", "sm__maximum_", "smsp__maximum_")
_MOST_KNOWN = 1024


class RawTable:
    """The raw page.

    A row repeats the device of the row before. As a kernel executes the same instructions each time, some row before
    has the same cells that count them. Both are read once, and then known by their text.
    """

    def __init__(self, reading: CounterReading, header: Header) -> None:
        self._reading = reading
        self._header = header
        names = header.names
        self._needless = needless(names)
        self._unread = [
            (i, name)
            for i, name in enumerate(names)
            if "__" in name
            and (kind_of(name) is None or name in self._needless)
            and not name.startswith(("device__", "launch__"))
        ]
        self._telling: list[int] = []
        self._facts = [(i, name) for i, name in enumerate(names) if is_fact(name)]
        self._closed: set[tuple[str, ...]] = set()
        self._has_units = False
        self._shape, self._cells = shape_of(()), _cells_at(())
        self._device, self._counts = header.longest(_DEVICE), header.longest(_COUNTS)
        self._device_text = ""
        self._device_facts: dict[str, str] = {}
        self._counts_names: list[str] = []
        self._counts_seen: set[str] = set()
        self._counts_known: dict[str, RowShape] = {}
        self._launches_known: dict[str, KernelLaunch] = {}
        # Behind the device, and behind it without the instructions: only these columns are read in every row.
        self._behind = list(range(self._device.stop, header.size))
        self._others = [i for i in self._behind if not self._counts.start <= i < self._counts.stop]
        self._behind_cells = self._other_cells = self._cells
        self._other_shape = self._shape
        self._repeats = False

    def quick(self, line: int, text: str) -> tuple[KernelLaunch, ...] | None:
        """Take a row with the device of the row before and no odd cell behind it; FileError if a value is damaged.

        Return None and do nothing if it is another row.
        """
        if not self._device_text or not text.endswith('"'):
            return None
        rest = text.split(SEPARATOR, self._device.start)[-1]
        if not rest.startswith(self._device_text):
            return None
        before, rest = text[: -len(rest) - 2], rest[len(self._device_text) : -1]
        if rest.count('"') != 2 * (len(self._behind) - 1) or "/" in rest:  # a quote within a field, or "n/a"
            return None
        *others, rest = rest.split(SEPARATOR, self._counts.start - self._device.stop)
        counts, *after = rest.rsplit(SEPARATOR, self._header.size - self._counts.stop)
        known = self._counts_known.get(counts)
        row = [*others, *counts.split(SEPARATOR), *after] if known is None else others + after
        whole = len(row) == len(self._behind if known is None else self._others)
        launch = self._again(before, line) if whole else None
        if launch is None:
            return None
        self._begin(launch)
        launch.facts = self._device_facts
        if known is None:
            self._fill(launch, self._shape, self._behind_cells(row))
            self._learn(counts, launch)
        else:
            self._fill(launch, known, self._other_cells(row))
        return (launch,)

    def add(self, line: int, text: str) -> KernelLaunch | None:
        """Take a row, a launch or the units; FileError if the row is damaged."""
        row = fields(text)
        if row is not None and text[-1] == "," and text.count('"') >= 2 * (len(row) - 1):
            row.pop()  # who quotes every cell quotes an empty one too: nothing follows here
        if row is None or len(row) != self._header.size:
            raise misshapen(self._reading.where, line, row, self._header.size)
        if not self._has_units:
            self.take_units(row, line)
            return None
        launch = self._header.launch(row, line)
        self._begin(launch)
        launch.facts = {name: row[i] for i, name in self._facts if row[i]}
        self._fill(launch, self._shape, self._cells(row))
        is_told = self._reading.numbers.style is not None
        if not is_told or '"n/a"' in text:
            for i, name in self._unread:
                self._reading.unused(name, row[i], line, counted=False)
        if not is_told:
            for i in self._telling:
                self._reading.numbers.see_whole(row[i])
        device = SEPARATOR.join(row[self._device]) + SEPARATOR
        # As long as nothing has told how numbers are written, every cell of every row is looked at.
        is_plain = is_told and self._repeats and device.count('"') == 2 * (self._device.stop - self._device.start)
        self._device_text, self._device_facts = device if is_plain else "", launch.facts
        return launch

    def finish(self) -> Iterator[KernelLaunch]:
        """Give nothing: every row was complete."""
        yield from ()

    def _fill(self, launch: KernelLaunch, shape: RowShape, texts: tuple[str, ...]) -> None:
        if not all(texts):
            shape, texts = collected(shape, texts)
        self._reading.fill(launch, shape, texts, [launch.line] * len(texts))

    def _learn(self, counts: str, launch: KernelLaunch) -> None:
        """Remember what the instructions of a launch counted, by the text of their cells, if it was seen before."""
        if counts not in self._counts_seen:
            _make_room(self._counts_seen)
            self._counts_seen.add(counts)
            return
        values = {name: launch.values.get(name) for name in self._counts_names}
        if None in values.values() or counts.lower() != counts.upper():  # words are no numbers
            return
        _make_room(self._counts_known)
        given = self._shape.given | values
        self._counts_known[counts] = replace(self._other_shape, given=given, keys=self._shape.keys)

    def _again(self, before: str, line: int) -> KernelLaunch | None:
        """The launch whose row begins so, known but for its number if the kernel ran before; None if no row does."""
        number, _, others = before[1:].partition(SEPARATOR)
        known = self._launches_known.get(others)
        if known is None or not is_whole(number) or before[0] != '"':
            row = fields(before)
            if row is None or len(row) != self._device.start:
                return None
            _make_room(self._launches_known)
            known = self._launches_known[others] = self._header.launch(row, line)
            number = known.key[1]
        process, _, device = known.key
        return KernelLaunch(
            line=line,
            key=(process, number, device),
            name=known.name,
            device=known.device,
            cc=known.cc,
            ranges=known.ranges,
        )

    def _begin(self, launch: KernelLaunch) -> None:
        process, number, _ = launch.key
        if not is_whole(number):
            raise damaged(self._reading.where, launch.line, f"a launch cannot have the number {number!r}")
        if len(self._closed) >= opening.MOST_LAUNCHES:
            raise opening.too_many(self._reading.where, opening.MOST_LAUNCHES, "launches")
        if launch.key in self._closed:
            raise damaged(self._reading.where, launch.line, f"launch {number} of process {process} appears twice")
        self._closed.add(launch.key)

    def take_units(self, row: Sequence[str], line: int) -> None:
        """Take the units of the columns; FileError if this is no row of units, or a counter cannot have its unit."""
        header, counts = self._header, self._counts
        if header.get(row, "ID"):
            raise damaged(self._reading.where, line, "the row of units below the header of the raw page is missing")
        metrics = [(i, name) for i, name in enumerate(header.names) if "__" in name]
        self._telling = [i for i, name in metrics if is_counted(name, row[i])]
        targets = {
            i: self._reading.unread(name, row[i])
            if name in self._needless
            else self._reading.target(name, row[i], line)
            for i, name in metrics
        }
        read = {i: target for i, target in targets.items() if target.read}
        self._shape, self._cells = shape_of(tuple(read.values())), _cells_at(tuple(read))
        inside = {i: target for i, target in read.items() if counts.start <= i < counts.stop}
        outside = {i: target for i, target in read.items() if i not in inside}
        in_order = 0 < self._device.start < self._device.stop <= counts.start < counts.stop
        identity_first = header.names[0] == "ID" and all("__" in name for name in header.names[self._device.start :])
        facts_inside = all(self._device.start <= i < self._device.stop for i, _ in self._facts)
        self._repeats = in_order and identity_first and facts_inside and read.keys() <= set(self._behind)
        if self._repeats:
            self._behind_cells = _cells_at([self._behind.index(i) for i in read])
            self._other_cells = _cells_at([self._others.index(i) for i in outside])
            self._other_shape = shape_of(tuple(outside.values()))
            self._counts_names = [target.metric for target in inside.values() if not target.percent]
        self._has_units = True


def _cells_at(places: Sequence[int]) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """Return a function that takes the fields at these places out of a row."""
    # Of one place an itemgetter gives no tuple, of none there is no itemgetter.
    return itemgetter(*places) if len(places) > 1 else lambda row: tuple(row[place] for place in places)


def _make_room(known: dict[str, Any] | set[str]) -> None:
    """Forget all if it is too much: what is remembered does not grow with the file."""
    if len(known) >= _MOST_KNOWN:
        known.clear()
