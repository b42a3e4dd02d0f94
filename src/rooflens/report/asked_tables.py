"""Tables by the pieces that somebody asks for, instead of the overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rooflens.errors import InvalidValue
from rooflens.report.arranged import IN_ORDER, TableView, arranged
from rooflens.report.module_tables import layer_table
from rooflens.report.part_tables import SHOWN, part_table
from rooflens.report.summary import summary, whole_steps
from rooflens.report.table import Table
from rooflens.results import Evidence, RecordSet, join


def asked_tables(records: RecordSet, view: TableView, *, together: bool = False) -> list[Table]:
    """Return the table by some pieces, one for each case; without pieces, the summary.

    Args:
        together: one table of all cases, with all rows if nobody asks for fewer: for files.

    Raises:
        InvalidValue: the records have no such pieces, or a column is not known.
    """
    if view.by in (None, "model", "phase"):
        table = summary(records)
        if view.by == "model":
            table = whole_steps(table)
        return [arranged(table, view)]
    groups = [join(records)] if together else [(item,) for item in join(records)]
    limit = view.top if together or view.by not in ("op", "kernel") else view.top or SHOWN
    return [arranged(_by_pieces(items, view), replace(view, top=limit)) for items in groups]


def _by_pieces(items: Sequence[Evidence], view: TableView) -> Table:
    if view.by == "module":
        flat = view.top is not None or view.sort not in (None, IN_ORDER)
        return layer_table(items, view.depth, flat=flat)
    table = part_table(items, view.by)  # type: ignore[arg-type]
    if not table.rows:
        raise InvalidValue(
            "these records hold no kernels: 'rooflens counters' and 'rooflens read' find them; without them, name"
            " family, op or module"
            if view.by == "kernel"
            else f"these records hold nothing to show by {view.by}: they were taken of whole models"
        )
    return table
