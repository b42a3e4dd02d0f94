"""Memory step by step: from the parameters to what a system monitor shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rooflens.records import Memory
from rooflens.report.columns import CAUSE_WORDS
from rooflens.report.table import Column, Table, build
from rooflens.results import RecordSet, join

_STEP = (
    Column("step", "step", align="left"),
    Column("bytes", "memory", "B"),
    Column("sum", "so far", "B"),
    Column("source", "from", align="left"),
)


@dataclass(frozen=True, slots=True)
class _Row:
    """What some bytes are for, and how many there are with those above."""

    step: str
    bytes: int | None
    sum: int
    source: str = "measured"


def memory_steps(rs: RecordSet) -> Iterator[Table]:
    """Yield a table for each case that was estimated and measured: from the parameters to the monitor's figure."""
    for item in join(rs):
        estimated = None if item.work is None else item.work.memory
        measured = None if item.time is None or item.time is item.work else item.time.memory
        if estimated is None or measured is None or measured.monitor is None:
            continue
        rows = [*_causes(estimated), *_observed(estimated.with_workspace, measured, measured.monitor)]
        yield build(f"Memory step by step: {item.case.label()}", _STEP, rows)


def _causes(estimated: Memory) -> Iterator[_Row]:
    so_far = 0
    for cause, amount in estimated.causes.items():
        if amount:
            so_far += amount
            yield _Row(CAUSE_WORDS[cause], amount, so_far, "estimate")
    if estimated.workspace:
        yield _Row("workspace", estimated.workspace, so_far + estimated.workspace, "estimate")


def _observed(estimated: int | None, measured: Memory, monitor: int) -> Iterator[_Row]:
    """Yield allocated, reserved and the card as a whole; on a processor the peak of the resident memory."""

    def less(total: int) -> int | None:
        return None if estimated is None else total - estimated

    own = monitor if measured.before is None else monitor - measured.before
    if measured.reserved is None:
        if measured.before is None:
            yield _Row("interpreter, libraries, and what is not estimated", less(own), own)
            return
        yield _Row("workspaces, and what is not estimated", less(own), own)
        yield _Row("interpreter and libraries", measured.before, monitor)
        return
    assert measured.peak is not None  # who knows what an allocator reserved knows what was allocated
    yield _Row("workspaces, and what is not estimated", less(measured.peak), measured.peak)
    yield _Row("cached by the allocator", measured.reserved - measured.peak, measured.reserved)
    if measured.before is None:
        yield _Row("context, libraries, other processes", own - measured.reserved, own)
        return
    yield _Row("context, kernels and libraries", own - measured.reserved, own)
    yield _Row("other processes", measured.before, monitor)
