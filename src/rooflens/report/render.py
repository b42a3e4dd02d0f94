"""Tables in the format that somebody asked for; those for a terminal or a pipe are drawn here, by rich.

A table that is too wide for a terminal stands upright if it has one row, and is turned on its side where it has few;
else it gives up columns that are nice to have; else it is split into blocks that repeat the leading columns. No value
is cut off, and no word is broken. What several tables have to say below is said once, at the end.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Literal, get_args

from rooflens.errors import InvalidValue
from rooflens.report import text_formats
from rooflens.report.escape import printable
from rooflens.report.table import Column, Entry, Row, Table, explained, for_people, text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Format = Literal["table", "md", "csv", "tex", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_GAP = 2
_FOLDABLE = 24
"""Text may be folded down to this width before columns are given up; only a word that is longer may be broken, and
behind a sign."""
_PIECES = tuple(re.compile(f"[^{signs}]*[{signs}]+|[^{signs}]+") for signs in ("./:,;<>(){}=", "_-"))
"""Parts of a long word, behind signs, and parts of a long part."""
_UNIT = re.compile(r"(?<=\d) (?=(?:[pnumkMGTPE]?(?:FLOP/s|FLOP/B|FLOP|B/s|B|s|W|J|Hz)|[kMGTPE]|%)(?!\w))")
_GLUE = "\ue000"
"""Stands for a space at which no line ends; `printable` text has none of it."""
_TURNED_ROWS = 4
_BLOCKS, _UPRIGHT_ROWS = 3, 8
"""So few rows stand upright one by one before a table is split into more blocks than that."""
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
    views = [for_people(table) for table in tables]
    laid = [_layout(view, columns) for view in views]
    notes_of = [
        explained(view.notes, (c for i, c in enumerate(view.columns) if i not in left_out))
        for view, (_, left_out) in zip(views, laid, strict=True)
    ]
    often = Counter(note for notes in notes_of for note in notes)
    common = [note for note, times in often.items() if times > 1]
    for number, (view, (grids, left_out)) in enumerate(zip(views, laid, strict=True)):
        if number:
            console.print()
        console.print(Text(_glued(view.title), style="bold"), overflow="fold")
        if view.alike:
            console.print(Text(_glued(view.alike)), overflow="fold")
        for grid in grids:
            console.print()
            console.print(_rich(grid, columns))
        hidden = ", ".join(view.columns[i].header for i in left_out)
        notes = [
            *([] if grids else ["none"]),
            *(note for note in notes_of[number] if note not in common),
            *([f"hidden (terminal too narrow): {hidden}"] if hidden else []),
        ]
        _print_notes(console, notes)
    _print_notes(console, common)
    return "\n".join(line.rstrip() for line in file.getvalue().replace(_GLUE, " ").split("\n"))


def _print_notes(console: Console, notes: Sequence[str]) -> None:
    from rich.text import Text

    if notes:
        console.print()
    for note in notes:
        console.print(Text(_glued(note), style="dim"), overflow="fold")


def _glued(text: str) -> str:
    """Return text in which no line ends between a number and its unit."""
    return _UNIT.sub(_GLUE, printable(text))


class _Grid:
    """A table as text, before it is drawn.

    Attributes:
        widths: of each column: text and numbers in one line, headers broken between words.
        least: of each column: the width in which nothing but text is folded, and no word is broken; `needs` is that of
            all.
    """

    def __init__(
        self,
        headers: Sequence[str],
        right: Sequence[bool],
        lines: Sequence[Sequence[str]],
        summed: bool = False,
        words: Sequence[int] = (),
    ) -> None:
        """Lay out lines; `words` are the numbers of columns of words, none of which is broken."""
        from rich.cells import cell_len

        self.headers, self.right, self.lines, self.summed, self.words = headers, right, lines, summed, words
        self.widths = [
            max(map(cell_len, [*header.split(), *(line[i] for line in lines)]), default=1)
            for i, header in enumerate(headers)
        ]
        self.least = [
            width if whole else min(width, max([_FOLDABLE, *self._pieces(i)]))
            for i, (width, whole) in enumerate(zip(self.widths, right, strict=True))
        ]
        self.needs = sum(self.least) + _GAP * (len(headers) - 1)

    def _pieces(self, number: int) -> Iterator[int]:
        """Yield the widths of what cannot be broken in a column."""
        from rich.cells import cell_len

        for line in self.lines:
            for word in line[number].split():
                yield from (map(cell_len, [word] if number in self.words else _pieces(word)))

    def fitted(self, width: int) -> list[int]:
        """Return the width of each column in a terminal: what is left over goes to folded text."""
        left, fitted = width - self.needs, list(self.least)
        for i, wanted in enumerate(self.widths):
            more = max(0, min(left, wanted - fitted[i]))
            fitted[i] += more
            left -= more
        return fitted


def _pieces(word: str) -> list[str]:
    """Return the parts of a word between which it may be broken; most words have one."""
    pieces = [word]
    for signs in _PIECES:
        pieces = [part for piece in pieces for part in ([piece] if len(piece) <= _FOLDABLE else signs.findall(piece))]
    return pieces


def _wrapped(line: str, width: int, whole: bool) -> str:
    """Return text in lines of a width, broken between words, or within a long one behind a sign."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    lines, now = list[str](), indent
    for word in line.split():
        for number, piece in enumerate([word] if whole else _pieces(word)):
            glue = " " if number == 0 and now != indent else ""
            if now != indent and cell_len(now + glue + piece) > width:
                lines.append(now)
                now, glue = indent, ""
            now += glue + piece
    return "\n".join([*lines, now])


def _layout(table: Table, width: int) -> tuple[list[_Grid], list[int]]:
    """Return the table whole if that fits, else turned, else in blocks; and the numbers of columns without room."""
    if not table.rows:
        return [], []
    for digits in _DIGITS:
        whole = _grid(table, range(len(table.columns)), digits)
        if whole.needs <= width:
            return [whole], []
    if len(table.rows) == 1 and table.total is None:
        return [_upright(table, table.rows[0], width)], []
    turned = _turned(table)
    if turned is not None and turned.needs <= width:
        return [turned], []
    blocks = list(_blocks(table, width))
    drawn = {i for block in blocks for i in block}
    grids = [_grid(table, block, _DIGITS[-1]) for block in blocks]
    many = len(grids) > _BLOCKS and len(table.rows) <= _UPRIGHT_ROWS
    if many or any(grid.needs > width for grid in grids):
        rows = [*table.rows, *([] if table.total is None else [table.total])]
        return [_upright(table, row, width) for row in rows], []
    return grids, [i for i in range(len(table.columns)) if i not in drawn]


def _upright(table: Table, row: Row, width: int) -> _Grid:
    """Return a row as lines of name and value; values stand below each other at the right, unless one is folded."""
    lines = [
        [column.header, _shown(entry, column, _DIGITS[0]).strip()]
        for entry, column in zip(row, table.columns, strict=True)
    ]
    whole = _Grid(headers=["", ""], right=[False, True], lines=lines)
    return whole if whole.needs <= width else _Grid(headers=["", ""], right=[False, False], lines=lines)


def _leading(table: Table) -> list[int]:
    """Return the columns that name a row: those without a group, or where no column has one, those that tell cases."""
    if any(column.group for column in table.columns):
        return [i for i, column in enumerate(table.columns) if not column.group]
    named = [i for i, column in enumerate(table.columns) if column.title]
    return named or [0]


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Yield columns that fit beside the leading ones: all that are always shown, or else group by group.

    A block has as many of the nice-to-have columns of its last group as there is room for. Where there are several,
    columns for which there has to be more room are hidden.
    """
    leading = _leading(table)
    others = [i for i in range(len(table.columns)) if i not in leading]
    groups = list(dict.fromkeys(table.columns[i].group for i in others))
    always = [i for i in others if table.columns[i].show == "always"]
    blocks: list[tuple[list[int], list[str]]] = [(sorted([*leading, *always]), groups)]
    if groups and _grid(table, blocks[0][0]).needs > width:
        blocks = list(_by_group(table, leading, others, width))
    kinds = ("room", "more") if len(blocks) == 1 else ("room",)
    for needed, its_groups in blocks:
        shown = needed
        for kind in kinds:
            for i in (i for i in others if table.columns[i].show == kind and table.columns[i].group in its_groups):
                wider = sorted([*shown, i])
                shown = wider if _fits(table, wider, leading, width) else shown
        if shown != leading:
            yield shown


def _by_group(
    table: Table, leading: Sequence[int], others: Sequence[int], width: int
) -> Iterator[tuple[list[int], list[str]]]:
    """Yield what is always shown of each group, in as many blocks as it needs; the last one names the group."""
    for group in dict.fromkeys(table.columns[i].group for i in others if table.columns[i].show != "more"):
        block = list(leading)
        for i in others:
            if table.columns[i].group == group and table.columns[i].show == "always":
                if block != leading and _grid(table, [*block, i]).needs > width:
                    yield block, []
                    block = list(leading)
                block.append(i)
        yield block, [group]


def _fits(table: Table, block: Sequence[int], leading: Sequence[int], width: int) -> bool:
    """True if columns fit and leave the leading ones, which name a row, in one line."""
    grid = _grid(table, block)
    unfolded = sum(grid.widths[n] - grid.least[n] for n, i in enumerate(block) if i in leading)
    return grid.needs + unfolded <= width


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
    names = _leading(table)
    leading = [(i, column) for i, column in enumerate(table.columns) if i in names]
    quantities = [(i, column) for i, column in enumerate(table.columns) if i not in names]
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


def _rich(grid: _Grid, width: int) -> RenderableType:
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
    widths = grid.fitted(width)
    for header, right, its_width in zip(grid.headers, grid.right, widths, strict=True):
        justify: Literal["left", "right"] = "right" if right else "left"
        drawn.add_column(Text(header), justify=justify, width=its_width, vertical="top", overflow="fold")
    for number, line in enumerate(grid.lines, start=1):
        cells = [_wrapped(cell, widths[i], i in grid.words) for i, cell in enumerate(line)]
        drawn.add_row(*map(Text, cells), end_section=grid.summed and number == len(grid.lines) - 1)
    return drawn
