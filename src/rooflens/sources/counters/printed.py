"""What ncu prints as launches, whatever the layout, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rooflens import opening
from rooflens.opening import head, opened_lines
from rooflens.sources.counters.counter_cells import CounterReading
from rooflens.sources.counters.csv_rows import begins, continued, is_header, is_open
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.long_table import LongTable, table
from rooflens.sources.counters.raw_table import RawTable
from rooflens.sources.counters.reports import REPORT_SIGN, launches_of
from rooflens.sources.counters.text_page import TextPage, is_kernel


def launches(path: Path, reading: CounterReading) -> Iterator[KernelLaunch]:
    """Give the launches of a file, in the order in which they are complete.

    Raises:
        FileError: the file cannot be opened, holds no launch (ncu's own words are quoted), or is damaged; a report
            (``.ncu-rep``) needs the package ncu-report.
    """
    if head(path).startswith(REPORT_SIGN):
        yield from launches_of(path, reading.where, reading.doubts)
        return
    with opened_lines(path) as lines:
        yield from parse(lines, reading)


def parse(lines: Iterable[str], reading: CounterReading) -> Iterator[KernelLaunch]:
    """Give the launches in the lines of a file."""
    numbers = reading.numbers
    waiting: list[KernelLaunch] = []
    any_seen = False
    for launch in _complete(lines, reading):
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
        raise reading.log.failure(reading.where)


def _complete(lines: Iterable[str], reading: CounterReading) -> Iterator[KernelLaunch]:
    """The launches of all tables; numbers may wait."""
    log = reading.log
    current: LongTable | RawTable | TextPage | None = None
    quick: Callable[[int, str], tuple[KernelLaunch, ...] | None] = _no_table
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        text = line.rstrip("\r\n")
        done = quick(number, text)
        if done is not None:
            yield from done
            continue
        text = _whole(number, text, numbered, reading.where)
        if text.startswith("=="):
            log.tool(text)
        elif is_header(text):
            log.header = number
            if current is not None:
                yield from current.finish()
            current = table(reading, text, number)
            quick = current.quick
        elif text.strip():
            if current is None and is_kernel(text):
                current = TextPage(reading)
            if current is None or not (isinstance(current, TextPage) or begins(text)):
                log.output(text, number, inside=current is not None)
            elif (launch := current.add(number, text)) is not None:
                yield launch
    if current is not None:
        yield from current.finish()


def _whole(number: int, text: str, following: Iterator[tuple[int, str]], where: str) -> str:
    """A line with those that follow, if it is a row that goes on in them."""
    if len(text) >= opening.MOST_LINE:
        raise opening.too_long(where, number)
    return continued(number, text, following, where) if is_open(text) else text


def _no_table(line: int, text: str) -> None:
    """No table has begun."""
