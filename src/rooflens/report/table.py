"""Table: rows of raw numbers that know their unit; text appears only when a renderer asks for it.

Every table of rooflens is built as data first. CSV and JSON take the numbers; the formats for people (terminal,
Markdown, LaTeX) take :func:`text` of the same cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from rooflens import units
from rooflens.notebook import Displayed
from rooflens.records import short_list

Value = str | int | float | bool | None
Sign = Literal["", ">=", "<="]
Show = Literal["always", "room", "more", "files"]
Row = tuple["Entry", ...]
Entries = dict[str, "Value | Entry"]

UNKNOWN = "-"
"""What people see of a value that is not known."""
PERCENT = "%"
COUNT = "count"
INTENSITY = "FLOP/B"


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a table.

    Attributes:
        value: the raw value in the column's base unit; None is unknown.
        sign: ``>=`` where the value is a lower bound, ``<=`` where it is an upper one.
        mark: a sign in front of the value that a note of the table explains.
        indent: depth in a tree.
        label: text for people in place of the value.
    """

    value: Value
    sign: Sign = ""
    mark: str = ""
    indent: int = 0
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """What the entries below each other have in common.

    Attributes:
        key: name in CSV and JSON.
        header: name for people.
        unit: base unit of the numbers; `PERCENT` for a ratio, `COUNT` for an integer, ``""`` for a bare number.
        read: how the value is read from what a row is about: a function, or the steps of a path (:func:`at`) with dots
            between them, like ``change.interval.0``; default: the column's key.
        align: left for text, right for numbers.
        show: always; only where a terminal has room; only where it has more; only in files (CSV and JSON).
        group: columns that stay together where a terminal must break a table.
        title: how a value that all rows share reads in the title, like ``batch {}``; ``""`` keeps the column.
        if_any: the formats for people leave the column out while every value is zero.
        words: its text is a list of words; those that all rows share go into the title.
    """

    key: str
    header: str
    unit: str = ""
    read: str | Callable[[Any], Value | Entry] = ""
    _: KW_ONLY
    align: Literal["left", "right"] = "right"
    show: Show = "always"
    group: str = ""
    title: str = ""
    if_any: bool = False
    words: bool = False

    def entry(self, about: Any) -> Entry:
        """Return the entry of a row about something."""
        if callable(self.read):
            value = self.read(about)
        else:  # a key is a name as it stands, dots included: matmul.bf16
            value = at(about, self.read.split(".") if self.read else [self.key])
        return value if isinstance(value, Entry) else Entry(value)


def at(about: Any, path: Iterable[str]) -> Any:
    """Return what stands at the end of a path of attributes, keys and indices; None where a step of it is unknown."""
    for name in path:
        if isinstance(about, Mapping):
            about = about.get(name)
        elif about is not None:
            about = about[int(name)] if name.isdigit() else getattr(about, name)
    return about


class ColumnNote(str):
    """A note on columns, left out where none of them is shown.

    Attributes:
        keys: of the columns.
    """

    __slots__ = ("keys",)
    keys: frozenset[str]

    def __new__(cls, text: str, *keys: str) -> ColumnNote:
        note = super().__new__(cls, text)
        note.keys = frozenset(keys)
        return note


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Displayed):
    """A view of results.

    Attributes:
        rows: one entry per column.
        total: a last row that sums the others; for people only, so that a column of a file can be added up.
        notes: what a reader must know before using the numbers.
        alike: what all rows share, as text for people.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    total: Row | None = None
    notes: tuple[str, ...] = ()
    alike: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What stands below the rows: what they share, and the notes."""
        return (*filter(None, [self.alike]), *self.notes)


def build(
    title: str, columns: Iterable[Column], rows: Iterable[object], *, total: object = None, notes: Iterable[str] = ()
) -> Table:
    """Return a table with a row for each of some things, read by its columns.

    Args:
        rows: what the rows are about. A mapping holds its values under the keys of the columns; what it does not name
            is unknown.
    """
    shown, lines = tuple(columns), list[Row]()
    for row in (*rows, *([] if total is None else [total])):
        lines.append(tuple(column.entry(row) for column in shown))
    return Table(
        title=title,
        columns=shown,
        rows=tuple(lines if total is None else lines[:-1]),
        total=None if total is None else lines[-1],
        notes=tuple(dict.fromkeys(notes)),
    )


def text(entry: Entry, column: Column, digits: int = 4) -> str:
    """Return the entry for a person, without sign, mark and indentation, nor a unit that the header names."""
    value = entry.value if entry.label is None else entry.label
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, str | bool):
        return str(value)
    if column.unit == COUNT:
        return f"{value:.0f}"
    if column.unit in (PERCENT, INTENSITY):
        return percent(value) if column.unit == PERCENT else plain(value, digits)
    return units.show(value, "" if column.unit in column.header.split() else column.unit, digits)


def percent(ratio: float) -> str:
    """A ratio in percent: three digits, at most two of them decimals.

    >>> percent(0.5313), percent(0.00177), percent(1e-9)
    ('53.1 %', '0.18 %', '<0.01 %')
    """
    value = 100 * ratio
    if 0 < value < 0.005:
        return "<0.01 %"
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f} %" if value else "0 %"


def plain(value: float, digits: int) -> str:
    """A number without a prefix: 0.125 FLOP/B reads better than 125 mFLOP/B.

    >>> plain(50.5971, 4), plain(0.0833333, 4), plain(0, 4)
    ('50.60', '0.0833', '0')
    """
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == 0 or abs(rounded) >= 10**digits:
        return f"{value:.0f}"
    if abs(rounded) >= 1:
        return f"{rounded:#.{digits}g}".rstrip(".")
    return f"{value:.{digits}f}" if abs(value) >= 10**-digits else f"{value:.0e}"


def explained(notes: Iterable[str], columns: Iterable[Column]) -> tuple[str, ...]:
    """Return notes less those on columns of which none is shown."""
    keys = {column.key for column in columns}
    return tuple(note for note in notes if not isinstance(note, ColumnNote) or note.keys & keys)


def _without_shared_words(table: Table) -> tuple[Table, dict[int, str]]:
    """Return a table less the words that all rows of a column share, and these by the number of the column."""
    told: dict[int, str] = {}
    rows = [list(row) for row in table.rows]
    for i, column in enumerate(table.columns):
        lists = [str(row[i].value or "").split() for row in rows]
        alike = [word for word in lists[0] if all(word in words for words in lists)] if column.words and lists else []
        if alike and any(words != alike for words in lists):
            told[i] = " ".join(alike)
            for row, words in zip(rows, lists, strict=True):
                row[i] = Entry(" ".join(word for word in words if word not in alike) or None)
    return replace(table, rows=tuple(map(tuple, rows))), told


_AMOUNTS = ("work", "memory")
"""Groups of columns with amounts that several rows may share: those of one step on several devices."""


def _is_alike(table: Table, number: int) -> bool:
    """True for an amount that all rows share."""
    column, first = table.columns[number], table.rows[0][number] if table.rows else None
    if first is None or len(table.rows) < 2 or table.total is not None or column.group not in _AMOUNTS:
        return False
    if isinstance(first.value, str):
        return False
    return first.value is not None and all(row[number] == first for row in table.rows)


def for_people(table: Table) -> Table:
    """Return the table as the formats for people show it.

    Columns for files, those that would say nothing but `UNKNOWN`, and those of `if_any` with only zeros are left out;
    what all rows share goes into the title, and amounts that they share into a line of their own.
    """
    rows = [*table.rows, *([] if table.total is None else [table.total])]
    keep = []
    for i, column in enumerate(table.columns):
        empty = all(text(row[i], column) == UNKNOWN for row in rows)
        only_zeros = column.if_any and not any(row[i].value for row in rows)
        if column.show != "files" and not (rows and (empty or only_zeros)):
            keep.append(i)
    table, told = _without_shared_words(table)
    shared = [i for i in keep if table.columns[i].title and len({row[i] for row in table.rows}) == 1]
    titles = {i: table.columns[i].title.format(text(table.rows[0][i], table.columns[i])) for i in shared} | told
    titles |= {i: " ".join(map(short_list, titles[i].split())) for i in titles if table.columns[i].words}
    subtitle = ", ".join(titles[i] for i in sorted(titles))
    keep = [i for i in keep if i not in shared] if len(shared) < len(keep) else keep
    alike = [i for i in keep if _is_alike(table, i)]
    if not any(table.columns[i].group for i in keep if i not in alike):  # names alone are no table
        alike = []
    keep = [i for i in keep if i not in alike]
    values = [f"{table.columns[i].header} {text(table.rows[0][i], table.columns[i])}" for i in alike]
    return replace(
        table,
        alike=f"in all rows: {', '.join(values)}" if values else table.alike,
        title=": ".join(filter(None, [table.title, subtitle])),
        columns=tuple(table.columns[i] for i in keep),
        notes=explained(table.notes, (table.columns[i] for i in {*keep, *alike})),
        rows=tuple(tuple(row[i] for i in keep) for row in table.rows),
        total=None if table.total is None else tuple(table.total[i] for i in keep),
    )
