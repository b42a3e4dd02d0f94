"""Where the work and the bound of one case go: by operation family, and operation by operation."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.errors import InvalidValue
from rooflens.records import Phase
from rooflens.report.columns import (
    BOUND,
    CASE,
    PART_OF_WORK,
    PHASE,
    SHARE,
    WORK,
    bound_cells,
    case_cells,
    ratio,
    work_cells,
)
from rooflens.report.notes import NO_DEVICE, coverage_line, total_notes
from rooflens.report.table import COUNT, PERCENT, Column, Entries, Table, build
from rooflens.results import Group, RecordSet, Total

CALLS = Column(key="calls", header="calls", unit=COUNT, group="work", show="room")
_FAMILY = (
    *CASE,
    PHASE,
    Column(key="family", header="family", align="left"),
    CALLS,
    *WORK,
    Column(key="flops_share", header="share of FLOP", unit=PERCENT, group="work", show="room"),
    Column(key="bytes_share", header="share of bytes", unit=PERCENT, group="work", show="room"),
    *BOUND,
    SHARE,
)
_OPERATION = (
    *CASE,
    PHASE,
    Column(key="path", header="module", align="left"),
    Column(key="operation", header="operation", align="left"),
    Column(key="family", header="family", align="left", show="files"),
    CALLS,
    *PART_OF_WORK,
    *BOUND,
    SHARE,
)


def families(rs: RecordSet, phase: Phase | None = None) -> Table:
    """One row per operation family, the longest bound first, with its share of FLOP, bytes and bound.

    Raises:
        AmbiguousResult: the set holds several cases or sources.
        InvalidValue: the set has no such phase.
    """
    records = in_phase(rs, phase)
    of = records.total()
    groups = sorted((g for g in records.by("family") if g.total.bytes or g.total.work), key=_size, reverse=True)
    head = head_cells(records)
    rows = [head | {"family": group.key or "unknown"} | _cells(group.total, of) for group in groups]
    total = head | {"family": "total"} | _cells(of, of)
    return build("Operation families", _FAMILY, rows, total=total, notes=breakdown_notes(records))


def operations(rs: RecordSet, phase: Phase | None = None) -> Table:
    """One row per recorded operation, in the order in which they ran; numbers are those of all its calls.

    Raises:
        AmbiguousResult: the set holds several cases or sources.
        InvalidValue: the set has no such phase.
    """
    records = in_phase(rs, phase)
    device, of = records.device(), records.total()

    def rows() -> Iterator[Entries]:
        for record in records:
            if record.work is not None:
                names = {"path": record.path, "operation": record.name, "family": record.kind, "phase": record.phase}
                yield case_cells(record.case) | names | _cells(records.sum([record], device), of)

    return build("Operations", _OPERATION, rows(), notes=breakdown_notes(records))


def in_phase(rs: RecordSet, phase: Phase | None) -> RecordSet:
    """The records of one phase, or all of them."""
    if phase is not None and phase not in rs.phases:
        known = ", ".join(rs.phases) or "none"
        raise InvalidValue(f"these records have no phase {phase!r}; they have: {known}")
    return rs if phase is None else rs.where(phase=phase)


def head_cells(records: RecordSet) -> Entries:
    """The case of the records, and their phase if they have one in common."""
    return case_cells(records.cases[0]) | {"phase": records.phases[0] if len(records.phases) == 1 else None}


def breakdown_notes(records: RecordSet) -> Iterator[str]:
    """Coverage, lower bounds and what the bound leaves out."""
    total = records.total()
    yield coverage_line(total.coverage)
    if total.device is None:
        yield NO_DEVICE
    yield from total_notes([total])


def share_cells(total: Total, of: Total) -> Entries:
    """The calls of some records, and their shares of everything."""
    return {
        "calls": sum(record.calls for record in total.records if record.work is not None),
        "flops_share": ratio(total.flops, of.flops),
        "bytes_share": ratio(total.bytes.get("dram"), of.bytes.get("dram")),
        "share": ratio(total.seconds, of.seconds),
    }


def _cells(total: Total, of: Total) -> Entries:
    return work_cells(total) | bound_cells(total) | share_cells(total, of)


def _size(group: Group) -> tuple[float, float, float]:
    total = group.total
    return total.seconds or 0.0, total.bytes.get("dram", 0.0), total.flops or 0.0
