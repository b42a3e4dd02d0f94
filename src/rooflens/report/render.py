"""Tables in the format that somebody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from rooflens.errors import InvalidValue
from rooflens.report import terminal, text_formats
from rooflens.report.table import Table

Format = Literal["table", "md", "csv", "tex", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


def render(tables: Table | Sequence[Table], format: Format, *, width: int | None = None, color: bool = False) -> str:
    """The tables as text that ends with a line break.

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
        raise InvalidValue("there is no table to show")
    match format:
        case "table":
            return terminal.draw(views, width, color)
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
