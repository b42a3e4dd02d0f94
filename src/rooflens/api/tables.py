"""Records as text, in every format of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rooflens.errors import InvalidValue
from rooflens.report.render import Format, render
from rooflens.report.summary import tables_of
from rooflens.results import Fits, RecordSet

if TYPE_CHECKING:
    from rooflens.compare import Comparison
    from rooflens.report.table import Table

__all__ = ["Format", "table"]


def table(
    *records: RecordSet | Fits | Comparison,
    format: Format = "table",
    depth: int = 1,
    width: int | None = None,
    color: bool = False,
) -> str:
    """The tables of the command line as text: ``print(rl.table(est, time))``; twin of ``--format``.

    Several cases give a summary and their memory; a single estimated case also its operation families and its modules.

    Args:
        records: sets of any sources; the estimate and the measurement of a case share a row. Or what
            :func:`largest_batch` or :func:`compare` gave, alone.
        format: ``table`` for people, ``md`` or ``tex`` for papers, ``csv`` (the summary alone) or ``json`` (the
            promised shape, one object per case; of largest batches one object per device; of a comparison its tables,
            each with title, rows and notes) for programs.
        depth: how deep the module tree goes.
        width: columns of a ``table``; default: the terminal's own, 80 in a pipe.
        color: whether a ``table`` has terminal colours.

    Raises:
        InvalidValue: an unknown format, or no record and no failure.
    """
    from rooflens.report.case_json import promised_json
    from rooflens.report.comparison import comparison_tables
    from rooflens.report.text_formats import as_json

    sets = [item for item in records if isinstance(item, RecordSet)]
    if len(sets) < len(records):
        if len(records) == 1 and not isinstance(records[0], Fits):
            return render(comparison_tables(records[0]), format, width=width, color=color)
        rows, held = _largest_batches(records)
        files = format in ("csv", "json")  # whose one table has every column
        return render(rows if files else [rows, held], format, width=width, color=color)
    together = sum(sets[1:], start=sets[0]) if sets else RecordSet(())
    if format == "json":
        return as_json(promised_json(together))
    return render(tables_of(together, depth), format, width=width, color=color)


def _largest_batches(items: Sequence[object]) -> tuple[Table, Table]:
    from rooflens.report.largest_batches import largest_batches

    if len(items) == 1 and isinstance(items[0], Fits):
        return largest_batches(items[0])
    raise InvalidValue("largest batches have a table of their own, and so has a comparison; show each apart")
