"""A report as one HTML file that asks nothing of any host.

Everything is in the file as it stands: tables with all of their rows, figures as SVG. The script only sorts, filters,
folds and tells what lies under the pointer, so that the page is whole without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rooflens.report.charts import svg
from rooflens.report.escape import printable, unbroken
from rooflens.report.study.content import Report, TableBlock
from rooflens.report.table import Column, Row, for_people, text

if TYPE_CHECKING:
    from jinja2 import Environment

FIRST = 60
"""Rows of a table that are shown before somebody asks for more."""
WIDE = 11
"""Columns beyond which a table shows some on demand only, and is printed across the page if it still has more."""


def render(report: Report) -> str:
    """The page; equal reports give equal pages."""
    templates = files("rooflens.report.study") / "templates"
    css, js = ((templates / f"page.{kind}").read_text(encoding="utf-8").rstrip() for kind in ("css", "js"))
    return _templates().get_template("page.html").render(report=report, shapes=svg.shapes(), css=css, js=js)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("rooflens.report.study"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(view=_view, draw=svg.draw, legend=svg.legend, printable=_shown)
    return templates


def _shown(words: str) -> str:
    """Text of others, its line breaks kept."""
    return "\n".join(map(printable, words.splitlines()))


def _view(listed: TableBlock) -> dict[str, Any]:
    """What the template shows of a table: text and raw numbers, cell by cell."""
    table = for_people(listed.table)
    # Numbers stand to the right; what a terminal shows where it has room, a wide table shows on demand.
    classes = [f"{'n ' * (column.align == 'right')}{'r' * (column.show == 'room')}".strip() for column in table.columns]
    return {
        "key": listed.key,
        "title": printable(table.title),
        "columns": [
            (printable(column.header) or "what", its) for column, its in zip(table.columns, classes, strict=True)
        ],
        "rows": [list(_cells(table.columns, classes, row)) for row in table.rows],
        "total": None if table.total is None else list(_cells(table.columns, classes, table.total)),
        "notes": [printable(note) for note in table.remarks],
        "first": FIRST,
        "wide": len(table.columns) > WIDE,
        "across": sum(column.show == "always" for column in table.columns) > WIDE,
        "folded": listed.folded,
    }


def _cells(columns: Sequence[Column], classes: Sequence[str], row: Row) -> Iterator[tuple[str, str, str]]:
    """Text, the number to sort by where there is one, and the class of the cell."""
    for cell, column, own in zip(row, columns, classes, strict=True):
        shown = " ".join(filter(None, (cell.mark, cell.sign, printable(text(cell, column)))))
        shown = unbroken(shown) if column.align == "right" else shown
        is_number = isinstance(cell.value, int | float) and not isinstance(cell.value, bool)
        is_long = isinstance(cell.value, str) and len(cell.value) > 40
        words = (own, f"i{min(cell.indent, 8)}" if cell.indent else "", "w" if is_long else "")
        yield shown, f"{cell.value:.6g}" if is_number else "", " ".join(filter(None, words))
