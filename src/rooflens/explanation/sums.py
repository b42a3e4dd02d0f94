"""The sum of many operations, and its parts: what is told of a model instead of every operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rooflens.explanation.chapters import ExplainedSum, SummedPart
from rooflens.records import Device, Phase, Record
from rooflens.results import RecordSet
from rooflens.results.totals import Total, grouped_by

FEW = 24
"""Operations of which each is explained if nobody asks for more."""
_PARTS = 16
"""Modules in a list."""


def sums(
    works: Iterable[tuple[RecordSet, Device | None]], path: str | None, phase: Phase | None
) -> Iterator[ExplainedSum]:
    """Yield the sum of the operations of a module and phase, of some work on a device each."""
    for work, device in works:
        inside = [r for r in work if r.work is not None and _is_inside(r, path) and phase in (None, r.phase)]
        if inside:
            yield _sum(work, inside, path, device)


def _sum(work: RecordSet, inside: Sequence[Record], path: str | None, device: Device | None) -> ExplainedSum:
    total = work.sum(inside, device)
    bound = total.bound
    assert total.floor.work is not None
    return ExplainedSum(
        device=device,
        work=total.floor.work,
        families=_parts(work, grouped_by(inside, lambda record: record.kind or "unknown"), device),
        modules=_parts(work, _modules(inside, path), device),
        seconds=None if bound is None else bound.seconds,
        bound_by="" if bound is None else bound.bound_by,
        whole=total.whole_bound,
    )


def _parts(work: RecordSet, groups: dict[str, list[Record]], device: Device | None) -> tuple[SummedPart, ...]:
    """Return the groups, the longest first."""
    totals: dict[str, Total] = {name: work.sum(those, device) for name, those in groups.items()}
    parts = [
        SummedPart(
            name=name,
            calls=sum(record.calls for record in totals[name].records),
            flops=totals[name].floor.flops,
            bytes=totals[name].floor.dram,
            seconds=totals[name].seconds,
        )
        for name in groups
    ]
    return tuple(sorted(parts, key=lambda part: (-(part.seconds or 0), -(part.bytes or 0))))


def _modules(records: Sequence[Record], path: str | None) -> dict[str, list[Record]]:
    """Return records by the modules in a module, as deep as the list stays short."""
    found: dict[str, list[Record]] = {}
    begin = len(path.split(".")) if path else 0
    for depth in range(begin + 1, begin + 1 + max(record.path.count(".") + 1 for record in records)):
        groups = grouped_by(records, partial(_above, depth))
        if found and (len(groups) > _PARTS or len(groups) == len(found)):
            break
        found = groups
    return found


def _above(depth: int, record: Record) -> str:
    """Return the path of the module at a depth that holds a record."""
    return ".".join(record.path.split(".")[:depth])


def _is_inside(record: Record, path: str | None) -> bool:
    return not path or record.path == path or record.path.startswith(f"{path}.")
