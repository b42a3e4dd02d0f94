"""Tables as HTML that stands inside of another page: a notebook's, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape

from rooflens.report.escape import printable
from rooflens.report.table import Column, Row, Table, explained, for_people, text

ROWS = 60
"""Rows of a table that are shown; a note says how many more there are."""
WIDE = 11
"""Columns beyond which a table shows only those that matter most; a note names the others."""
_LONG = 40
"""Letters beyond which a cell is broken into lines."""
# The ink of the page around it, so that light and dark are that page's.
_STYLE = """\
<style>
.rooflens table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: 0 0 6px }
.rooflens caption { text-align: left; font-weight: 600; padding: 6px 0; color: inherit; white-space: nowrap }
.rooflens th, .rooflens td { padding: 3px 10px; text-align: left; vertical-align: top; border: 0 }
.rooflens thead th { border-bottom: 1px solid }
.rooflens tfoot td { border-top: 1px solid; font-weight: 600 }
.rooflens .s { white-space: nowrap }
.rooflens .n { text-align: right; white-space: nowrap }
.rooflens ul { list-style: none; margin: 0 0 10px; padding: 0; font-size: 12px; opacity: .8 }
.rooflens .scroll { overflow-x: auto }
</style>"""


def as_html(tables: Iterable[Table]) -> str:
    """Return tables with their notes; a table of one row stands upright."""
    lines = (line for table in tables for line in _table(table))
    return "\n".join(['<div class="rooflens">', _STYLE, *lines, "</div>"])


def in_frame(page: str, title: str) -> str:
    """Return a whole page in a frame of its own, with nothing that it shares with the page around it."""
    source, name = escape(page, quote=True), escape(printable(title), quote=True)
    return f'<iframe srcdoc="{source}" width="100%" height="760" style="border: 0" title="{name}"></iframe>'


def _table(table: Table) -> Iterator[str]:
    view, left_out = _narrowed(for_people(table))
    yield '<div class="scroll"><table>'
    yield f"<caption>{_text(view.title)}</caption>"
    yield from _upright(view) if len(view.rows) == 1 and view.total is None else _grid(view)
    yield "</table></div>"
    hidden = len(view.rows) - ROWS
    more = [f"{hidden} more rows are not shown; rooflens.table and rooflens.explore show all"] if hidden > 0 else []
    hint = [f"more columns in rooflens.table: {', '.join(left_out)}"] if left_out else []
    notes = [*([] if view.rows else ["none"]), *more, *view.remarks, *hint]
    if notes:
        yield f"<ul>{''.join(f'<li>{_text(note)}</li>' for note in notes)}</ul>"


def _narrowed(view: Table) -> tuple[Table, list[str]]:
    """Return a wide table of several rows less what is shown only where there is room, and the headers left out."""
    if len(view.columns) <= WIDE or len(view.rows) < 2:
        return view, []
    kept = [i for i, column in enumerate(view.columns) if column.show == "always"]
    narrow = replace(
        view,
        columns=tuple(view.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in view.rows),
        total=None if view.total is None else tuple(view.total[i] for i in kept),
        notes=explained(view.notes, (view.columns[i] for i in kept)),
    )
    return narrow, [column.header for column in view.columns if column not in narrow.columns]


def _grid(view: Table) -> Iterator[str]:
    if not view.rows:
        return
    heads = "".join(f'<th scope="col"{_side(column)}>{_text(column.header)}</th>' for column in view.columns)
    yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    yield from (_row(view.columns, row) for row in view.rows[:ROWS])
    yield "</tbody>"
    if view.total is not None:
        yield f"<tfoot>{_row(view.columns, view.total)}</tfoot>"


def _upright(view: Table) -> Iterator[str]:
    """The columns of the only row, one below the other."""
    yield "<tbody>"
    for column, cell in zip(view.columns, _cells(view.columns, view.rows[0]), strict=True):
        yield f'<tr><th scope="row">{_text(column.header)}</th>{cell}</tr>'
    yield "</tbody>"


def _row(columns: Sequence[Column], row: Row) -> str:
    return f"<tr>{''.join(_cells(columns, row))}</tr>"


def _cells(columns: Sequence[Column], row: Row) -> Iterator[str]:
    for cell, column in zip(row, columns, strict=True):
        words = " ".join(filter(None, (cell.mark, cell.sign, text(cell, column))))
        short = "" if len(words) > _LONG else ' class="s"'
        yield f"<td{_side(column) or short}>{'&emsp;' * cell.indent}{_text(words)}</td>"


def _side(column: Column) -> str:
    return ' class="n"' if column.align == "right" else ""


def _text(words: str) -> str:
    return escape(printable(words), quote=True)
