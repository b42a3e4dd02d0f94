"""The module tree of one case: each module with the work, and the measured time, of everything below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rooflens.errors import InvalidValue
from rooflens.records import Phase, Record
from rooflens.report.breakdown import CALLS, breakdown_notes, head_cells, in_phase, share_cells
from rooflens.report.columns import (
    BOUND,
    CASE,
    PART_OF_WORK,
    PHASE,
    SHARE,
    above_the_roof,
    bound_cells,
    efficiency_cell,
    sum_of_known,
    whole,
    work_cells,
)
from rooflens.report.notes import FASTER
from rooflens.report.table import COUNT, PERCENT, Column, Entries, Entry, Table, build
from rooflens.results import RecordSet, Total
from rooflens.results.quantities import efficiency

_TREE = (
    *CASE,
    PHASE,
    Column(key="path", header="module", align="left"),
    Column(key="depth", header="depth", unit=COUNT, show="files"),
    CALLS,
    *PART_OF_WORK,
    *BOUND,
    SHARE,
    Column(key="measured_seconds", header="measured", unit="s", group="time"),
    Column(key="efficiency", header="efficiency", unit=PERCENT, group="time"),
    Column(key="own_matmul_flops", header="own matmul FLOP", unit="FLOP", show="files"),
    Column(key="own_flops", header="own FLOP", unit="FLOP", show="files"),
    Column(key="own_dram_bytes", header="own DRAM", unit="B", show="files"),
    Column(key="own_seconds", header="own bound", unit="s", show="files"),
    Column(key="own_measured_seconds", header="own measured", unit="s", show="files"),
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
        """The module and everything below it, parents first. A loop, since a path in a file may be very deep."""
        waiting = [self]
        while waiting:
            module = waiting.pop()
            yield module
            waiting.extend(reversed(module.children.values()))

    def records(self) -> list[Record]:
        """The records with work of the module and of everything below it."""
        return [record for module in self.walk() for record in module.own]

    @property
    def seconds(self) -> float | None:
        """Measured time of the module and of everything below it; None where nothing of it was timed."""
        return sum_of_known(record.seconds for module in self.walk() for record in module.timed)


def modules(rs: RecordSet, phase: Phase | None = None, times: Iterable[Record] = ()) -> tuple[Module, ...]:
    """The root module and the places outside of it, holding the records of `phase` that have work.

    Modules come in the order in which they first ran, also where the phase visits them in another one.

    Args:
        times: records that time the same case piece by piece.
    """
    root = Module(path="", name="", depth=0)
    outside: dict[str, Module] = {}

    def held(record: Record) -> Module:
        if record.path.startswith("("):
            return outside.setdefault(record.path, Module(path=record.path, name=record.path, depth=0))
        return _descend(root, record.path)

    for record in rs:
        if record.work is not None:
            module = held(record)
            if phase is None or record.phase == phase:
                module.own.append(record)
    for record in times:
        if record.timing is not None and record.scope != "model":
            module = held(record)
            if phase is None or record.phase == phase:
                module.timed.append(record)
    return (root, *outside.values())


def module_tree(
    rs: RecordSet, depth: int | None = None, phase: Phase | None = None, times: RecordSet | None = None
) -> Table:
    """One row per module, with the totals of the module and everything in it.

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
    records = in_phase(rs, phase)
    device, of = records.device(), records.total()
    ran = [(module, module.records()) for top in modules(rs, phase, times or ()) for module in top.walk()]
    found = [(module, held) for module, held in ran if held or module.seconds is not None]
    shown = [(module, held) for module, held in found if depth is None or module.depth <= depth]
    head = head_cells(records)
    totals = [(module, records.sum(held, device)) for module, held in shown]
    rows = [
        head | _cells(module, rs.cases[0].model, total, of) | _time_cells(module, total) for module, total in totals
    ]
    notes = [*breakdown_notes(records), *(times.notes if times is not None else ())]
    if any(above_the_roof(efficiency(total, module.seconds)) for module, total in totals):
        notes.append(FASTER)
    if len(shown) < len(found):
        deepest = max(module.depth for module, _ in found)
        notes.insert(0, f"depth {depth} of {deepest}: what lies deeper is in the totals of these modules")
    return build("Modules", _TREE, rows, notes=notes)


def _descend(root: Module, path: str) -> Module:
    """The module at `path`, made with its parents if it is new."""
    module = root
    for name in path.split(".") if path else ():
        child = module.children.get(name)
        if child is None:
            below = name if module is root else f"{module.path}.{name}"
            child = module.children[name] = Module(path=below, name=name, depth=module.depth + 1)
        module = child
    return module


def _cells(module: Module, model: str, total: Total, of: Total) -> Entries:
    own = Total(module.own, total.device)
    row: Entries = {
        "path": Entry(module.path, indent=module.depth, label=module.name if module.path else model),
        "depth": module.depth,
        "own_matmul_flops": whole(own.matmul_flops),
        "own_flops": whole(own.flops),
        "own_dram_bytes": whole(own.bytes.get("dram")),
        "own_seconds": own.seconds,
    }
    return row | share_cells(total, of) | work_cells(total) | bound_cells(total)


def _time_cells(module: Module, total: Total) -> Entries:
    return {
        "measured_seconds": module.seconds,
        "efficiency": efficiency_cell(efficiency(total, module.seconds), bool(total.missing)),
        "own_measured_seconds": sum_of_known(record.seconds for record in module.timed),
    }
