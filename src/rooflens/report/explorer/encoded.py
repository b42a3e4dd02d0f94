"""Tables as JSON for a page: each distinct cell once, with its number and with the text that tables show of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from rooflens.records.record import MOST_CALLS
from rooflens.report.escape import printable, spreadsheet
from rooflens.report.table import Column, Entry, Table, Value, text

Item = TypeVar("Item", bound=Hashable)


class Numbered(Generic[Item]):
    """Things that were seen, each once, with their numbers; `found` are the numbers in the order of the questions."""

    def __init__(self) -> None:
        self.numbers: dict[Item, int] = {}
        self.found: list[int] = []

    def add(self, item: Item) -> int:
        """Return the number of a thing, and note that it was asked for."""
        number = self.numbers.setdefault(item, len(self.numbers))
        self.found.append(number)
        return number

    def shown(self, of: Callable[[Item], object]) -> dict[str, Any]:
        """Return the things as a page takes them, and the number of each in a row; no numbers where all are alike."""
        alike = len(self.numbers) < 2
        return {"cells": [of(item) for item in self.numbers], "of": [] if alike else self.found}


def encoded(table: Table) -> list[dict[str, Any]]:
    """Return the columns of a table, the text of those for files left out."""
    return [_column(column, (row[i] for row in table.rows)) for i, column in enumerate(table.columns)]


def _column(column: Column, entries: Iterable[Entry]) -> dict[str, Any]:
    cells = Numbered[Entry]()
    for entry in entries:
        cells.add(entry)
    return {
        "key": column.key,
        "header": printable(column.header),
        "right": column.align == "right",
        "show": column.show,
        "title": column.title,
        "ifAny": column.if_any,
        **cells.shown(lambda entry: [_plain(entry.value), "" if column.show == "files" else shown(entry, column)]),
    }


def shown(entry: Entry, column: Column) -> str:
    """Return the text of a cell for people, with its mark and sign."""
    return " ".join(filter(None, (entry.mark, entry.sign, printable(text(entry, column)))))


def _plain(value: Value) -> Value:
    """Return a value that JSON and JavaScript hold without a change, as files have it: large counts as digits."""
    if isinstance(value, str):
        return spreadsheet(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, int) and abs(value) > MOST_CALLS else value
