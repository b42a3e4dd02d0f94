"""Executed against algorithmic work, and measured against compulsory bytes, by operation family and by module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rooflens.compare.executed_work import Executed
from rooflens.records import Case
from rooflens.report.columns import CASE, PHASE, at_least, whole
from rooflens.report.table import COUNT, Column, Entry, Table, build, percent
from rooflens.report.table_notes import coverage_line
from rooflens.results import Coverage, Total


@dataclass(frozen=True, slots=True)
class _Row:
    """A family or module of a counted case."""

    case: Case
    work: Executed


def _bytes(key: str, header: str, read: Any, show: Literal["always", "room"] = "always") -> Column:
    return Column(key, header, "B", read, group="bytes", show=show)


def _flops(total: Total) -> Entry:
    return at_least(whole(total.flops), bool(total.missing))


_PHASE = replace(PHASE, read="work.phase")
_COUNTED = (
    Column("kernels", "kernels", COUNT, "work.kernels", group="time"),
    Column("seconds", "time", "s", "work.seconds", group="time"),
    Column(
        "executed_flops",
        "executed FLOP",
        "FLOP",
        lambda row: _flops(row.work.executed),
        group="work",
    ),
    Column(
        "algorithmic_flops",
        "algorithmic FLOP",
        "FLOP",
        lambda row: row.work.algorithmic and _flops(row.work.algorithmic),
        group="work",
        show="room",
    ),
    Column("flops_ratio", "executed / algorithmic", read="work.flops_ratio", group="work"),
    _bytes("dram_bytes", "DRAM", lambda row: whole(row.work.executed.bytes.get("dram"))),
    _bytes(
        "compulsory_bytes",
        "compulsory",
        lambda row: row.work.algorithmic and whole(row.work.algorithmic.bytes.get("dram")),
        "room",
    ),
    Column("bytes_ratio", "measured / compulsory", read="work.bytes_ratio", group="bytes"),
    _bytes("l2_bytes", "L2", lambda row: whole(row.work.executed.bytes.get("l2")), "room"),
    _bytes("l1_bytes", "L1", lambda row: whole(row.work.executed.bytes.get("l1")), "room"),
)
_FAMILY = Column("family", "family", read=lambda row: row.work.key or "(unknown)", align="left")
_MODULE = Column(
    "path", "module", read=lambda row: Entry(row.work.key, label=row.work.key or row.case.model), align="left"
)
NOTES = (
    (
        "executed FLOP hold the padding of tiles and no special functions (exp, tanh), which no counter sees; an"
        " algorithm with fewer products (Winograd, FFT) executes less"
    ),
    "DRAM bytes below compulsory ones: results that were still in L2 at the end of a kernel",
)


def by_family(works: Sequence[Executed], case: Case, coverage: Coverage) -> Table:
    """Return one row per phase and operation family, the longest first within a phase."""
    total = _Row(case, replace(_together("total", works), phase=None))
    time = (
        "" if coverage.time_share is None else f"; {percent(coverage.time_share)} of their time belongs to an operation"
    )
    if coverage.time_share == 0:
        time = "; none tells its operation: families are not known"
    return build(
        "Executed and algorithmic work by family",
        (*CASE, _PHASE, _FAMILY, *_COUNTED),
        # Without ranges no kernel has a family: the total is all that can be said.
        [_Row(case, item) for item in _longest_first(works)] if coverage.time_share else [total],
        total=total if coverage.time_share else None,
        notes=[f"{coverage_line(coverage)}{time}", *NOTES],
    )


def by_module(works: Sequence[Executed], case: Case, depth: int) -> Table:
    """Return one row per phase and module down to a depth, in the order in which they ran, with what lies below it."""
    rows = (_Row(case, item) for item in below(works, depth))
    return build("Executed and algorithmic work by module", (*CASE, _PHASE, _MODULE, *_COUNTED), rows)


def below(works: Sequence[Executed], depth: int) -> list[Executed]:
    """The modules down to a depth, each with everything below it; depth 0 is the whole model."""
    groups: dict[tuple[str | None, str], list[Executed]] = {}
    for item in works:
        path = item.key if item.key.startswith("(") else ".".join(item.key.split(".")[:depth])
        groups.setdefault((item.phase, path), []).append(item)
    return [_together(path, items) for (_, path), items in groups.items()]


def _together(path: str, items: Sequence[Executed]) -> Executed:
    first = items[0]
    known = [item.algorithmic for item in items if item.algorithmic is not None]
    seconds = [item.seconds for item in items if item.kernels]
    return Executed(
        phase=first.phase,
        key=path,
        kernels=sum(item.kernels for item in items),
        seconds=sum(s for s in seconds if s is not None) if seconds and None not in seconds else None,
        executed=Total((r for item in items for r in item.executed.records), first.executed.device),
        algorithmic=Total((r for total in known for r in total.records), first.executed.device) if known else None,
    )


def _longest_first(works: Sequence[Executed]) -> list[Executed]:
    order = {phase: n for n, phase in enumerate(dict.fromkeys(item.phase for item in works))}
    return sorted(works, key=lambda item: (order[item.phase], -(item.seconds or 0.0)))
