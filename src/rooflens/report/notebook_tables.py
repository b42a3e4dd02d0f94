"""What results show of themselves in a notebook: the tables of the command line, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rooflens.checks import Findings
from rooflens.compare import Advice
from rooflens.known_models import KnownModel
from rooflens.records import Device
from rooflens.report.columns import BOUNDS, EXPECTED, WORK
from rooflens.report.comparison import SERIES, SHOWN, comparison_tables
from rooflens.report.counts import counts, differ
from rooflens.report.device_tables import device_tables, overview
from rooflens.report.findings import findings
from rooflens.report.html_tables import as_html, in_frame
from rooflens.report.largest_batches import largest_sizes
from rooflens.report.model_tables import model_table
from rooflens.report.one_step import of_one_step
from rooflens.report.overview import tables_of
from rooflens.report.study.content import Report
from rooflens.report.study.html import render
from rooflens.report.study.results import hypotheses_table
from rooflens.report.table import COUNT, Column, Table, build
from rooflens.report.table_notes import NO_DEVICE, coverage_line, number_notes, surplus_notes, total_notes
from rooflens.results import Fits, RecordSet, Total
from rooflens.results.quantities import TIME
from rooflens.study import STATES, Status, Verdict
from rooflens.study.status_text import by_source, remarks


@dataclass(frozen=True, slots=True)
class _Summed:
    """A total as the row of a table."""

    total: Total


_TIMES = (
    *BOUNDS,
    *EXPECTED,
    Column("measured_seconds", TIME.header, "s", "total.measured_seconds", group="time"),
)


def html(value: object) -> str | None:
    """Return a result as a notebook shows it; None of what is no result."""
    if isinstance(value, Report):
        return in_frame(render(value), value.title)
    tables = list(_tables(value))
    return as_html(tables) if tables else None


def _tables(value: object) -> Sequence[Table]:
    if isinstance(value, tuple):
        return _LISTS.get(type(value[0]), comparison_tables)(value) if value else ()
    known = next((show for cls, show in _SHOWN.items() if isinstance(value, cls)), None)
    if known is not None:
        return known(value)
    if type(value) in SHOWN:
        return comparison_tables(value)
    return comparison_tables((value,)) if type(value) in (Advice, *SERIES) else ()


def _total(total: Total) -> Sequence[Table]:
    case = total.records[0].case if total.records else None
    notes: Iterator[str] = (
        note
        for some in (
            [coverage_line(total.coverage)] if total.coverage.operations else [],
            total_notes([total]),
            number_notes([total]),
            surplus_notes([total]),
            [NO_DEVICE] if total.device is None and total.work is not None else [],
        )
        for note in some
    )
    title, rows = f": {case.label()}" if case else "", [_Summed(total)]
    if differ(rows):
        return [counts(f"Counts{title}", (), rows), build(f"Total{title}", _TIMES, rows, notes=notes)]
    return [build(f"Total{title}", of_one_step((*WORK, *_TIMES), [total]), rows, notes=notes)]


def _status(status: Status) -> Sequence[Table]:
    columns = (
        Column("source", "source", align="left"),
        *(Column(state, state, COUNT, if_any=state in ("skipped", "failed")) for state in STATES),
    )
    rows = [{"source": source, **counts} for source, counts in by_source(status)]
    return [build(f"Study: {len(status.states)} cells", columns, rows, notes=remarks(status))]


_SHOWN: Mapping[type, Callable[[Any], Sequence[Table]]] = {
    RecordSet: lambda records: tables_of(records) if records.records or records.failures else (),
    Total: _total,
    Table: lambda table: (table,),
    Device: lambda device: device_tables([device]),
    Findings: lambda every: (findings(every),),
    Fits: largest_sizes,
    Status: _status,
}
_LISTS: Mapping[type, Callable[[Any], Sequence[Table]]] = {
    Device: overview,
    KnownModel: lambda models: (model_table(models),),
    Verdict: lambda verdicts: (hypotheses_table(verdicts),),
}
