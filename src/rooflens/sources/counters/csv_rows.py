"""Lines of a file as rows of a table, and where its columns are."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rooflens.errors import FileError
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.nvtx import ranges_of

SEPARATOR = '","'
MOST_LINES, MOST_CHARACTERS = 200, 100_000
"""Of one row: a text with line breaks in it may be long, but a row without an end must not swallow the file."""

RANGES = ("thread Domain:Push/Pop_Range", "Id:Domain:Start/Stop_Range")
IDENTITY = ("Process ID", "ID", "Device", "Kernel Name", "CC")
_BEGINS = re.compile(r'"\d*",(?! )|\d+,|,[,"]', re.ASCII)
_HEADER = re.compile(r'"?(?:ID|Process ID)"?,')


def is_header(text: str) -> bool:
    """True if a table begins here."""
    return _HEADER.match(text) is not None and "Kernel Name" in text


def begins(text: str) -> bool:
    """True if a line looks like the beginning of a row: its first field is a number, or empty (units)."""
    return _BEGINS.match(text) is not None


def fields(text: str) -> list[str] | None:
    """Return the fields of a row, None if it is damaged.

    ncu quotes every field; other programs only some. Where all are and none holds a quote of its own, cutting at the
    separators is enough.
    """
    if text[:1] == '"' == text[-1:]:
        cells = text[1:-1].split(SEPARATOR)
        if text.count('"') == 2 * len(cells):
            return cells
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def damaged(where: str, line: int, why: str) -> FileError:
    """Return the error of a row that cannot be read."""
    return FileError(f"{where}, line {line}: {why}; the row is damaged: remove it or export the report again")


def misshapen(where: str, line: int, row: Sequence[str] | None, size: int) -> FileError:
    """Return the error of a row without the fields of its header; None is a row without any field."""
    if row is None:
        return damaged(where, line, "a quote is in the wrong place")
    return damaged(where, line, f"it has {len(row)} fields, and the header {size}")


def is_open(text: str) -> bool:
    """True if a row goes on in the next line: a text in it has a line break."""
    return text.count('"') % 2 == 1 and (begins(text) or _HEADER.match(text) is not None)


def continued(number: int, text: str, following: Iterator[tuple[int, str]], where: str) -> str:
    """Return the whole of a row that goes on in the lines that follow; FileError if it has no end."""
    parts, size, quotes = [text], len(text), text.count('"')
    for _, line in following:
        more = line.rstrip("\r\n")
        if begins(more) and (more[:1] == '"') == (text[:1] == '"'):
            break
        parts.append(more)
        size, quotes = size + len(more), quotes + more.count('"')
        if quotes % 2 == 0:
            return "\n".join(parts)
        if len(parts) > MOST_LINES or size > MOST_CHARACTERS:
            break
    raise damaged(where, number, "a text that begins with a quote does not end")


class Header:
    """Where the columns of a table are."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.size = len(self.names)
        self._places = {name: i for i, name in enumerate(self.names)}
        self._identity = [self._places.get(name) for name in IDENTITY]
        self._ranges = [i for i, name in enumerate(self.names) if name.startswith(RANGES)]

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str) -> int:
        return self._places[name]

    def get(self, row: Sequence[str], name: str) -> str:
        """Return a field by the name of its column, "" where there is none."""
        i = self._places.get(name)
        return "" if i is None or i >= len(row) else row[i]

    def longest(self, beginnings: tuple[str, ...]) -> slice:
        """Return the longest run of columns whose names begin in one of these ways."""
        runs = groupby(range(self.size), lambda i: self.names[i].startswith(beginnings))
        places = max((list(run) for begins, run in runs if begins), key=len, default=[])
        return slice(places[0], places[-1] + 1) if places else slice(self.size, self.size)

    def launch(self, row: Sequence[str], line: int, key: tuple[str, ...] | None = None) -> KernelLaunch:
        """Return the launch of a row without its counters; its `key` is process, number and device."""
        size = len(row)
        cells = ["" if i is None or i >= size else row[i] for i in self._identity]
        process, number, device, name, cc = cells
        return KernelLaunch(
            line=line,
            key=key or (process, number, device),
            name=name,
            device=device,
            cc=cc or None,
            ranges=ranges_of("  ".join([row[i] for i in self._ranges if i < size and row[i].strip()])),
        )
