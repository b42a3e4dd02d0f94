"""Tables for a terminal or a pipe, drawn by rich in the width that there is.

A table that is too wide is turned on its side where it has few rows; else it gives up columns that are nice to have;
else it is broken into blocks that repeat the leading columns. No value is cut off.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from rooflens.report.escape import printable
from rooflens.report.table import Column, Entry, Table, for_people, text

if TYPE_CHECKING:
    from rich.console import RenderableType

_GAP = 2
_FOLDABLE = 24
"""Text may be folded down to this width before columns are given up."""
_TURNED_ROWS = 4
_DIGITS = (4, 3)
"""Significant digits, where there is room and where there is not."""
# ASCII, since a pipe may have any encoding: a rule below the header and between the rows and their sum.
_RULES = "    \n    \n----\n    \n----\n    \n    \n    \n"


def draw(tables: Sequence[Table], width: int | None = None, color: bool = False) -> str:
    """The tables with their titles and notes, at most `width` columns wide (default: that of the terminal)."""
    from rich.console import Console
    from rich.text import Text

    columns = width or shutil.get_terminal_size().columns
    file = StringIO()
    console = Console(
        file=file,
        width=columns,
        height=25,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        force_jupyter=False,
        legacy_windows=False,
    )
    for number, table in enumerate(tables):
        view = for_people(table)
        if number:
            console.print()
        console.print(Text(printable(view.title), style="bold"), overflow="fold")
        grids, left_out = _layout(view, columns)
        for grid in grids:
            console.print()
            console.print(_rich(grid))
        notes = [
            *([] if grids else ["none"]),
            *view.notes,
            *([f"no room for: {', '.join(left_out)}"] if left_out else []),
        ]
        if notes:
            console.print()
        for note in notes:
            console.print(Text(printable(note), style="dim"), overflow="fold")
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """A table as text, before it is drawn."""

    headers: tuple[str, ...]
    right: tuple[bool, ...]
    lines: tuple[tuple[str, ...], ...]
    summed: bool = False

    def widths(self) -> list[int]:
        """The width of each column: numbers whole, headers broken between words."""
        from rich.cells import cell_len

        return [
            max(map(cell_len, [*header.split(), *(line[i] for line in self.lines)]), default=1)
            for i, header in enumerate(self.headers)
        ]

    def needs(self) -> int:
        """The least width in which nothing but text is folded."""
        widths = [
            width if right else min(width, _FOLDABLE) for width, right in zip(self.widths(), self.right, strict=True)
        ]
        return sum(widths) + _GAP * (len(widths) - 1)


def _layout(table: Table, width: int) -> tuple[list[_Grid], list[str]]:
    """The table as one grid if that fits, else turned, else in blocks; and the columns for which there is no room."""
    if not table.rows:
        return [], []
    every = range(len(table.columns))
    for digits in _DIGITS:
        whole = _grid(table, every, digits)
        if whole.needs() <= width:
            return [whole], []
    turned = _turned(table)
    if turned is not None and turned.needs() <= width:
        return [turned], []
    blocks = list(_blocks(table, width))
    drawn = {i for block in blocks for i in block}
    return (
        [_grid(table, block, _DIGITS[-1]) for block in blocks],
        [column.header for i, column in enumerate(table.columns) if i not in drawn],
    )


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Columns that fit beside the leading ones: all that are always shown, or else group by group."""
    groups = list(dict.fromkeys(column.group for column in table.columns if column.group))
    leading = [i for i, column in enumerate(table.columns) if not column.group]
    always = [i for i, column in enumerate(table.columns) if column.group and column.show == "always"]
    if not groups or _fits(table, [*leading, *always], width):
        yield _with_room(table, [*leading, *always], groups, width)
        return
    for group in groups:
        block = list(leading)
        for i in always:
            if table.columns[i].group != group:
                continue
            if block != leading and not _fits(table, [*block, i], width):
                yield block
                block = list(leading)
            block.append(i)
        yield _with_room(table, block, [group], width)


def _with_room(table: Table, block: list[int], groups: Sequence[str], width: int) -> list[int]:
    """The block with the nice-to-have columns of these groups for which there is room."""
    for i, column in enumerate(table.columns):
        wanted = i not in block and column.show == "room" and column.group in groups
        if wanted and _fits(table, sorted([*block, i]), width):
            block = sorted([*block, i])
    return block


def _fits(table: Table, block: Sequence[int], width: int) -> bool:
    return _grid(table, block, _DIGITS[-1]).needs() <= width


def _grid(table: Table, block: Sequence[int], digits: int) -> _Grid:
    columns = [table.columns[i] for i in block]
    rows = [*table.rows, *([table.total] if table.total is not None else [])]
    return _Grid(
        headers=tuple(column.header for column in columns),
        right=tuple(column.align == "right" for column in columns),
        lines=tuple(tuple(_shown(row[i], table.columns[i], digits) for i in block) for row in rows),
        summed=table.total is not None,
    )


def _turned(table: Table) -> _Grid | None:
    """Quantities as lines and cases as columns; None where the rows are many or are no cases."""
    leading = [i for i, column in enumerate(table.columns) if not column.group]
    quantities = [i for i, column in enumerate(table.columns) if column.group]
    cases = all(table.columns[i].title for i in leading)
    if not table.rows or len(table.rows) > _TURNED_ROWS or not quantities or not cases or table.total is not None:
        return None

    def name(row: Sequence[Entry]) -> str:
        parts = (table.columns[i].title.format(text(row[i], table.columns[i])) for i in leading if row[i].value)
        return printable(" ".join(parts)) or (f"no {table.columns[leading[0]].header}" if leading else "")

    return _Grid(
        headers=("", *(name(row) for row in table.rows)),
        right=(False, *(True for _ in table.rows)),
        lines=tuple(
            (table.columns[i].header, *(_shown(row[i], table.columns[i], _DIGITS[0]) for row in table.rows))
            for i in quantities
        ),
    )


def _shown(cell: Entry, column: Column, digits: int) -> str:
    """The cell in one line; mark and sign stand in front, so that the units line up."""
    return "  " * cell.indent + printable(" ".join(filter(None, [cell.mark, cell.sign, text(cell, column, digits)])))


def _rich(grid: _Grid) -> RenderableType:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        box=box.Box(_RULES, ascii=True),
        show_edge=False,
        show_header=any(grid.headers),
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        header_style="bold",
    )
    for header, right, width in zip(grid.headers, grid.right, grid.widths(), strict=True):
        drawn.add_column(
            Text(header),
            justify="right" if right else "left",
            width=width if right else None,
            vertical="top",
            overflow="fold",
        )
    for number, line in enumerate(grid.lines, start=1):
        drawn.add_row(*map(Text, line), end_section=grid.summed and number == len(grid.lines) - 1)
    return drawn
