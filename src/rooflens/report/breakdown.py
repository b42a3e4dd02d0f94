"""Where the work and the bound of one case go: by operation family, operation by operation, and module by module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rooflens.errors import InvalidValue
from rooflens.records import Case, Phase, Record
from rooflens.report.columns import (
    BOUNDS,
    CASE,
    FASTER,
    NO_DEVICE,
    PART_OF_WORK,
    PHASE,
    SHARE,
    WORK,
    at_least,
    coverage_line,
    sum_of_known,
    total_notes,
    whole,
)
from rooflens.report.table import COUNT, PERCENT, Column, Entry, Table, build
from rooflens.results import RecordSet, Total
from rooflens.results.quantities import EFFICIENCY, TIME, efficiency, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Some operations of a case beside all of them.

    Attributes:
        name: of the family or operation.
        total: their sum; `of`: that of all.
    """

    case: Case
    phase: Phase | None
    name: str
    total: Total
    of: Total
    path: str = ""
    kind: str = ""


_CALLS = Column(
    "calls",
    "calls",
    COUNT,
    lambda row: sum(record.calls for record in row.total.records if record.work is not None),
    group="work",
    show="room",
)
_FAMILY = (
    *CASE,
    PHASE,
    Column("family", "family", read="name", align="left"),
    _CALLS,
    *WORK,
    Column(
        "flops_share",
        "share of FLOP",
        PERCENT,
        lambda row: ratio(row.total.flops, row.of.flops),
        group="work",
        show="room",
    ),
    Column(
        "bytes_share",
        "share of bytes",
        PERCENT,
        lambda row: ratio(row.total.bytes.get("dram"), row.of.bytes.get("dram")),
        group="work",
        show="room",
    ),
    *BOUNDS,
    SHARE,
)
_OPERATION = (
    *CASE,
    PHASE,
    Column("path", "module", align="left"),
    Column("operation", "operation", read="name", align="left"),
    Column("family", "family", read="kind", align="left", show="files"),
    _CALLS,
    *PART_OF_WORK,
    *BOUNDS,
    SHARE,
)


@dataclass(slots=True, kw_only=True)
class Module:
    """A module in the tree, or one of the places outside of it: ``(loss)``, ``(optimizer)``.

    Attributes:
        path: dotted path, ``""`` for the root.
        name: last part of the path.
        depth: 0 for the root and for the places outside of it.
        own: records of the module itself that have work.
        timed: records of the module itself that have a time.
        children: the modules in it, in the order in which they first ran.
    """

    path: str
    name: str
    depth: int
    own: list[Record] = field(default_factory=list)
    timed: list[Record] = field(default_factory=list)
    children: dict[str, Module] = field(default_factory=dict)

    def walk(self) -> Iterator[Module]:
        """Yield the module and everything below it, parents first. A loop, since a path in a file may be very deep."""
        waiting = [self]
        while waiting:
            module = waiting.pop()
            yield module
            waiting.extend(reversed(module.children.values()))

    def records(self) -> list[Record]:
        """Return the records with work of the module and of everything below it."""
        return [record for module in self.walk() for record in module.own]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModuleRow(_Row):
    """A module with everything below it.

    Attributes:
        own: the sum of the operations of the module itself.
        seconds: its measured time; None where nothing of it was timed. `reached`: its bound over that time.
    """

    module: Module
    own: Total
    seconds: float | None
    reached: float | None


def _own(key: str, header: str, unit: str, read: Any) -> Column:
    """Return the column, for files, of a number of a module without its children."""
    return Column(key, header, unit, read, show="files")


_TREE = (
    *CASE,
    PHASE,
    Column(
        "path",
        "module",
        align="left",
        read=lambda row: Entry(
            row.module.path, indent=row.module.depth, label=row.module.name if row.module.path else row.case.model
        ),
    ),
    Column("depth", "depth", COUNT, "module.depth", show="files"),
    _CALLS,
    *PART_OF_WORK,
    *BOUNDS,
    SHARE,
    Column("measured_seconds", TIME.header, "s", "seconds", group="time"),
    Column(
        "efficiency",
        EFFICIENCY.header,
        PERCENT,
        lambda row: at_least(row.reached, bool(row.total.missing), 1),
        group="time",
    ),
    _own("own_matmul_flops", "own matmul FLOP", "FLOP", lambda row: whole(row.own.matmul_flops)),
    _own("own_flops", "own FLOP", "FLOP", lambda row: whole(row.own.flops)),
    _own("own_dram_bytes", "own DRAM", "B", lambda row: whole(row.own.bytes.get("dram"))),
    _own("own_seconds", "own bound", "s", "own.seconds"),
    _own(
        "own_measured_seconds",
        "own measured",
        "s",
        lambda row: sum_of_known(record.seconds for record in row.module.timed),
    ),
)


def families(rs: RecordSet, phase: Phase | None = None) -> Table:
    """Return one row per operation family, the longest bound first, with its share of FLOP, bytes and bound.

    Raises:
        AmbiguousResult: the set holds several cases or sources.
        InvalidValue: the set has no such phase.
    """
    records, only = _in_phase(rs, phase)
    of = records.total()
    groups = [(group.key, group.total) for group in records.by("family") if group.total.all_work is not None]
    groups.sort(
        key=lambda group: (group[1].seconds or 0.0, group[1].bytes.get("dram", 0.0), group[1].flops or 0.0),
        reverse=True,
    )
    rows = [_Row(case=rs.cases[0], phase=only, name=name or "unknown", total=total, of=of) for name, total in groups]
    total = _Row(case=rs.cases[0], phase=only, name="total", total=of, of=of)
    return build("Operation families", _FAMILY, rows, total=total, notes=_notes(of))


def operations(rs: RecordSet, phase: Phase | None = None) -> Table:
    """Return one row per recorded operation, in the order in which they ran; numbers are those of all its calls.

    Raises:
        AmbiguousResult: the set holds several cases or sources.
        InvalidValue: the set has no such phase.
    """
    records, _ = _in_phase(rs, phase)
    of = records.total()
    rows = (
        _Row(
            case=record.case,
            phase=record.phase,
            name=record.name,
            total=records.sum([record], of.device),
            of=of,
            path=record.path,
            kind=record.kind,
        )
        for record in records
        if record.work is not None
    )
    return build("Operations", _OPERATION, rows, notes=_notes(of))


def module_tree(
    rs: RecordSet, depth: int | None = None, phase: Phase | None = None, times: RecordSet | None = None
) -> Table:
    """Return one row per module, with the totals of the module and everything in it.

    Args:
        depth: deepest level shown; 1 shows the modules directly in the model. Deeper ones are in their parents' totals.
        phase: only this phase.
        times: the same case timed piece by piece (a profile): each module gets its measured time and its efficiency.

    Raises:
        AmbiguousResult: the set holds several cases or sources.
        InvalidValue: a negative depth, or a phase that the set does not have.
    """
    if depth is not None and depth < 0:
        raise InvalidValue(f"depth {depth} is negative; 0 shows the model alone, 1 the modules directly in it")
    records, only = _in_phase(rs, phase)
    of = records.total()
    rows: list[_ModuleRow] = []
    deepest, hidden = 0, False
    for module in (module for top in modules(rs, phase, times or ()) for module in top.walk()):
        below = list(module.walk())
        timed = [record.seconds for each in below for record in each.timed]
        if not timed and not any(each.own for each in below):
            continue
        deepest = max(deepest, module.depth)
        if depth is not None and module.depth > depth:
            hidden = True
            continue
        total = records.sum((record for each in below for record in each.own), of.device)
        seconds = sum_of_known(timed)
        rows.append(
            _ModuleRow(
                case=rs.cases[0],
                phase=only,
                name=module.name,
                module=module,
                total=total,
                own=records.sum(module.own, of.device),
                of=of,
                seconds=seconds,
                reached=None if seconds is None else efficiency(total, seconds),
            )
        )
    notes = [f"depth {depth} of {deepest}: what lies deeper is in the totals of these modules"] if hidden else []
    notes += [*_notes(of), *(times.notes if times is not None else ())]
    if any((row.reached or 0) > 1 for row in rows):
        notes.append(FASTER)
    return build("Modules", _TREE, rows, notes=notes)


def modules(rs: RecordSet, phase: Phase | None = None, times: Iterable[Record] = ()) -> tuple[Module, ...]:
    """Return the root module and the places outside of it, holding the records of `phase` that have work.

    Modules come in the order in which they first ran, also where the phase visits them in another one.

    Args:
        times: records that time the same case piece by piece.
    """
    root = Module(path="", name="", depth=0)
    outside: dict[str, Module] = {}
    worked = [(record, False) for record in rs.records if record.work is not None]
    timed = [(record, True) for record in times if record.timing is not None and record.scope != "model"]
    for record, has_time in (*worked, *timed):
        if record.path.startswith("("):
            module = outside.setdefault(record.path, Module(path=record.path, name=record.path, depth=0))
        else:
            module = root
            for name in record.path.split(".") if record.path else ():
                if name not in module.children:
                    path = name if module is root else f"{module.path}.{name}"
                    module.children[name] = Module(path=path, name=name, depth=module.depth + 1)
                module = module.children[name]
        if phase in (None, record.phase):
            (module.timed if has_time else module.own).append(record)
    return (root, *outside.values())


def _in_phase(rs: RecordSet, phase: Phase | None) -> tuple[RecordSet, Phase | None]:
    """Return the records of one phase, or all of them, and the phase that they have in common."""
    if phase is not None and phase not in rs.phases:
        known = ", ".join(rs.phases) or "none"
        raise InvalidValue(f"these records have no phase {phase!r}; they have: {known}")
    records = rs if phase is None else rs.where(phase=phase)
    return records, records.phases[0] if len(records.phases) == 1 else None


def _notes(total: Total) -> Iterator[str]:
    """Yield coverage, lower bounds and what the bound leaves out."""
    yield coverage_line(total.coverage)
    if total.device is None:
        yield NO_DEVICE
    yield from total_notes([total])
