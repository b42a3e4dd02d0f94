"""What results offer as methods and a higher layer makes: its function is named here, and loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

Rows = list[dict[str, object]]
"""Rows of a table, in base units, by the keys of its columns."""


def notebook_html(value: object) -> str | None:
    """Return a result as a notebook shows it; None of what is no result."""
    make: Callable[[object], str | None] = import_module("rooflens.report.notebook_tables").html
    return make(value)


def table_rows(records: object, by: str, depth: int | None) -> tuple[Rows, dict[str, str]]:
    """Return the rows of a table of records, and the units of its columns."""
    make: Callable[[object, str, int | None], tuple[Rows, dict[str, str]]] = import_module(
        "rooflens.report.asked_tables"
    ).frame_rows
    return make(records, by, depth)
