"""Executed against algorithmic work, and measured against compulsory bytes, by operation family and by module."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.compare.executed_work import Executed
from rooflens.records import Case
from rooflens.report.columns import CASE, PHASE, at_least, case_cells, whole
from rooflens.report.notes import coverage_line
from rooflens.report.table import COUNT, Column, Entries, Entry, Table, build
from rooflens.results import Coverage, Total

_COUNTED = (
    Column(key="kernels", header="kernels", unit=COUNT, group="time"),
    Column(key="seconds", header="time", unit="s", group="time"),
    Column(key="executed_flops", header="executed FLOP", unit="FLOP", group="work"),
    Column(key="algorithmic_flops", header="algorithmic FLOP", unit="FLOP", group="work", show="room"),
    Column(key="flops_ratio", header="executed / algorithmic", group="work"),
    Column(key="dram_bytes", header="DRAM", unit="B", group="bytes"),
    Column(key="compulsory_bytes", header="compulsory", unit="B", group="bytes", show="room"),
    Column(key="bytes_ratio", header="measured / compulsory", group="bytes"),
    Column(key="l2_bytes", header="L2", unit="B", group="bytes", show="room"),
    Column(key="l1_bytes", header="L1", unit="B", group="bytes", show="room"),
)
NOTES = (
    (
        "executed FLOP hold the padding of tiles and no special functions (exp, tanh), which no counter sees; an"
        " algorithm with fewer products (Winograd, FFT) executes less"
    ),
    "DRAM bytes below compulsory ones: results that were still in L2 at the end of a kernel",
)


def by_family(found: Sequence[Executed], case: Case, coverage: Coverage) -> Table:
    """One row per phase and operation family, the longest first within a phase."""
    family = Column(key="family", header="family", align="left")
    rows = [
        case_cells(case) | {"phase": item.phase, "family": item.key or "(unknown)"} | _cells(item)
        for item in _longest_first(found)
    ]
    total = case_cells(case) | {"family": "total"} | _cells(_together("total", found))
    time = "" if coverage.time_share is None else f"; {coverage.time_share:.1%} of their time belongs to an operation"
    return build(
        "Executed and algorithmic work by family",
        (*CASE, PHASE, family, *_COUNTED),
        # Without ranges no kernel has a family: the total is all that can be said.
        rows if coverage.time_share else [total],
        total=total if coverage.time_share else None,
        notes=[f"{coverage_line(coverage)}{time}", *NOTES],
    )


def by_module(found: Sequence[Executed], case: Case, depth: int) -> Table:
    """One row per phase and module down to a depth, in the order in which they ran; a row holds what lies below it."""
    path = Column(key="path", header="module", align="left")
    rows = [
        case_cells(case) | {"phase": item.phase, "path": Entry(item.key, label=item.key or case.model)} | _cells(item)
        for item in below(found, depth)
    ]
    return build("Executed and algorithmic work by module", (*CASE, PHASE, path, *_COUNTED), rows)


def below(found: Sequence[Executed], depth: int) -> list[Executed]:
    """The modules down to a depth, each with everything below it; depth 0 is the whole model."""
    groups: dict[tuple[str | None, str], list[Executed]] = {}
    for item in found:
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


def _longest_first(found: Sequence[Executed]) -> list[Executed]:
    order = {phase: n for n, phase in enumerate(dict.fromkeys(item.phase for item in found))}
    return sorted(found, key=lambda item: (order[item.phase], -(item.seconds or 0.0)))


def _cells(item: Executed) -> Entries:
    executed, algorithmic = item.executed, item.algorithmic
    return {
        "kernels": item.kernels,
        "seconds": item.seconds,
        "executed_flops": at_least(whole(executed.flops), bool(executed.missing)),
        "algorithmic_flops": None if algorithmic is None else whole(algorithmic.flops),
        "flops_ratio": item.flops_ratio,
        "dram_bytes": whole(executed.bytes.get("dram")),
        "compulsory_bytes": None if algorithmic is None else whole(algorithmic.bytes.get("dram")),
        "bytes_ratio": item.bytes_ratio,
        "l2_bytes": whole(executed.bytes.get("l2")),
        "l1_bytes": whole(executed.bytes.get("l1")),
    }
