"""The parts of a case by what they do: operations, their families and kernels, with the time of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rooflens.records import Call, Case, Phase, Record
from rooflens.results.evidence import Evidence
from rooflens.results.quantities import efficiency
from rooflens.results.recorded_shapes import CallSizes, sizes_of
from rooflens.results.totals import Total, grouped_by, sum_of_all

PartKind = Literal["family", "module-family", "op", "operator", "kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """All that is alike in a case.

    Attributes:
        name: of the family, operation or kernel; of a family in one module too.
        kind: operation family; "" where it is not known, or several are in it.
        phase: None where the part is in several.
        paths: of the modules that it is in.
        call: what is called; None of a family, and where the shapes are not known.
        shapes: sizes of the tensors that a profiled operation takes, where they were recorded.
        different_shapes: of an operator, how many different sizes its calls take; None where one is not known.
        records: those that hold its work; without any, only its time is known.
        calls: how often it is called, or launched.
        seconds: measured time of all calls; None where it is not known apart.
    """

    name: str
    kind: str
    phase: Phase | None
    paths: tuple[str, ...]
    call: Call | None
    shapes: CallSizes | None
    different_shapes: int | None
    records: tuple[Record, ...]
    calls: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceOfCase:
    """A piece of a case beside all of it.

    Attributes:
        total: its work; `of`: that of the case.
        seconds: its measured time; None where nothing of it was timed. `of_seconds`: that of the case.
        ceilings: by place the share of its ceiling, where both work and time are known.
    """

    case: Case
    phase: Phase | None
    total: Total
    of: Total
    seconds: float | None
    of_seconds: float | None
    ceilings: Mapping[str, float | None]

    @property
    def reached(self) -> float | None:
        """Its bound over its time."""
        worked = self.total.as_written.work is not None
        return efficiency(self.total, self.seconds) if worked and self.seconds is not None else None


_ALIKE: Mapping[PartKind, Callable[[Record], Hashable]] = {
    "family": lambda record: record.kind,
    "module-family": lambda record: (record.path, record.kind),
    # Calls of the same shapes are one operation, whichever module makes them.
    "op": lambda record: (record.name, record.call, record.shapes, record.phase, record.recomputed),
    "operator": lambda record: (record.name, record.phase),
    "kernel": lambda record: record.name,
}


def parts(item: Evidence, by: PartKind) -> tuple[StepPart, ...]:
    """Return the parts of a case, in order of appearance."""
    work = [r for r in item.work or () if r.work is not None and r.scope != "model"]
    timed = [r for r in item.pieces or () if r.timing is not None and r.scope != "model"]
    if by == "kernel":
        work = [r for r in work if r.scope == "kernel"]
        of = {r.source for r in work}  # with copies and fills, which have a time alone
        timed = [r for r in timed if r.scope == "kernel" and (not of or r.source in of)]
    if {r.source for r in work} == {r.source for r in timed}:
        both = {id(record): record for record in (*work, *timed)}.values()
        groups = grouped_by(both, _ALIKE[by]).values()
        return tuple(_part(by, group, sum_of_all(r.seconds for r in group)) for group in groups)
    return tuple(_joined(by, work, timed))


def without_work(work: Sequence[Record], timed: Sequence[Record]) -> list[Record]:
    """Return the timed records whose calls no record with work holds, as families count them.

    Two sources may divide a step into calls otherwise, but they agree on its families.
    """
    if {r.source for r in work} == {r.source for r in timed}:
        told = set(map(id, work))
        return [r for r in timed if id(r) not in told]
    kinds = {r.kind for r in work}
    return [r for r in timed if r.kind not in kinds]


def _joined(by: PartKind, work: Sequence[Record], timed: Sequence[Record]) -> Iterable[StepPart]:
    """Yield parts with the times that another source saw, by their place in the model, and by shapes if recorded.

    A place that belongs to several parts has a time that nobody can divide: it is a part of its own, without work.
    """
    phases = all(r.phase is not None for r in timed)
    shapes = by != "operator" and any(r.shapes is not None for r in timed)
    placed = any(r.path and not r.path.startswith("(") for r in timed)
    modules = by != "operator" and (placed or not shapes)

    def place(record: Record) -> Hashable:
        if by in ("family", "module-family"):
            return _ALIKE[by](record)
        sizes = sizes_of(record) if shapes else None
        return (record.path if modules else None, record.name, sizes, record.phase if phases else None)

    observed = grouped_by(timed, place)
    groups = grouped_by(work, _ALIKE[by])
    whose = Counter(key for records in groups.values() for key in {place(r) for r in records})
    given = set[Hashable]()
    for records in groups.values():
        places = [key for key in dict.fromkeys(map(place, records)) if key in observed]
        apart = places if all(whose[key] == 1 for key in places) else []
        given.update(apart)
        yield _part(by, records, sum_of_all(r.seconds for key in apart for r in observed[key]))
    alone = [r for key, records in observed.items() if key not in given for r in records]
    for records in grouped_by(alone, _ALIKE[by]).values():
        yield _part(by, records, sum_of_all(r.seconds for r in records))


def _part(by: PartKind, records: Sequence[Record], seconds: float | None) -> StepPart:
    first, kinds, phases = records[0], {r.kind for r in records}, {r.phase for r in records}
    sizes = set(map(sizes_of, records)) if by == "operator" else {None}
    return StepPart(
        name=first.kind if by in ("family", "module-family") else first.name,
        kind=first.kind if len(kinds) == 1 else "",
        phase=first.phase if len(phases) == 1 else None,
        paths=tuple(dict.fromkeys(r.path for r in records)),
        call=first.call if by == "op" else None,
        shapes=first.shapes if by == "op" else None,
        different_shapes=None if None in sizes else len(sizes),
        records=tuple(r for r in records if r.work is not None),
        calls=sum(r.calls for r in records),
        seconds=seconds,
    )
