"""Memory: by cause, and step by step from the parameters to what a system monitor shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rooflens.records import MEMORY_CAUSES, Memory
from rooflens.report.columns import CASE, CAUSES, SOURCE, case_cells
from rooflens.report.table import Column, Entries, Table, build
from rooflens.results import RecordSet
from rooflens.results.evidence import join

_MEMORY = (
    Column(key="peak", header="peak", unit="B", group="memory"),
    *CAUSES,
    Column(key="reserved", header="reserved by the allocator", unit="B", group="memory"),
    Column(key="monitor", header="shown by a monitor", unit="B", group="memory"),
    Column(key="before", header="before the model", unit="B", group="memory", show="room"),
)
_STEP = (
    Column(key="step", header="step", align="left"),
    Column(key="bytes", header="memory", unit="B"),
    Column(key="sum", header="so far", unit="B"),
    Column(key="source", header="from", align="left"),
)
_WORKSPACE_NOTE = "workspaces of cuDNN and cuBLAS are not in an estimate"


def memory(rs: RecordSet) -> Table:
    """Peak memory of each case and source, and the bytes alive at that moment by cause.

    An estimate needs the same memory on every device, so cases that differ in nothing else share a row.
    """
    rows: list[Entries] = []
    notes: list[str] = []
    for case, source, records in rs.split():
        found = records.memory
        if found is not None:
            causes = {cause: getattr(found, cause) for cause in (*MEMORY_CAUSES, "reserved", "monitor", "before")}
            shared = replace(case, device=None) if source == "estimate" else case
            row = case_cells(shared) | {"source": source, "peak": found.peak} | causes
            if row not in rows:
                rows.append(row)
    if any(row["source"] == "estimate" for row in rows):
        notes.append(_WORKSPACE_NOTE)
    return build("Memory at the peak", (*CASE, SOURCE, *_MEMORY), rows, notes=notes)


def memory_steps(rs: RecordSet) -> Iterator[Table]:
    """For each case that was estimated and measured: from the parameters to the monitor's figure, each step named."""
    for item in join(rs):
        estimated = None if item.work is None else item.work.memory
        measured = None if item.time is None or item.time is item.work else item.time.memory
        if estimated is None or measured is None or measured.monitor is None:
            continue
        rows = list(_on_card(estimated, measured) if measured.reserved is not None else _on_cpu(estimated, measured))
        yield build(f"Memory step by step: {item.case.label()}", _STEP, rows)


def _on_card(estimated: Memory, measured: Memory) -> Iterator[Entries]:
    """Causes, allocated, reserved, and the card as a whole."""
    assert measured.peak is not None
    assert measured.reserved is not None
    assert measured.monitor is not None
    unknown = _less(measured.peak, estimated.peak)
    yield from _causes(estimated)
    yield _step("workspaces, and what is not estimated", unknown, measured.peak, "measured")
    yield _step("cached by the allocator", measured.reserved - measured.peak, measured.reserved, "measured")
    others = measured.before
    if others is None:
        rest = measured.monitor - measured.reserved
        yield _step("context, libraries, other processes", rest, measured.monitor, "measured")
        return
    own = measured.monitor - others
    yield _step("context, kernels and libraries", own - measured.reserved, own, "measured")
    yield _step("other processes", others, measured.monitor, "measured")


def _on_cpu(estimated: Memory, measured: Memory) -> Iterator[Entries]:
    """Causes, and what the system counts for the process: the peak of its resident memory."""
    assert measured.monitor is not None
    yield from _causes(estimated)
    if measured.before is None:
        rest = _less(measured.monitor, estimated.peak)
        yield _step("interpreter, libraries, and what is not estimated", rest, measured.monitor, "measured")
        return
    own = measured.monitor - measured.before
    yield _step("workspaces, and what is not estimated", _less(own, estimated.peak), own, "measured")
    yield _step("interpreter and libraries", measured.before, measured.monitor, "measured")


def _causes(estimated: Memory) -> Iterator[Entries]:
    so_far = 0
    for cause in MEMORY_CAUSES:
        amount = getattr(estimated, cause)
        if amount:
            so_far += amount
            yield _step(cause.replace("_", " "), amount, so_far, "estimate")


def _less(total: int, part: int | None) -> int | None:
    return None if part is None else total - part


def _step(what: str, amount: int | None, so_far: int, source: str) -> Entries:
    return {"step": what, "bytes": amount, "sum": so_far, "source": source}
