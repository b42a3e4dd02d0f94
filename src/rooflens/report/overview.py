"""The tables that a set of records gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflens.results import UNATTRIBUTED, RecordSet

if TYPE_CHECKING:
    from rooflens.report.table import Table


def tables_of(records: RecordSet, depth: int = 1) -> list[Table]:
    """The summary; of a single case also families and modules, of failures also these."""
    from rooflens.report.breakdown import families
    from rooflens.report.memory_steps import memory, memory_steps
    from rooflens.report.scaling import scaling
    from rooflens.report.summary import failures, summary
    from rooflens.report.tree import module_tree
    from rooflens.results.evidence import piecewise

    tables = [summary(records)] if records.records else []
    estimates = records.where(source="estimate")
    if len(estimates.cases) == 1:
        tables += [families(estimates), module_tree(estimates, depth=depth, times=piecewise(records))]
    tables += _counted(records, depth)
    if any(record.memory is not None for record in records):
        tables.append(memory(records))
    if len(records.where(source="measure").cases) == 1:
        tables += memory_steps(records)
    if any(record.scaling is not None for record in records):
        tables.append(scaling(records))
    if records.failures:
        tables.append(failures(records))
    return tables


def _counted(records: RecordSet, depth: int) -> list[Table]:
    """Counters of one case beside its estimate."""
    from rooflens.compare.executed_work import executed
    from rooflens.report.executed_work import by_family, by_module

    families = executed(records, "family")
    if not families:
        return []
    counters = records.where(source="counters")
    case, coverage = counters.cases[0], counters.coverage
    placed = any(r.path != UNATTRIBUTED for r in counters if r.scope == "kernel")
    modules = [by_module(executed(records, "module"), case, depth)] if placed else []
    return [by_family(families, case, coverage), *modules]
