"""A counter file as launches, whatever its layout, in one pass."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast

from rooflens.errors import FileError
from rooflens.sources.counters.counter_cells import Reader
from rooflens.sources.counters.csv_rows import begins, continued, damaged, is_header, is_open
from rooflens.sources.counters.launches import Launch
from rooflens.sources.counters.log import Log
from rooflens.sources.counters.long_table import Long, table
from rooflens.sources.counters.printed_numbers import Numbers
from rooflens.sources.counters.raw_table import Wide
from rooflens.sources.counters.reports import is_report, launches_of
from rooflens.sources.counters.text_page import Page, is_kernel
from rooflens.sources.counters.value_doubts import Unusual

_ENCODINGS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_GZIP = b"\x1f\x8b"
_LONGEST = 2**24
"""Characters of a line. The widest raw pages have some ten thousand metrics; a compressed file may hold any number."""


@dataclass(slots=True)
class Contents:
    """What a counter file holds beside its launches; complete when the last of these was read."""

    where: str
    log: Log
    numbers: Numbers
    unusual: Unusual

    def notes(self, cc: str | None) -> list[str]:
        """What a reader of the launches must know."""
        guessed = ["numbers like 1,024 or 96.256 were read as whole: nothing in the file tells its decimal separator"]
        return [*self.log.notes(), *self.unusual.notes(cc), *(guessed if self.numbers.guessed else [])]


def contents(where: str) -> Contents:
    """Nothing read yet."""
    return Contents(where, Log(), Numbers(where), Unusual())


def launches(path: Path, found: Contents) -> Iterator[Launch]:
    """The launches of a file, in the order in which they are complete.

    Raises:
        FileError: the file cannot be opened, holds no launch (ncu's own words are quoted), or is damaged; a report
            (``.ncu-rep``) needs the package ncu-report.
    """
    if is_report(path):
        yield from launches_of(path, found.where, found.unusual)
        return
    with opened(path) as lines:
        yield from parse(lines, found)


def parse(lines: Iterable[str], found: Contents) -> Iterator[Launch]:
    """The launches in the lines of a file."""
    numbers = found.numbers
    waiting: list[Launch] = []
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


def _complete(lines: Iterable[str], found: Contents) -> Iterator[Launch]:
    """The launches of all tables; numbers may wait."""
    log = found.log
    reader = Reader(found.where, found.numbers, found.unusual)
    current: Long | Wide | Page | None = None
    quick: Callable[[int, str], tuple[Launch, ...] | None] = _never
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        text = line.rstrip("\r\n")
        done = quick(number, text)
        if done is not None:
            yield from done
            continue
        text = _whole(number, text, numbered, found.where)
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
                current = Page(reader)
            if current is None or not (isinstance(current, Page) or begins(text)):
                log.output(text, number, inside=current is not None)
            elif (launch := current.add(number, text)) is not None:
                yield launch
    if current is not None:
        yield from current.finish()


def _whole(number: int, text: str, following: Iterator[tuple[int, str]], where: str) -> str:
    """A line with those that follow, if it is a row that goes on in them."""
    if len(text) >= _LONGEST:
        raise damaged(where, number, f"it has {_LONGEST} characters and more")
    return continued(number, text, following, where) if is_open(text) else text


def _never(line: int, text: str) -> None:
    """No table has begun."""


@contextmanager
def opened(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a file in whatever encoding ncu or a shell wrote it, compressed or not; a line too long is cut.

    Raises:
        FileError: it cannot be opened or read.
    """
    try:
        with path.open("rb") as raw:
            plain = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if raw.peek(2)[:2] == _GZIP else raw
            head = cast("io.BufferedReader", plain).peek(4)[:4]
            encoding = next((name for sign, name in _ENCODINGS if head.startswith(sign)), "utf-8")
            with io.TextIOWrapper(plain, encoding=encoding, errors="replace") as text:
                yield iter(partial(text.readline, _LONGEST), "")
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeError as error:
        raise damaged(repr(str(path)), 1, f"its text cannot be decoded ({error})") from error
