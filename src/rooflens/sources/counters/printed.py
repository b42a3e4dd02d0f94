"""A counter file as launches, whatever its layout, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rooflens.opening import head, opened_lines
from rooflens.sources.counters.counter_cells import CellReader
from rooflens.sources.counters.csv_rows import begins, continued, is_header, is_open
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.log import Log
from rooflens.sources.counters.long_table import LongTable, table
from rooflens.sources.counters.printed_numbers import Numbers
from rooflens.sources.counters.raw_table import RawTable
from rooflens.sources.counters.reports import REPORT_SIGN, launches_of
from rooflens.sources.counters.text_page import TextPage, is_kernel
from rooflens.sources.counters.value_doubts import ValueDoubts


@dataclass(slots=True)
class Contents:
    """What a counter file holds beside its launches; complete when the last of these was read."""

    where: str
    log: Log
    numbers: Numbers
    unusual: ValueDoubts

    def notes(self, cc: str | None) -> list[str]:
        """What a reader of the launches must know."""
        guessed = ["numbers like 1,024 or 96.256 were read as whole: nothing in the file tells its decimal separator"]
        return [*self.log.notes(), *self.unusual.notes(cc), *(guessed if self.numbers.guessed else [])]


def contents(where: str) -> Contents:
    """Nothing read yet."""
    return Contents(where, Log(), Numbers(where), ValueDoubts())


def launches(path: Path, found: Contents) -> Iterator[KernelLaunch]:
    """The launches of a file, in the order in which they are complete.

    Raises:
        FileError: the file cannot be opened, holds no launch (ncu's own words are quoted), or is damaged; a report
            (``.ncu-rep``) needs the package ncu-report.
    """
    if head(path).startswith(REPORT_SIGN):
        yield from launches_of(path, found.where, found.unusual)
        return
    with opened_lines(path) as lines:
        yield from parse(lines, found)


def parse(lines: Iterable[str], found: Contents) -> Iterator[KernelLaunch]:
    """The launches in the lines of a file."""
    numbers = found.numbers
    waiting: list[KernelLaunch] = []
    any_seen = False
    for launch in _complete(lines, found):
        any_seen = True
        if numbers.waiting and launch.waits:
            waiting.append(launch)
        else:
            yield launch
        if waiting and numbers.style is not None:
            yield from (each.settled(numbers) for each in waiting)
            waiting.clear()
    yield from (each.settled(numbers) for each in waiting)
    if not any_seen:
        raise found.log.failure(found.where)


def _complete(lines: Iterable[str], found: Contents) -> Iterator[KernelLaunch]:
    """The launches of all tables; numbers may wait."""
    log = found.log
    reader = CellReader(found.where, found.numbers, found.unusual)
    current: LongTable | RawTable | TextPage | None = None
    quick: Callable[[int, str], tuple[KernelLaunch, ...] | None] = _never
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        text = line.rstrip("\r\n")
        done = quick(number, text)
        if done is not None:
            yield from done
            continue
        if is_open(text):
            text = continued(number, text, numbered, found.where)
        if text.startswith("=="):
            log.tool(text)
        elif is_header(text):
            log.header = number
            if current is not None:
                yield from current.finish()
            current = table(reader, text, number)
            quick = current.quick
        elif text.strip():
            if current is None and is_kernel(text):
                current = TextPage(reader)
            if current is None or not (isinstance(current, TextPage) or begins(text)):
                log.output(text, number, inside=current is not None)
            elif (launch := current.add(number, text)) is not None:
                yield launch
    if current is not None:
        yield from current.finish()


def _never(line: int, text: str) -> None:
    """No table has begun."""
