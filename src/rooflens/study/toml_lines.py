"""On which line of a TOML text a value stands, which tomllib does not tell."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
"""Keys and places in lists from the top of a file to a value."""


def line_of(text: str, path: Path) -> int | None:
    """The line on which the statement begins that gives the value at a path, None if there is none.

    >>> line_of("a = 1\\n\\n[b]\\nc = [\\n  2,\\n  3,\\n]\\n", ("b", "c", 1))
    6

    The parser itself says where statements end: at each line down to which the text can be read. An item of a list that
    is spread over lines is looked for by how it is written.
    """
    begin = 1
    for end, table in _readable(text):
        value = _at(table, path)
        if value is not None:
            return begin + _offset(text.splitlines()[begin - 1 : end], table, value[0], path)
        begin = end + 1
    return None


def _readable(text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """The numbers of the lines down to which a text is whole, and what it says so far; empty lines are no end."""
    lines = text.splitlines()
    for end, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield end, tomllib.loads("\n".join(lines[:end]))
        except ValueError:
            continue


def _at(table: Any, path: Path) -> tuple[object] | None:
    """The value at a path, in a tuple since it may be anything; None if there is none."""
    for step in path:
        try:
            table = table[step]
        except (LookupError, TypeError):
            return None
    return (table,)


def _offset(lines: list[str], table: object, value: object, path: Path) -> int:
    """The line of a value among those of its statement: the first one, unless it is an item of a list."""
    first = next(n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    (items,) = _at(table, path[:-1]) or (None,)
    if len(lines) - first == 1 or not isinstance(path[-1], int) or not isinstance(items, list):
        return first
    written = [str(value).lower(), f'"{value}"', f"'{value}'"]
    before = items[: path[-1]].count(value)
    for n, line in enumerate(lines[first:], start=first):
        words = line.split("#")[0].rsplit("=")[-1].strip("[] ").split(",")
        before -= sum(word.strip() in written for word in words)
        if before < 0:
            return n
    return first
