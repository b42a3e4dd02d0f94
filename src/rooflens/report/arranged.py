"""What somebody asks for of a table: sorted, the first rows, some columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from rooflens.errors import InvalidValue
from rooflens.report.figures.case_pieces import BY, PieceKind
from rooflens.report.table import PERCENT, UNKNOWN, Column, Row, Table, percent, text
from rooflens.runs.options import OPTIONS

IN_ORDER = "order"
"""The sort key that leaves rows as they are."""
_COSTLIEST = ("measured_seconds", "predicted_seconds", "seconds", "dram_bytes", "flops")
"""Columns by which rows are sorted if nobody says by which, the first that is known and always shown."""
_SHARES = {"time_share": "time", "expected_share": "expected time", "share": "bound", "bytes_share": "bytes"}
"""Columns that tell how much some rows hold, and of what."""
_AMOUNTS = {
    "measured_seconds": "time",
    "predicted_seconds": "expected time",
    "seconds": "bound",
    "dram_bytes": "bytes",
    "flops": "FLOP",
    "matmul_flops": "matmul FLOP",
}
"""Columns that add up over the parts of a step, and to what: rows that are sorted by one hold a share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """What is asked for of tables.

    Attributes:
        by: what a row stands for; None: tables that give an overview.
        depth: levels of modules.
        sort: key or header of a column, the largest first and words by letter; ``order`` is that of the step.
        top: how many rows, those that take most time if they are not sorted otherwise.
        columns: keys or headers of the columns beside those that name a row.
    """

    by: PieceKind | None = None
    depth: int | None = None
    sort: str | None = None
    top: int | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.by is not None and self.by not in BY:
            raise InvalidValue(f"cannot show by {self.by!r}; known: {', '.join(BY)}")
        if self.top is not None and self.top < 1:
            raise InvalidValue(f"top {self.top} shows nothing; give at least 1")
        if self.depth is not None:
            check_depth(self.depth)

    @property
    def is_overview(self) -> bool:
        """True if nothing is asked for but the depth of the overview's modules."""
        return self.by is None and self.sort is None and self.top is None and not self.columns


def check_depth(depth: int) -> None:
    """Raise InvalidValue for a number of levels that there cannot be."""
    if depth < 0:
        raise InvalidValue(f"depth {depth} is negative; 0 shows the model alone, 1 the modules directly in it")


def arranged(table: Table, view: TableView) -> Table:
    """Return a table sorted, cut to its first rows, and with the columns that are asked for.

    Raises:
        InvalidValue: a column is not known.
    """
    chosen = [column_number(table.columns, name) for name in view.columns]
    rows, notes, place = list(table.rows), list(table.notes), None
    asked = list(chosen)
    if view.sort is not None and view.sort != IN_ORDER:
        place = column_number(table.columns, view.sort)
        asked.append(place)  # rows in the order of what is not shown look like rows in none
    elif view.top is not None and view.sort is None:
        place = _costliest(table)
    rows = _sorted(rows, place)
    total = table.total
    if view.top is not None and len(rows) > view.top:
        notes.insert(0, _rest(table, rows[view.top :], view.top, place))
        rows = rows[: view.top]
    columns = list(range(len(table.columns)))
    empty = [i for i in chosen if all(text(row[i], table.columns[i]) == UNKNOWN for row in rows)]
    if empty and rows:
        notes.append(f"not known, and so not shown: {', '.join(table.columns[i].header for i in dict.fromkeys(empty))}")
    if chosen:
        naming = [i for i, column in enumerate(table.columns) if not column.group and column.show != "files"]
        columns = [*(i for i in naming if i not in asked), *dict.fromkeys(asked)]
    shown = [
        replace(table.columns[i], show="always", if_any=False) if i in asked else table.columns[i] for i in columns
    ]
    return replace(
        table,
        columns=tuple(shown),
        rows=tuple(tuple(row[i] for i in columns) for row in rows),
        total=None if total is None else tuple(total[i] for i in columns),
        notes=tuple(notes),
    )


def column_number(columns: Iterable[Column], name: str) -> int:
    """Return the number of a column by its key or header, or by its key without its unit."""
    wanted = _plain(name)
    named = list(columns)
    keys = [column.key for column in named]
    for names in (keys, [column.header for column in named], [key.removesuffix("_seconds") for key in keys]):
        plain = list(map(_plain, names))
        if wanted in plain:
            return plain.index(wanted)
    raise InvalidValue(f"no column {name!r} in this table; {_hint(named, name)}")


def _hint(columns: Sequence[Column], name: str) -> str:
    """Return the names of columns that somebody may have meant; of none that is near, those that are always shown."""
    keys = [column.key for column in columns]
    if "options" in keys and name.strip().lower().replace("-", "_") in OPTIONS:
        return "it is an option, and the column 'options' holds all of them"
    spelled = {_plain(word): column.key for column in columns for word in (column.header, column.key)}
    wanted = _plain(name)
    near = get_close_matches(wanted, spelled, n=4, cutoff=0.7)
    near += [word for word in spelled if wanted and wanted in word]
    if near:
        return f"did you mean {', '.join(dict.fromkeys(spelled[word] for word in near))}?"
    always = ", ".join(dict.fromkeys(column.key for column in columns if column.show == "always"))
    return f"known: {always}, and more that --format csv shows"


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ").replace("-", " ")


def _costliest(table: Table) -> int | None:
    keys = [column.key if column.show == "always" else "" for column in table.columns]
    for key in _COSTLIEST:
        if key in keys and any(row[keys.index(key)].value is not None for row in table.rows):
            return keys.index(key)
    return None


def _sorted(rows: Sequence[Row], place: int | None) -> list[Row]:
    """Return rows by a column: the largest numbers first, words by letter, and unknown values last."""
    if place is None:
        return list(rows)

    def key(row: Row) -> tuple[bool, float, str]:
        value = row[place].value
        if isinstance(value, str):
            return False, 0.0, value
        return value is None, 0.0 if value is None else -float(value), ""

    return sorted(rows, key=key)


def _rest(table: Table, rows: Sequence[Row], shown: int, place: int | None) -> str:
    """Say how much the rows hold that are not shown, of what they are sorted by where that adds up."""
    held = next(_shares(table, rows, place), None)
    what = "are not shown" if held is None else f"hold {percent(held[0])} of the {held[1]}"
    return f"{len(rows)} more {what} (--top {shown + len(rows)} shows all)"


def _shares(table: Table, rows: Sequence[Row], place: int | None) -> Iterator[tuple[float, str]]:
    """Yield the shares that rows hold, and of what, the most telling first; none of what is no part of a step."""
    places = {column.key: i for i, column in enumerate(table.columns) if column.unit == PERCENT}
    of = None if place is None else _AMOUNTS.get(table.columns[place].key)
    if place is not None and of is not None and places.keys() & _SHARES:
        whole = sum(_known(table.rows, place))
        if whole:
            yield sum(_known(rows, place)) / whole, of
    for key, of in _SHARES.items():
        known = _known(rows, places[key]) if key in places else []
        if known:
            yield sum(known), of


def _known(rows: Iterable[Row], place: int) -> list[float]:
    return [value for row in rows if isinstance(value := row[place].value, float | int)]
