"""The table of what is counted of steps: the code as written, what the bound counts, and what the hardware executed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflens.report.columns import at_least, whole
from rooflens.report.one_step import does_more
from rooflens.report.table import Column, Entry, Show, Table, build
from rooflens.results import Total, WorkSum
from rooflens.results.quantities import ALL_FLOPS, BYTES, INTENSITY, MACS, MATMUL_FLOPS, RECOMPUTED_FLOPS

_SAME = 0.005
"""Relative difference up to which both ways of counting are shown as one."""
_BOTH, _EXECUTED = "both", "executed"
_AGAIN = "matmul FLOP and FLOP hold the recomputed ones"
_WAYS = "as written: what the code does; in the bound: the least that every implementation needs"
_COUNTERS = "executed: what hardware counters saw"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedStep:
    """A step that a row of another table is about, counted in one way.

    Attributes:
        row: the row of the other table.
        counted: in which way.
    """

    row: Any
    total: Total
    counted: str
    work: WorkSum


def _number(key: str, header: str, unit: str, of: str, show: Show = "always") -> Column:
    def read(step: CountedStep) -> Entry:
        return at_least(whole(getattr(step.work, of)), bool(step.total.missing) and of != "dram")

    return Column(key, header, unit, read, group="work", show=show)


_COLUMNS = (
    _number("matmul_flops", MATMUL_FLOPS.header, "FLOP", "matmul_flops"),
    Column(
        "recomputed_flops",
        RECOMPUTED_FLOPS.header,
        "FLOP",
        lambda step: whole(step.total.recomputed_flops),
        group="work",
        if_any=True,
    ),
    _number("flops", ALL_FLOPS.header, "FLOP", "flops"),
    _number("macs", MACS.header, "MAC", "macs", "room"),
    _number("dram_bytes", BYTES.header, "B", "dram"),
    _number("intensity", INTENSITY.header, INTENSITY.unit, "intensity"),
)
_COUNTED = Column("counted", "counted", align="left", title="{}")


def counts(title: str, naming: Iterable[Column], rows: Sequence[Any], more: Iterable[Column] = ()) -> Table:
    """Return what is counted of some rows with a `total`, named by columns of theirs, and `more` of their columns."""
    steps = [step for row in rows if row.total is not None for step in _steps(row)]
    ways = {step.counted for step in steps}
    told = [_COUNTED] if len(ways) > 1 else []
    notes = [_WAYS] if told and ways != {_BOTH, _EXECUTED} else []
    notes += [_COUNTERS] if told and _EXECUTED in ways else []
    notes += [_AGAIN] if any(step.total.recomputed_flops for step in steps) else []
    return build(title, (*map(_of_row, naming), *told, *_COLUMNS, *map(_of_row, more)), steps, notes=notes)


def differ(rows: Iterable[Any]) -> bool:
    """True if the code of some row does more than the bound counts, or computes something again."""
    totals = [row.total for row in rows if row.total is not None]
    return any(does_more(total, _SAME) or total.recomputed_flops for total in totals)


def _steps(row: Any) -> Iterator[CountedStep]:
    total: Total = row.total
    if does_more(total, _SAME):
        yield CountedStep(row=row, total=total, counted="as written", work=total.as_written)
        yield CountedStep(row=row, total=total, counted="in the bound", work=total.floor)
    else:
        executed = total.work is not None and total.work.origin == _EXECUTED
        yield CountedStep(row=row, total=total, counted=_EXECUTED if executed else _BOTH, work=total.as_written)


def _of_row(column: Column) -> Column:
    """Return a column that reads of the row of the other table."""
    return replace(column, read=lambda step: column.entry(step.row))
