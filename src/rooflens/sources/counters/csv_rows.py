"""Lines of a file as rows of a table, in one pass."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from rooflens.errors import FileError

SEPARATOR = '","'
MOST_LINES, MOST_CHARACTERS = 200, 100_000
"""Of one row: a text with line breaks in it may be long, but a row without an end must not swallow the file."""

_BEGINS = re.compile(r'"\d*",(?:"|$)|\d+,|,{2}', re.ASCII)
_HEADER = re.compile(r'"?(?:ID|Process ID)"?,')


def is_header(text: str) -> bool:
    """True if a table begins here."""
    return text.startswith(('"ID",', '"Process ID",', "ID,", "Process ID,")) and "Kernel Name" in text


def begins(text: str) -> bool:
    """True if a line looks like the beginning of a row: its first field is a number, or empty (units)."""
    return _BEGINS.match(text) is not None


def fields(text: str) -> list[str] | None:
    """Return the fields of a row, None if it is damaged.

    ncu quotes every field. Where none holds a quote of its own, cutting at the separators is enough.
    """
    if text[:1] == '"' == text[-1:]:
        found = text[1:-1].split(SEPARATOR)
        if text.count('"') == 2 * len(found):
            return found
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
    return text[:1] == '"' and text.count('"') % 2 == 1 and (begins(text) or _HEADER.match(text) is not None)


def continued(number: int, text: str, following: Iterator[tuple[int, str]], where: str) -> str:
    """Return the whole of a row that goes on in the lines that follow; FileError if it has no end."""
    parts, size, quotes = [text], len(text), text.count('"')
    for _, line in following:
        more = line.rstrip("\r\n")
        if begins(more) and more[:1] == '"':
            break
        parts.append(more)
        size, quotes = size + len(more), quotes + more.count('"')
        if quotes % 2 == 0:
            return "\n".join(parts)
        if len(parts) > MOST_LINES or size > MOST_CHARACTERS:
            break
    raise damaged(where, number, "a text that begins with a quote does not end")
