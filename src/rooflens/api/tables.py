"""Records as text, in every format of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rooflens.results import RecordSet

if TYPE_CHECKING:
    from rooflens.report.table import Table

Format = Literal["table", "json", "csv", "md", "tex"]


def table(
    *records: RecordSet, format: Format = "table", depth: int = 1, width: int | None = None, color: bool = False
) -> str:
    """The tables of the command line as text: ``print(rl.table(est, time))``; twin of ``--format``.

    Several cases give a summary and their memory; a single estimated case also its operation families and its modules.

    Args:
        records: sets of any sources; the estimate and the measurement of a case share a row.
        format: ``table`` for people, ``md`` or ``tex`` for papers, ``csv`` (the summary alone) or ``json`` (the
            promised shape, one object per case) for programs.
        depth: how deep the module tree goes.
        width: columns of a ``table``; default: the terminal's own, 80 in a pipe.
        color: whether a ``table`` has terminal colours.

    Raises:
        InvalidValue: an unknown format, or no record and no failure.
    """
    from rooflens.report.promised import promised_json
    from rooflens.report.render import render
    from rooflens.report.text_formats import as_json

    together = sum(records[1:], start=records[0]) if records else RecordSet(())
    if format == "json":
        return as_json(promised_json(together))
    return render(_tables(together, depth), format, width=width, color=color)


def _tables(records: RecordSet, depth: int) -> list[Table]:
    """The summary; of a single case also families and modules, of failures also these."""
    from rooflens.report.breakdown import families
    from rooflens.report.summary import failures, memory, summary
    from rooflens.report.tree import module_tree

    tables = [summary(records)] if records.records else []
    estimates = records.where(source="estimate")
    if len(estimates.cases) == 1:
        tables += [families(estimates), module_tree(estimates, depth=depth)]
    if any(record.memory is not None for record in records):
        tables.append(memory(records))
    if records.failures:
        tables.append(failures(records))
    return tables
