"""Tables by the pieces that somebody asks for, instead of the overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal

from rooflens.errors import InvalidValue
from rooflens.report.arranged import IN_ORDER, TableView, arranged, column_number
from rooflens.report.columns import CASE, PROFILED_TIME
from rooflens.report.figures.case_pieces import PieceKind
from rooflens.report.module_tables import LAYER_COLUMNS, at_depth, layer_table
from rooflens.report.part_tables import CEILINGS, PART_COLUMNS, SHOWN, part_table
from rooflens.report.summary import SUMMARY_COLUMNS, summary, whole_steps
from rooflens.report.table import COUNT, Table, Value
from rooflens.report.text_formats import json_rows
from rooflens.results import Evidence, RecordSet, join
from rooflens.results.parts import PartKind

_NO_KERNELS = (
    "these records hold no kernels: 'rooflens counters' and 'rooflens read' find them; without them, name family, op or"
    " module"
)
_NO_PARTS = "these records hold nothing to show by {}: they are of a whole model, or of a profile without any"


def check_columns(view: TableView) -> None:
    """Refuse a column that the tables of a view never have, before the work for them.

    Raises:
        InvalidValue: the column is not known; near names are told.
    """
    if view.by in (None, "model", "phase"):
        columns = (*SUMMARY_COLUMNS, *CEILINGS)
    else:
        columns = LAYER_COLUMNS if view.by == "module" else PART_COLUMNS[view.by]
    for name in (*view.columns, *([view.sort] if view.sort not in (None, IN_ORDER) else [])):
        column_number((*columns, PROFILED_TIME), name)


def asked_tables(records: RecordSet, view: TableView, *, together: bool = False) -> list[Table]:
    """Return the table by some pieces, one for each case; without pieces, the summary.

    Args:
        together: one table of all cases, with all rows if nobody asks for fewer: for files.

    Raises:
        InvalidValue: the records have no such pieces, or a column is not known.
    """
    by = view.by
    match by:
        case None | "model" | "phase":
            table = summary(records)
            return [arranged(whole_steps(table) if by == "model" else table, view)]
    if by == "module-family":
        records = at_depth(records, view.depth)
    groups = [join(records)] if together else [(item,) for item in join(records)]
    limit = view.top if together or by not in ("op", "operator", "kernel") else view.top or SHOWN
    tables = [table for items in groups if (table := _by_pieces(items, by, view)).rows]
    if not tables:
        raise InvalidValue(_NO_KERNELS if by == "kernel" else _NO_PARTS.format(by))
    return [arranged(table, replace(view, top=limit)) for table in tables]


def frame_rows(
    records: RecordSet, by: PieceKind, depth: int | None = None
) -> tuple[list[dict[str, Value]], dict[str, str]]:
    """Return the rows of the table by some pieces, with every column in base units, and the units that it has.

    Of modules each row holds those below it, too; `leaf` marks the rows that have none, whose numbers add up.

    Raises:
        InvalidValue: the records have no such pieces.
    """
    (table,) = asked_tables(records, TableView(by=by, depth=depth), together=True)
    rows = json_rows(table)
    if by == "module":
        for row, below in zip_longest(rows, rows[1:]):
            same = below is not None and all(row[key] == below[key] for key in _CASE_KEYS)
            row["leaf"] = not (same and _depth(below) > _depth(row))
    return rows, {column.key: column.unit for column in table.columns if column.unit not in ("", COUNT)}


_CASE_KEYS = tuple(column.key for column in CASE)


def _depth(row: Mapping[str, Value]) -> int:
    return int(row["depth"] or 0)


def _by_pieces(items: Sequence[Evidence], by: PartKind | Literal["module"], view: TableView) -> Table:
    if by == "module":
        flat = view.top is not None or view.sort not in (None, IN_ORDER)
        return layer_table(items, view.depth, flat=flat)
    return part_table(items, by)
