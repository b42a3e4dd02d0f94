"""The tables of an overview: the summary, and of a single case its parts, modules, memory and counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rooflens.compare.executed_work import executed
from rooflens.report.answer_table import whole_answers
from rooflens.report.arranged import TableView, arranged
from rooflens.report.columns import CASE, PHASE
from rooflens.report.counts import counts, differ
from rooflens.report.executed_work import by_family, by_module
from rooflens.report.memory_steps import memory_steps
from rooflens.report.memory_table import memory
from rooflens.report.module_tables import module_tree
from rooflens.report.part_tables import SHOWN, part_table
from rooflens.report.scaling import scaling
from rooflens.report.summary import PARAMETER_COUNT, failures, rows_of, summary, whole_steps
from rooflens.report.table import Table, for_people
from rooflens.report.table_notes import NAME_THE_DEVICE, NO_DEVICE
from rooflens.results import UNATTRIBUTED, Evidence, RecordSet, join
from rooflens.results.evidence import piecewise
from rooflens.results.parts import PartKind

PARTS_HINT = "what the step is made of, as estimated: --by family, --by module"
"""Where the parts of a step tell nothing of its time."""
_MANY = 8
"""Rows of an overview beyond which steps are shown without their phases."""


def tables_of(records: RecordSet, depth: int = 1) -> list[Table]:
    """Return whole answers and the summary; of a single case its parts, unless it was timed as a whole; failures."""
    tables = [*whole_answers(records), *_summary_of_people(records)] if records.records else []
    estimates = [part for _, source, part in records.split() if source == "estimate"]
    items = join(records)
    if len(estimates) == 1:
        counted = [item for item in items if item.work is not None and item.work.sources == ("estimate",)]
        times = piecewise(records) if len(records.sources) > 1 else None
        if "measure" in records.sources and times is None and depth == 1:
            tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, PARTS_HINT))
        else:
            tables += [part_table(counted[:1], "family"), module_tree(estimates[0], depth=depth, times=times)]
    if "counters" in records.sources:
        tables += _counted(records, depth)
    tables += _costliest(items)
    if any(record.memory is not None for record in records.records):
        tables.append(memory(records))
    if sum(source == "measure" for _, source, _ in records.split()) == 1:
        tables += memory_steps(records)
    if any(record.scaling is not None for record in records.records):
        tables.append(scaling(records))
    if records.failures:
        tables.append(failures(records))
    if any(note.endswith(NAME_THE_DEVICE) for table in tables for note in table.notes):
        tables = [replace(table, notes=tuple(note for note in table.notes if note != NO_DEVICE)) for table in tables]
    return tables


def _summary_of_people(records: RecordSet) -> list[Table]:
    """Return the summary, of many rows with the steps as wholes; work that has two sides stands in a table of its own.

    Without a time in it, that table is all.
    """
    table, rows = summary(records), rows_of(join(records))
    apart = counts("Counts", (*CASE, PHASE), rows, (PARAMETER_COUNT,)) if differ(rows) else None
    if apart is not None:
        columns = (replace(column, show="files") if column.group == "work" else column for column in table.columns)
        table = replace(table, columns=tuple(columns))
        if not any(column.group for column in for_people(table).columns):
            table, apart = replace(apart, notes=(*apart.notes, *table.notes)), None
    short = whole_steps(table) if len(rows) > _MANY else table
    if short.rows != table.rows:
        short = replace(short, notes=(*table.notes, "phases of the steps: --by phase"))
        apart = apart and whole_steps(apart)
    return [short] if apart is None else [apart, short]


def _costliest(items: Sequence[Evidence]) -> list[Table]:
    """Return the costliest kernels of the only case that has some, or the operations of one that was timed by them.

    A trace has operations, and pieces that belong to none: what holds more of the time is shown.
    """
    seconds = [(item, _seconds_by_scope(item)) for item in items]
    kernels = [item for item, by in seconds if "kernel" in by and by["kernel"] >= by.get("op", 0.0)]
    timed = [item for item, by in seconds if "op" in by and (item.work is None or item.work is item.pieces)]
    found = kernels or timed
    by: PartKind = "kernel" if kernels else "op"
    return [arranged(part_table(found, by), TableView(top=SHOWN))] if len(found) == 1 else []


def _seconds_by_scope(item: Evidence) -> dict[str, float]:
    """Seconds of the timed pieces of each scope."""
    by: dict[str, float] = {}
    for record in item.pieces or ():
        if record.timing is not None:
            by[record.scope] = by.get(record.scope, 0.0) + record.calls * (record.seconds or 0.0)
    return by


def _counted(records: RecordSet, depth: int) -> list[Table]:
    """Return counters of one case beside its estimate."""
    by_kind = executed(records, "family")
    if not by_kind:
        return []
    counters = next(part for _, source, part in records.split() if source == "counters" and part.total().work)
    case, coverage = counters.cases[0], counters.coverage
    placed = any(r.path != UNATTRIBUTED for r in counters if r.scope == "kernel")
    modules = [by_module(executed(records, "module"), case, depth)] if placed else []
    return [by_family(by_kind, case, coverage), *modules]
