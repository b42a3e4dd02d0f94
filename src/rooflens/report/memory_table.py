"""The memory of each case at its peak, by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rooflens.records import Case, KvCache, Memory
from rooflens.report.columns import CASE, SOURCE, cause_columns
from rooflens.report.table import Column, Table, build
from rooflens.results import RecordSet, join
from rooflens.units import show


@dataclass(frozen=True, slots=True)
class _Peak:
    """The memory of a case at its peak."""

    case: Case
    source: str
    memory: Memory
    kv_cache: KvCache | None


def _cache(key: str, header: str) -> Column:
    return Column(f"kv_cache_{key}", header, "B", f"kv_cache.{key}", group="memory", if_any=True)


_MEMORY = (
    *CASE[:-1],
    # The tensors of an estimate are the same on all devices, what libraries take is not.
    replace(
        CASE[-1],
        read=lambda row: None if row.source == "estimate" and row.memory.workspace is None else row.case.device,
    ),
    SOURCE,
    Column("peak", "peak", "B", "memory.peak", group="memory"),
    *cause_columns("memory"),
    Column("workspace", "workspace", "B", "memory.workspace", group="memory", if_any=True),
    Column(
        "with_workspace",
        "with workspace",
        "B",
        lambda row: row.memory.peak + row.memory.workspace if row.memory.workspace else None,
        group="memory",
        if_any=True,
    ),
    _cache("held", "cache holds"),
    _cache("used", "cache in use"),
    _cache("per_token", "cache per token"),
    Column("reserved", "reserved by the allocator", "B", "memory.reserved", group="memory"),
    Column("monitor", "shown by a monitor", "B", "memory.monitor", group="memory"),
    Column("before", "before the model", "B", "memory.before", group="memory", show="room"),
)


WITH_WORKSPACE = (
    "workspace: what cuBLAS and cuDNN take for themselves, estimated by rules from an H100 (docs/memory.md); the device"
    " reports peak and workspace together"
)
CACHE = (
    "cache: after the step; in use is what the next step needs of it; per token is what the next token of one sequence"
    " adds to that, at this length"
)
GRADIENTS = "gradients: those that exist at the peak; the others are made later in backward, when activations are gone"
WITHOUT_WORKSPACE = "what the libraries of a device take for themselves is not in the peak"


def memory(rs: RecordSet) -> Table:
    """Return the peak memory of each case and source, and the bytes alive at that moment by cause.

    The tensors of an estimate need the same memory on every device. Where nothing is known of what the devices'
    libraries take, cases that differ in nothing else share a row. What a monitor showed of a step whose peak nobody
    counted, on a processor, stands beside its estimate.
    """
    known = ((case, source, records.memory, records.kv_cache) for case, source, records in rs.split())
    rows = _beside([_Peak(case, source, memory, cache) for case, source, memory, cache in known if memory is not None])
    known_ = {row.memory.workspace is not None for row in rows if row.source.startswith("estimate")}
    notes = [WITH_WORKSPACE if has else WITHOUT_WORKSPACE for has in sorted(known_)]
    if any(row.case.mode == "train" and _is_early(row.memory) for row in rows):
        notes.append(GRADIENTS)
    notes += [CACHE] if any(row.kv_cache is not None for row in rows) else []
    rooms = [item.room for item in join(rs) if item.time is None and item.room is not None]
    if len(rooms) == 1 and rooms[0].devices > 1:
        (room,) = rooms
        notes.append(
            f"split perfectly over {room.devices} devices, each holds at least {show(room.held_by_each, 'B')} of its"
            f" {show(room.memory / room.devices, 'B')}; --largest-batch and --longest-context put a copy on each"
        )
    elif len(rooms) == 1 and rooms[0].fits:  # of several steps, those that do not fit are told
        (room,) = rooms
        free = show(room.reserved, "B")
        notes.append(
            f"fits: the step needs {show(room.needed, 'B')} of {show(room.memory, 'B')}, {free} of it to stay free"
        )
    table = build("Memory at the peak", _MEMORY, rows, notes=notes)
    return replace(table, rows=tuple(dict.fromkeys(table.rows)))


def _beside(rows: Sequence[_Peak]) -> list[_Peak]:
    """Return rows in which what a monitor alone showed is in the row of the estimate of the same step."""
    shown = {replace(row.case, device=None): row for row in rows if row.source == "measure" and row.memory.peak is None}
    joined: list[_Peak] = []
    taken = set()
    for row in rows:
        other = shown.get(replace(row.case, device=None)) if row.source == "estimate" else None
        if other is None or row.case.device not in (None, other.case.device):
            joined.append(row)
            continue
        taken.add(id(other))
        seen = replace(row.memory, monitor=other.memory.monitor, before=other.memory.before)
        joined.append(replace(row, memory=seen, case=other.case, source="estimate + measure"))
    return [row for row in joined if id(row) not in taken]


def _is_early(memory: Memory) -> bool:
    """True if some gradients do not exist yet at the peak."""
    return memory.gradients is not None and memory.gradients < 0.99 * (memory.parameters or 0)
