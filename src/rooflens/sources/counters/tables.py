"""The tables that Nsight Compute prints as CSV: one row per counter (long), or one per launch (raw page)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from rooflens.errors import FileError
from rooflens.records.record import MOST_CALLS
from rooflens.sources.counters.cells import Cell, Reader, Target, shape_of, unread
from rooflens.sources.counters.launches import Launch
from rooflens.sources.counters.metrics import is_fact, kind_of, labelled
from rooflens.sources.counters.numbers import NOT_AVAILABLE, Deferred
from rooflens.sources.counters.rows import SEPARATOR, damaged, fields

RANGES = ("thread Domain:Push/Pop_Range", "Id:Domain:Start/Stop_Range")
_LAST_OF_LAUNCH = "Section Name"


class Header:
    """Where the columns of a table are."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.size = len(self.names)
        self._places = {name: i for i, name in enumerate(self.names)}
        self._ranges = [i for i, name in enumerate(self.names) if name.startswith(RANGES)]

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str) -> int:
        return self._places[name]

    def get(self, row: Sequence[str], name: str) -> str:
        """A field by the name of its column, "" where there is none."""
        i = self._places.get(name)
        return "" if i is None or i >= len(row) else row[i]

    def launch(self, row: Sequence[str], line: int, key: tuple[str, ...]) -> Launch:
        """What a row tells about its launch, without its counters."""
        cells = [row[i] for i in self._ranges if i < len(row) and row[i].strip()]
        return Launch(
            line=line,
            key=key,
            name=self.get(row, "Kernel Name"),
            device=self.get(row, "Device"),
            cc=self.get(row, "CC") or None,
            ranges="  ".join(cells),
        )


class Long:
    """A table with one row per launch and counter. Rows of a launch follow each other, within their process."""

    def __init__(self, reader: Reader, header: Header) -> None:
        self._reader = reader
        self._header = header
        self._summary = "Metric Value" not in header
        self._before = header.place(_LAST_OF_LAUNCH) if _LAST_OF_LAUNCH in header else header.place("Metric Name")
        self._metric, self._unit = header.place("Metric Name"), header.place("Metric Unit")
        self._value = header.place("Average" if self._summary else "Metric Value")
        self._least = 1 + max(self._before, self._metric, self._unit, self._value)
        named = range(self._before, self._value)
        self._usual = self._metric in named and self._unit in named and not self._summary
        self._launch = Launch(line=0, key=(), name="")
        self._cells: dict[tuple[str, ...], list[Cell]] = {}
        self._launch_cells: list[Cell] = []
        self._prefix = ""
        self._known: dict[str, Target] = {}
        self._open: dict[str, Launch] = {}
        self._closed: set[tuple[str, ...]] = set()
        self._targets: dict[tuple[str, str, str], Target] = {}

    def quick(self, line: int, text: str) -> tuple[Launch, ...] | None:
        """Take a row that repeats all that the rows before said of launch and counter, but for the value.

        Most rows do, and nothing of that is read again. None where the row is another one; nothing has happened then.

        Raises:
            FileError: the value is damaged.
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
            self._launch_cells.append((target, value, line))
        else:
            self._reader.unused(target.metric, value, line)
        return ()

    def add(self, line: int, text: str) -> Launch | None:
        """Take any row; gives back a launch that is complete by it.

        Raises:
            FileError: the row is damaged.
        """
        if text[-1:] == ",":  # ncu ends rows of counters so where the header has columns for rules
            text = text[:-1]
        row = fields(text)
        if row is None or not self._least <= len(row) <= self._header.size:
            raise _misshapen(self._reader.where, line, row, self._header)
        done = self._enter(row, line)
        metric = row[self._metric]
        if metric:  # else the row of a rule
            named = (row[self._before], metric, row[self._unit])
            target = self._targets.get(named) or self._target(named, row[self._value], line)
            if target.read:
                self._launch_cells.append((target, row[self._value], line))
            else:
                self._reader.unused(metric, row[self._value], line)
            if self._usual and named in self._targets:
                self._learn(row, text, target)
        return None if done is None else self._complete(done)

    def finish(self) -> Iterator[Launch]:
        """The launches that were still open."""
        yield from map(self._complete, self._open.values())

    def _complete(self, launch: Launch) -> Launch:
        self._reader.fill(launch, self._cells.pop(launch.key))
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

    def _enter(self, row: Sequence[str], line: int) -> Launch | None:
        header = self._header
        process = header.get(row, "Process ID")
        if self._summary:
            key = tuple(row[: self._before])
        else:
            key = (process, header.get(row, "ID"), header.get(row, "Device"))
        current = self._open.get(process)
        if current is not None and current.key == key:
            self._launch, self._launch_cells = current, self._cells[key]
            return None
        if key in self._closed:
            which = f"launch {header.get(row, 'ID') or header.get(row, 'Kernel Name')!r} of process {process}"
            raise damaged(self._reader.where, line, f"{which} appears again after others")
        self._closed.add(key)
        self._launch = self._open[process] = header.launch(row, line, key)
        self._launch_cells = self._cells[key] = []
        if self._summary:
            self._launch.calls = self._calls(row, line)
        return current

    def _calls(self, row: Sequence[str], line: int) -> int:
        calls = self._reader.numbers.read(self._header.get(row, "Invocations"), 0, line)
        if isinstance(calls, Deferred):
            calls = self._reader.numbers.settle(calls)
        if not isinstance(calls, int) or not 1 <= calls <= MOST_CALLS:
            raise damaged(self._reader.where, line, "the number of invocations is not known")
        return calls

    def _target(self, named: tuple[str, str, str], text: str, line: int) -> Target:
        section, metric, unit = named
        name = metric if "__" in metric else labelled(section, metric)
        if name is not None and unit == "" and (not text or text.lower() in NOT_AVAILABLE) and kind_of(name):
            return Target(name)  # without a value there is no unit; the next row may have both
        target = unread(metric, unit) if name is None else self._reader.target(name, unit, line)
        self._targets[named] = target
        return target


class Wide:
    """The raw page: one row per launch, one column per counter, units in the row below the header."""

    def __init__(self, reader: Reader, header: Header) -> None:
        self._reader = reader
        self._header = header
        self._columns: list[tuple[int, Target]] | None = None
        self._shape = shape_of(())
        self._sums: Callable[[Sequence[str]], Sequence[str]] = tuple
        self._others: list[tuple[int, Target]] = []
        self._fact_places = [(i, name) for i, name in enumerate(header.names) if is_fact(name)]
        self._facts_known: dict[tuple[str, ...], dict[str, str]] = {}
        self._unread = [
            (i, name)
            for i, name in enumerate(header.names)
            if "__" in name and kind_of(name) is None and not name.startswith(("device__", "launch__"))
        ]
        self._closed: set[tuple[str, ...]] = set()

    def quick(self, line: int, text: str) -> tuple[Launch, ...] | None:
        """Take a row in which all is as it should be: every field quoted, and none with a quote of its own.

        Raises:
            FileError: a value is damaged.
        """
        row = text[1:-1].split(SEPARATOR)
        size = self._header.size
        if len(row) != size or self._columns is None or text.count('"') != 2 * size or text[0] + text[-1] != '""':
            return None
        return (self._launch(row, text, line),)

    def add(self, line: int, text: str) -> Launch | None:
        """Take a row; every one but that of units is a launch.

        Raises:
            FileError: the row is damaged.
        """
        row = fields(text)
        if row is not None and text[0] == '"' and text[-1] == ",":  # ncu quotes what is empty: nothing follows here
            row.pop()
        if row is None or len(row) != self._header.size:
            raise _misshapen(self._reader.where, line, row, self._header)
        if self._columns is None:
            self._units(row, line)
            return None
        return self._launch(row, text, line)

    def finish(self) -> Iterator[Launch]:
        """Nothing: every row was complete."""
        yield from ()

    def _launch(self, row: Sequence[str], text: str, line: int) -> Launch:
        launch = self._header.launch(row, line, self._key(row, line))
        launch.facts = self._facts(row)
        if not self._reader.sums(launch, self._shape, self._sums(row)):
            self._reader.fill(launch, [(target, row[i], line) for i, target in self._columns or () if row[i]])
        else:
            for i, target in self._others:
                if row[i]:
                    self._reader.put(launch, target, row[i], line)
        if self._reader.numbers.style is None or '"n/a"' in text:
            for i, name in self._unread:
                self._reader.unused(name, row[i], line)
        return launch

    def _facts(self, row: Sequence[str]) -> dict[str, str]:
        """What the row says of the device: the same in all rows, so kept once."""
        cells = tuple([row[i] for i, _ in self._fact_places])
        if cells not in self._facts_known:
            named = zip(self._fact_places, cells, strict=True)
            self._facts_known[cells] = {name: cell for (_, name), cell in named if cell}
        return self._facts_known[cells]

    def _key(self, row: Sequence[str], line: int) -> tuple[str, ...]:
        header = self._header
        key = (header.get(row, "Process ID"), header.get(row, "ID"), header.get(row, "Device"))
        if not key[1].isdecimal():
            raise damaged(self._reader.where, line, f"a launch cannot have the number {key[1]!r}")
        if key in self._closed:
            raise damaged(self._reader.where, line, f"launch {key[1]} of process {key[0]} appears twice")
        self._closed.add(key)
        return key

    def _units(self, row: Sequence[str], line: int) -> None:
        if self._header.get(row, "ID"):
            raise damaged(self._reader.where, line, "the row of units below the header of the raw page is missing")
        names = self._header.names
        targets = [(i, self._reader.target(name, row[i], line)) for i, name in enumerate(names) if "__" in name]
        self._columns = [(i, target) for i, target in targets if target.read]
        self._shape = shape_of(tuple(target for _, target in self._columns))
        places = [self._columns[place][0] for place in self._shape.whole]
        # Of one place an itemgetter gives no sequence, of none there is no itemgetter.
        self._sums = itemgetter(*places) if len(places) > 1 else lambda row: [row[place] for place in places]
        self._others = [self._columns[place] for place in self._shape.others]


def _misshapen(where: str, line: int, row: Sequence[str] | None, header: Header) -> FileError:
    if row is None:
        return damaged(where, line, "a quote is in the wrong place")
    return damaged(where, line, f"it has {len(row)} fields, and the header {header.size}")


def table(reader: Reader, text: str, line: int) -> Long | Wide:
    """The reader of the table that begins with this header.

    Raises:
        FileError: the header is damaged, or columns are missing.
    """
    names = fields(text)
    if names is None:
        raise damaged(reader.where, line, "the header has a quote in the wrong place")
    header = Header(names)
    if "Metric Name" not in header:
        if "ID" not in header:
            raise damaged(reader.where, line, "the header has neither an ID nor a Metric Name")
        return Wide(reader, header)
    needed = ("Metric Unit", "Metric Value") if "ID" in header else ("Metric Unit", "Average", "Invocations")
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise damaged(reader.where, line, f"the header lacks {', '.join(lacking)}")
    return Long(reader, header)
