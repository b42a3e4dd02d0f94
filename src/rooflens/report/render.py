"""Tables in the format that somebody asked for; those for a terminal or a pipe are drawn here, by rich.

A table that is too wide for a terminal is turned on its side where it has few rows; else it gives up columns that are
nice to have; else it is broken into blocks that repeat the leading columns. No value is cut off.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Literal, get_args

from rooflens.errors import InvalidValue
from rooflens.report import text_formats
from rooflens.report.escape import printable
from rooflens.report.table import Column, Entry, Table, for_people, text

if TYPE_CHECKING:
    from rich.console import RenderableType

Format = Literal["table", "md", "csv", "tex", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_GAP = 2
_FOLDABLE = 24
"""Text may be folded down to this width before columns are given up."""
_TURNED_ROWS = 4
_DIGITS = (4, 3)
"""Significant digits, where there is room and where there is not."""
# ASCII, since a pipe may have any encoding: a rule below the header and between the rows and their sum.
_RULES = "    \n    \n----\n    \n----\n    \n    \n    \n"


def render(tables: Table | Sequence[Table], format: Format, *, width: int | None = None, color: bool = False) -> str:
    """Return the tables as text that ends with a line break.

    ``csv`` holds one table, the first: another one would have other columns. ``json`` is an array of objects, one per
    row; of several tables it is an array of objects with title, rows and notes. The promised shape of an estimate is
    :func:`rooflens.report.case_json.promised_json`.

    Args:
        width: columns of the terminal (``table`` only); default: the terminal's own, 80 in a pipe.
        color: with terminal colours (``table`` only).

    Raises:
        InvalidValue: an unknown format, or no table.
    """
    views = [tables] if isinstance(tables, Table) else list(tables)
    if not views:
        raise InvalidValue("there is no table to show: a table needs a record or a failure, and there is none")
    match format:
        case "table":
            return _draw(views, width, color)
        case "md":
            return text_formats.as_markdown(views)
        case "tex":
            return text_formats.as_latex(views)
        case "csv":
            return text_formats.as_csv(views[0])
        case "json":
            rows = text_formats.json_rows(views[0])
            several = [text_formats.json_table(view) for view in views]
            return text_formats.as_json(rows if isinstance(tables, Table) else several)
    raise InvalidValue(f"unknown format {format!r}; known: {', '.join(FORMATS)}")


def _draw(tables: Sequence[Table], width: int | None, color: bool) -> str:
    """Return the tables with their titles and notes, at most `width` columns wide."""
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


class _Grid:
    """A table as text, before it is drawn.

    Attributes:
        widths: of each column: numbers whole, headers broken between words.
        least: of each column: the width in which nothing but text is folded; `needs` is that of all.
    """

    def __init__(
        self,
        headers: Sequence[str],
        right: Sequence[bool],
        lines: Sequence[Sequence[str]],
        summed: bool = False,
        words: Sequence[int] = (),
    ) -> None:
        """Lay out lines; `words` are the numbers of columns of words, none of which is folded."""
        from rich.cells import cell_len

        self.headers, self.right, self.lines, self.summed = headers, right, lines, summed
        self.widths = [
            max(map(cell_len, [*header.split(), *(line[i] for line in lines)]), default=1)
            for i, header in enumerate(headers)
        ]
        least = [width if whole else min(width, _FOLDABLE) for width, whole in zip(self.widths, right, strict=True)]
        for i in words:
            least[i] = max([least[i], *(cell_len(word) for line in lines for word in line[i].split())])
        self.least = least
        self.needs = sum(least) + _GAP * (len(headers) - 1)


def _layout(table: Table, width: int) -> tuple[list[_Grid], list[str]]:
    """Return the table whole if that fits, else turned, else in blocks; and the columns for which there is no room."""
    if not table.rows:
        return [], []
    for digits in _DIGITS:
        whole = _grid(table, range(len(table.columns)), digits)
        if whole.needs <= width:
            return [whole], []
    turned = _turned(table)
    if turned is not None and turned.needs <= width:
        return [turned], []
    blocks = list(_blocks(table, width))
    drawn = {i for block in blocks for i in block}
    return (
        [_grid(table, block, _DIGITS[-1]) for block in blocks],
        [column.header for i, column in enumerate(table.columns) if i not in drawn],
    )


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Yield columns that fit beside the leading ones: all that are always shown, or else group by group.

    A block has as many of the nice-to-have columns of its last group as there is room for.
    """
    groups = list(dict.fromkeys(column.group for column in table.columns if column.group))
    leading = [i for i, column in enumerate(table.columns) if not column.group]
    always = [i for i, column in enumerate(table.columns) if column.group and column.show == "always"]
    blocks: list[tuple[list[int], list[str]]] = [([*leading, *always], groups)]
    if groups and _grid(table, blocks[0][0]).needs > width:
        blocks = []
        for group in groups:
            block = list(leading)
            for i in always:
                if table.columns[i].group == group:
                    if block != leading and _grid(table, [*block, i]).needs > width:
                        blocks.append((block, []))
                        block = list(leading)
                    block.append(i)
            blocks.append((block, [group]))
    for needed, its_groups in blocks:
        shown = needed
        for i, column in enumerate(table.columns):
            if i not in shown and column.show == "room" and column.group in its_groups:
                wider = sorted([*shown, i])
                shown = wider if _grid(table, wider).needs <= width else shown
        yield shown


def _grid(table: Table, block: Sequence[int], digits: int = _DIGITS[-1]) -> _Grid:
    """Return some columns of a table."""
    rows = [*table.rows, *([table.total] if table.total is not None else [])]
    return _Grid(
        headers=[table.columns[i].header for i in block],
        right=[table.columns[i].align == "right" for i in block],
        lines=[[_shown(row[i], table.columns[i], digits) for i in block] for row in rows],
        summed=table.total is not None,
        words=[n for n, i in enumerate(block) if table.columns[i].words],
    )


def _turned(table: Table) -> _Grid | None:
    """Return quantities as lines and cases as columns; None where the rows are many or are no cases."""
    leading = [(i, column) for i, column in enumerate(table.columns) if not column.group]
    quantities = [(i, column) for i, column in enumerate(table.columns) if column.group]
    cases = all(column.title for _, column in leading)
    if len(table.rows) > _TURNED_ROWS or not quantities or not cases or table.total is not None:
        return None
    named = [[column.title.format(text(row[i], column)) for i, column in leading if row[i].value] for row in table.rows]
    unnamed = f"no {leading[0][1].header}" if leading else ""
    return _Grid(
        headers=["", *(printable(" ".join(words)) or unnamed for words in named)],
        right=[False, *(True for _ in table.rows)],
        lines=[
            [column.header, *(_shown(row[i], column, _DIGITS[0]) for row in table.rows)] for i, column in quantities
        ],
    )


def _shown(entry: Entry, column: Column, digits: int) -> str:
    """Return the entry in one line; mark and sign stand in front, so that the units line up."""
    words = filter(None, [entry.mark, entry.sign, text(entry, column, digits)])
    return "  " * entry.indent + printable(" ".join(words))


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
    for header, right, width, least in zip(grid.headers, grid.right, grid.widths, grid.least, strict=True):
        drawn.add_column(
            Text(header),
            justify="right" if right else "left",
            width=width if right else None,
            min_width=None if right else least,
            vertical="top",
            overflow="fold",
        )
    for number, line in enumerate(grid.lines, start=1):
        drawn.add_row(*map(Text, line), end_section=grid.summed and number == len(grid.lines) - 1)
    return drawn
