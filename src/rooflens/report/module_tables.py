"""Where the work and the bound of one case go, module by module; and the layers of a model with their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from rooflens import units
from rooflens.compare.speed_of_light import ceiling_shares
from rooflens.errors import InvalidValue
from rooflens.records import Case, Phase, Shape, TracedModule
from rooflens.report.arranged import check_depth
from rooflens.report.columns import (
    BOUNDS,
    CASE,
    PART_OF_WORK,
    PHASE,
    PIECE_EFFICIENCY,
    PIECE_OF_WORK,
    PIECE_PREDICTED,
    PIECE_TIME,
    SHARE,
    TIME_SHARE,
    headed_by_clock,
    sum_of_known,
    whole,
)
from rooflens.report.module_tree import ITSELF, Module, modules, with_own_rows
from rooflens.report.one_step import of_one_step
from rooflens.report.part_tables import CEILINGS, EXPECTED_SHARE, NOTE, in_phase, led_by_expected
from rooflens.report.table import COUNT, PERCENT, Column, ColumnNote, Entry, Table, build
from rooflens.report.table_notes import piece_notes
from rooflens.results import Evidence, RecordSet, Total
from rooflens.results.parts import PieceOfCase, without_work
from rooflens.results.quantities import PARAMETERS

LAYERS_DEPTH = 3
"""Levels of the table of layers, if nobody asks for more or less."""
NOT_CALLED = "not called"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModuleRow(PieceOfCase):
    """A module with everything below it.

    Attributes:
        name: as it is shown; `flat`: its path, in a table that is no tree.
        calls: of operations.
        own: work of the operations of the module itself.
        below: what is known of the module and of all in it; None where nothing is.
        of_expected: the time to expect of all modules. `of_parameters`: how many the model has.
    """

    module: Module
    name: str
    flat: bool
    calls: int
    own: Total
    below: tuple[TracedModule, ...] | None
    of_expected: float | None
    of_parameters: int

    @property
    def results(self) -> float | None:
        """Bytes that the operations of forward write, views left out."""
        written = [r for r in self.total.records if r.phase == "forward" and r.work is not None]
        if not written or any(r.traffic is None for r in written):
            return None
        return whole(sum(float(r.traffic.outputs * r.calls) for r in written if r.traffic is not None))

    @property
    def share_of_parameters(self) -> float | None:
        """What it holds of the parameters of the model, with those below."""
        if self.below is None or not self.of_parameters:
            return None
        return sum(one.parameters for one in self.below) / self.of_parameters

    @property
    def is_idle(self) -> bool:
        """True if neither the module nor any in it is called."""
        return bool(self.below) and all(one.calls == 0 for one in self.below or ())


def _known(key: str, header: str, read: Any, **more: Any) -> Column:
    """Return a column of what is known of the module itself."""
    return Column(key, header, read=lambda row: row.module.traced and read(row), **more)


def _summed(key: str, header: str, unit: str, of: Any, **more: Any) -> Column:
    """Return the column of a number that modules hold, with those below."""
    return Column(
        key, header, unit, lambda row: None if row.below is None else sum_of_known(map(of, row.below)), **more
    )


def _sizes(of: str) -> Any:
    """Return a reader of shapes: all of them in files, the first and how many more there are for people."""

    def read(row: _ModuleRow) -> Entry:
        shapes: tuple[Shape, ...] = getattr(row.module.traced, of)
        texts = ["x".join(map(str, shape)) or "1" for shape in shapes]
        more = f" +{len(texts) - 1}" if len(texts) > 1 else ""
        label = f"{texts[0]}{more}" if texts else NOT_CALLED if row.is_idle and of == "outputs" else None
        return Entry(" ".join(texts) or None, label=label)

    return read


def _parameters(row: _ModuleRow) -> Entry | None:
    if row.below is None:
        return None
    mark = "=" if row.module.traced is not None and row.module.traced.shared else ""
    return Entry(sum(one.parameters for one in row.below), mark=mark)


_own = partial(Column, show="files")
"""The column of a number of a module without its children."""
_PATH = Column(
    "path",
    "module",
    align="left",
    read=lambda row: Entry(row.module.path, indent=0 if row.flat else row.module.depth, label=row.name),
)
_CALLS = Column("calls", "calls", COUNT, "calls", group="work", show="room")
_TIMES = (
    *BOUNDS,
    SHARE,
    PIECE_PREDICTED,
    EXPECTED_SHARE,
    PIECE_TIME,
    TIME_SHARE,
    PIECE_EFFICIENCY,
    _own("own_matmul_flops", "own matmul FLOP", "FLOP", lambda row: whole(row.own.matmul_flops)),
    _own("own_flops", "own FLOP", "FLOP", lambda row: whole(row.own.flops)),
    _own("own_dram_bytes", "own DRAM", "B", lambda row: whole(row.own.bytes.get("dram"))),
    _own("own_seconds", "own bound", "s", "own.seconds"),
    _own(
        "own_measured_seconds",
        "own measured",
        "s",
        lambda row: None if row.module.repeats else sum_of_known(record.seconds for record in row.module.timed),
    ),
)
_TREE = (
    *CASE,
    PHASE,
    _PATH,
    Column("depth", "depth", COUNT, "module.depth", show="files"),
    _CALLS,
    *PART_OF_WORK,
    *_TIMES,
)
LAYER_COLUMNS = (
    *CASE,
    PHASE,
    _PATH,
    Column("depth", "depth", COUNT, "module.depth", show="files"),
    _known("class", "class", lambda row: row.module.traced.kind, align="left", group="layer"),
    _known("output", "output", _sizes("outputs"), align="left", group="layer"),
    Column("parameters", PARAMETERS.header, read=_parameters, group="layer"),
    _known("input", "input", _sizes("inputs"), align="left", group="layer", show="more"),
    _known(
        "kernel",
        "kernel",
        lambda row: "x".join(map(str, row.module.traced.kernel_size)) or None,
        align="left",
        group="layer",
        show="more",
    ),
    Column(
        "parameters_share", "of parameters", PERCENT, lambda row: row.share_of_parameters, group="layer", show="more"
    ),
    _summed("trainable", "trainable", "", lambda one: one.trainable, group="layer", show="more"),
    _known("module_calls", "times called", lambda row: row.module.traced.calls, unit=COUNT, group="layer", show="more"),
    _summed("weight_bytes", "weights", "B", lambda one: one.nbytes, group="memory", show="more"),
    Column("result_bytes", "results", "B", "results", group="memory", show="more"),
    replace(_CALLS, show="more"),
    *PIECE_OF_WORK,
    *(replace(column, show="room") if column.key in ("bound_by", "share") else column for column in _TIMES),
    *(replace(column, show="more") for column in CEILINGS),
)
_SHARED = "=: holds parameters that a module above holds too; they are counted there, once"
_IDLE = f"{NOT_CALLED}: the step does not call the module; another one may use its parameters"
_FIRST_CALL = ColumnNote(
    "sizes of a module that is called several times are those of its first call", "input", "output"
)
_MEMORY = ColumnNote(
    "weights: parameters and buffers, as they are kept; results: all that forward writes, kept or not",
    "weight_bytes",
    "result_bytes",
)


def module_tree(
    rs: RecordSet, depth: int | None = None, phase: Phase | None = None, times: RecordSet | None = None
) -> Table:
    """Return one row per module that does something, with the totals of the module and everything in it.

    Args:
        depth: deepest level shown; 1 shows the modules directly in the model. Deeper ones are in their parents' totals.
        phase: only this phase.
        times: the same case timed piece by piece (a profile): each module gets its measured time and its efficiency.

    Raises:
        AmbiguousResult: the set holds several cases or sources.
        InvalidValue: the set does not have the phase.
    """
    records = in_phase(rs, phase)
    only = records.phases[0] if len(records.phases) == 1 else None
    tops = modules(rs, phase, times or ())
    tree = _Tree(case=rs.cases[0], phase=only, records=records, of=records.total(), tops=tops, depth=depth)
    rows = [row for row in tree.rows() if row.seconds is not None or row.total.records]
    notes = [*tree.notes(rows), *(times.notes if times is not None else ())]
    columns = of_one_step(led_by_expected(_TREE, rows), (row.total for row in rows))
    return build("Modules", headed_by_clock(columns, times or ()), rows, notes=notes)


def layer_table(items: Sequence[Evidence], depth: int | None = None, *, flat: bool = False) -> Table:
    """Return one row per module of each case: class, sizes, parameters, work, bound and times, with all below it.

    Args:
        depth: deepest level shown; default: three.
        flat: no tree: the modules without others below them, and what lies between, so that the rows add up.

    Raises:
        InvalidValue: nothing is known by module.
    """
    depth = LAYERS_DEPTH if depth is None else depth
    rows: list[_ModuleRow] = []
    notes: list[str] = []
    for item in items:
        work, times = item.work or item.pieces, item.pieces or ()
        if work is None:
            continue
        only = item.phases[0] if len(item.phases) == 1 else None
        tree = _Tree(
            case=item.case,
            phase=only,
            records=work,
            of=work.under(item.device),
            tops=modules(work, None, times),
            depth=depth,
            flat=flat,
        )
        shown = [row for row in tree.rows() if row.below or row.seconds is not None or row.total.records]
        rows += shown
        notes += tree.notes(shown)
    if not any(row.below or row.module.path for row in rows):
        raise InvalidValue(
            "nothing is known of the modules of these records: they are of a whole model, or of a profile without any"
        )
    notes += [NOTE] if any(share for row in rows for share in row.ceilings.values()) else []
    notes += [_SHARED] if any(row.module.traced and row.module.traced.shared for row in rows) else []
    notes += [_IDLE] if any(row.is_idle for row in rows) else []
    if any(row.module.traced and (row.module.traced.calls or 0) > 1 for row in rows):
        notes.append(_FIRST_CALL)
    notes += [_MEMORY] if any(row.below for row in rows) else []
    frozen = any(one.trainable != one.parameters for row in rows for one in row.below or ())
    columns = tuple(
        replace(c, show="always" if frozen else "files") if c.key == "trainable" else c for c in LAYER_COLUMNS
    )
    every = (record for item in items for record in item.pieces or ())
    columns = of_one_step(led_by_expected(columns, rows, sized=True), (row.total for row in rows))
    return build("Layers", headed_by_clock(columns, every), rows, notes=notes)


def at_depth(rs: RecordSet, depth: int | None = None) -> RecordSet:
    """Return records as those of the modules at a depth, default three; deeper ones belong to the module above them.

    Raises:
        InvalidValue: a negative depth.
    """
    levels = LAYERS_DEPTH if depth is None else depth
    check_depth(levels)
    return rs.with_records(replace(r, path=".".join(r.path.split(".")[:levels])) for r in rs)


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """The modules of a case.

    Attributes:
        phase: the only one of the records, where they are one.
        of: the total of all records.
        tops: the root module and the places outside of it.
        depth: of the deepest rows; None: all.
        flat: the rows are no tree, and add up.
    """

    case: Case
    phase: Phase | None
    records: RecordSet
    of: Total
    tops: Sequence[Module]
    depth: int | None
    flat: bool = False

    @cached_property
    def _known(self) -> tuple[Module, ...]:
        """The modules of which something is known, parents first."""
        every = (module for top in self.tops for module in top.walk()) if self.flat else with_own_rows(self.tops)
        return tuple(module for module in every if any(each.own or each.timed or each.traced for each in module.walk()))

    def rows(self) -> list[_ModuleRow]:
        """Return a row for each module, with what is below it."""
        every = [module for top in self.tops for module in top.walk()]
        own, timed = [r for module in every for r in module.own], [r for module in every for r in module.timed]
        of_seconds = sum_of_known(record.seconds for record in timed)
        traced = [module.traced for module in every if module.traced is not None]
        of_expected = self.records.sum(own, self.of.device).predicted_seconds
        called = set(map(id, (*own, *without_work(own, timed))))
        rows = []
        for module in self._known:
            # A module that is not the deepest has, in a flat table, a row for what it does itself.
            itself = self.flat and bool(module.children) and module.depth != self.depth
            if (self.depth is not None and module.depth > self.depth) or (itself and not (module.own or module.timed)):
                continue
            below = [module] if itself else list(module.walk())
            name = (module.path if self.flat else module.name if module.path else "") or self.case.model
            total = self.records.sum((record for each in below for record in each.own), self.of.device)
            seconds = sum_of_known(record.seconds for each in below for record in each.timed)
            calls = {id(r): r.calls for each in below for r in (*each.own, *each.timed) if id(r) in called}
            rows.append(
                _ModuleRow(
                    case=self.case,
                    phase=self.phase,
                    module=module,
                    name=f"{name} {ITSELF}" if itself else name,
                    flat=self.flat,
                    calls=sum(calls.values()),
                    total=total,
                    of=self.of,
                    own=self.records.sum(() if module.repeats else module.own, self.of.device),
                    below=tuple(each.traced for each in below if each.traced is not None) or None,
                    seconds=seconds,
                    of_seconds=of_seconds,
                    of_expected=of_expected,
                    of_parameters=sum(one.parameters for one in traced),
                    ceilings=ceiling_shares(total.records, self.of.device, seconds),
                )
            )
        return rows

    def notes(self, rows: Sequence[_ModuleRow]) -> Iterator[str]:
        """Yield what a reader of some of the rows has to know."""
        deepest = max((module.depth for module in self._known), default=0)
        if self.depth is not None and deepest > self.depth and rows:
            yield f"depth {self.depth} of {deepest}: what lies deeper is in the totals of these modules"
        yield from self._sizes(rows)
        yield from piece_notes(self.of, rows)

    def _sizes(self, rows: Sequence[_ModuleRow]) -> Iterator[str]:
        """Yield what the model holds in all, as the last lines of torchinfo do."""
        traced = [each.traced for top in self.tops for each in top.walk() if each.traced is not None]
        if not traced or not rows:
            return
        parameters, trainable = sum(one.parameters for one in traced), sum(one.trainable for one in traced)
        some = "all" if trainable == parameters else f"{trainable:,}"
        nbytes = sum_of_known(one.nbytes for one in traced)
        held = [] if nbytes is None else [f"weights and buffers {units.show(nbytes, 'B')}"]
        memory = self.records.memory
        held += [f"inputs {units.show(memory.inputs, 'B')}"] if memory is not None and memory.inputs else []
        yield f"{parameters:,} parameters, {some} of them trainable{''.join(f'; {part}' for part in held)}"
