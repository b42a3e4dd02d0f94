"""Where the work, the bound and the time of one case go: by operation family, by operation, and by kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rooflens.compare.kernel_pairs import spelling
from rooflens.compare.speed_of_light import LANES, PLACES, TENSOR, ceiling_shares
from rooflens.errors import InvalidValue
from rooflens.records import Argument, Call, Phase, Tensor
from rooflens.report.columns import (
    BOUNDS,
    CASE,
    PHASE,
    PIECE_EFFICIENCY,
    PIECE_OF_WORK,
    PIECE_PREDICTED,
    PIECE_TIME,
    SHARE,
    TIME_SHARE,
    WORK,
    at_least,
    headed_by_clock,
)
from rooflens.report.one_step import of_one_step
from rooflens.report.table import COUNT, PERCENT, Column, ColumnNote, Entry, Show, Table, build
from rooflens.report.table_notes import piece_notes
from rooflens.results import UNATTRIBUTED, Evidence, Quantity, RecordSet, Total, join
from rooflens.results.parts import PartKind, PieceOfCase, StepPart, parts
from rooflens.results.quantities import ALL_FLOPS, BOUND_BYTES, BOUND_FLOPS, BYTES, INTENSITY, MATMUL_FLOPS, ratio

SHOWN = 20
"""Operations and kernels in a table of which nobody asks for more or less."""
_LONGEST = 48
_LONGEST_SHAPES = 36
_HEADERS = {TENSOR: "of tensor cores", LANES: "of general lanes", "l1": "of L1", "l2": "of L2", "dram": "of DRAM"}
_NOTE = (
    "of tensor cores, of DRAM ...: share of a ceiling, the least time that the work needs there, over the measured"
    " time; the highest is what limits it, unless all are low"
)
_TITLES: dict[PartKind, str] = {
    "family": "Operation families",
    "module-family": "Operation families of modules",
    "op": "Operations",
    "operator": "Operators",
    "kernel": "Kernels",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow(PieceOfCase):
    """A part of a case, as :class:`PieceOfCase`."""

    part: StepPart

    @property
    def of_expected(self) -> float | None:
        """The time to expect of all parts."""
        return self.of.predicted_seconds

    @property
    def highest(self) -> str | None:
        """The place of the highest share of a ceiling."""
        known = {place: share for place, share in self.ceilings.items() if share}
        return max(known, key=lambda place: known[place], default=None)

    @property
    def place(self) -> str:
        """The module that it is in; of several the first, and how many more there are."""
        first, *others = self.part.paths
        name = first or self.case.model
        return f"{name} +{len(others)}" if others else name


def shapes(call: Call | None) -> str | None:
    """Return the shapes of the tensors that a call takes and returns, as text."""
    if call is None:
        return None
    given = " ".join(filter(None, (_shape(value) for _, value in call.arguments)))
    returned = " ".join(_shape(tensor) for tensor in call.outputs[:1])
    return f"{given} -> {returned}" if returned else given


def _shapes(part: StepPart) -> str | None:
    """What a call takes and returns; of a profiled one what it takes is all that was recorded."""
    return shapes(part.call) if part.shapes is None else " ".join(map(_size, part.shapes))


def _shapes_entry(row: PartRow) -> Entry:
    """Shapes, of which a terminal shows as many as it has room for beside times."""
    text = _shapes(row.part)
    taken = (text or "").partition(" -> ")[0].split(" ")
    shown = next(n for n in range(len(taken), 0, -1) if n == 1 or len(" ".join(taken[:n])) <= _LONGEST_SHAPES)
    short = " ".join(taken[:shown]) + (f" +{len(taken) - shown}" if shown < len(taken) else "")
    return Entry(text, label=text if text is None or len(text) <= _LONGEST_SHAPES else short)


def _shape(value: Argument) -> str:
    if isinstance(value, Tensor):
        return _size(value.shape)
    if isinstance(value, tuple):
        tensors = [item for item in value if isinstance(item, Tensor)]
        return f"{len(tensors)} tensors" if len(tensors) > 3 else " ".join(map(_shape, tensors))
    return ""


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "1"


def _kernel_name(row: PartRow) -> Entry:
    plain = spelling(row.part.name).removeprefix("void ") if {*"<:"} & {*row.part.name} else row.part.name
    return Entry(row.part.name, label=plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 3]}...")


class _Sharing(Protocol):
    """A row of a table that tells shares of ceilings; one without work has no total."""

    @property
    def total(self) -> Total | None: ...
    @property
    def ceilings(self) -> Mapping[str, float | None]: ...


def _ceiling(place: str) -> Column:
    def read(row: _Sharing) -> Entry:
        lower = row.total is not None and bool(row.total.missing) and place in (TENSOR, LANES)
        return at_least(row.ceilings.get(place), lower, 1)

    return Column(f"{place.replace(' ', '_')}_share", _HEADERS[place], PERCENT, read, group="ceilings", show="room")


CEILINGS = tuple(map(_ceiling, PLACES))
"""What a row with `ceilings` and a `total` reaches of each."""
NOTE = ColumnNote(_NOTE, *(column.key for column in CEILINGS), "highest")
EXPECTED_SHARE = Column(
    "expected_share",
    "share of expected",
    PERCENT,
    lambda row: ratio(row.total.predicted_seconds, row.of_expected),
    group="time",
    show="files",
)


def led_by_expected(columns: Iterable[Column], rows: Sequence[Any], *, sized: bool = False) -> tuple[Column, ...]:
    """Return columns in which the expected time of a piece leads, where it is known of each and none was timed.

    Args:
        sized: the table has sizes too, for which the bound and shares give way.
    """
    timed = any(row.seconds is not None for row in rows)
    if timed or any(row.total.predicted_seconds is None for row in rows if row.total.seconds):
        return tuple(columns)
    leading, giving = {PIECE_PREDICTED.key, EXPECTED_SHARE.key}, {MATMUL_FLOPS.name, INTENSITY.name}
    if sized:
        leading, giving = {PIECE_PREDICTED.key}, {*giving, BOUNDS[0].key}
    return tuple(
        replace(column, show="always")
        if column.key in leading
        else replace(column, show="room")
        if column.key == EXPECTED_SHARE.key or (column.key in giving and column.show == "always")
        else replace(column, header="share of bound", show="more")
        if column.key == SHARE.key
        else column
        for column in columns
    )


_CALLS = Column("calls", "calls", COUNT, "part.calls", group="work", show="room")
_TIMES = (
    PIECE_PREDICTED,
    EXPECTED_SHARE,
    PIECE_TIME,
    TIME_SHARE,
    PIECE_EFFICIENCY,
    *CEILINGS,
    Column("highest", "highest", read="highest", align="left", group="ceilings", show="more"),
)


def _share(key: str, header: str, quantity: Quantity, show: Show) -> Column:
    def read(row: PartRow) -> float | None:
        return ratio(quantity.of(row.total).value, quantity.of(row.of).value)

    return Column(key, header, PERCENT, read, group="work", show=show)


_SHARES = (
    _share("flops_share", "share of FLOP", ALL_FLOPS, "room"),
    _share("bytes_share", "share of bytes", BYTES, "room"),
    _share("bound_flops_share", "share of FLOP in the bound", BOUND_FLOPS, "files"),
    _share("bound_bytes_share", "share of bytes in the bound", BOUND_BYTES, "files"),
)
_FAMILY = (
    *CASE,
    PHASE,
    Column("family", "family", read=lambda row: row.part.name or "unknown", align="left"),
    _CALLS,
    *WORK,
    *_SHARES,
    *BOUNDS,
    SHARE,
    *_TIMES,
)
_OPERATION = (
    *CASE,
    PHASE,
    Column("operation", "operation", read=_kernel_name, align="left"),  # one that no operation claims is a kernel
    Column("family", "family", read="part.kind", align="left", show="files"),
    Column("shapes", "shapes", read=_shapes_entry, align="left", group="work", show="room"),
    Column(
        "path",
        "module",
        read=lambda row: Entry(" ".join(row.part.paths), label=row.place),
        align="left",
        group="work",
        show="more",
    ),
    *PIECE_OF_WORK,
    replace(_CALLS, show="room"),
    *(replace(column, show="room") if column.key == "bound_by" else column for column in BOUNDS),
    replace(SHARE, show="room"),
    *(replace(column, show="always") if column is PIECE_PREDICTED else column for column in _TIMES),
)
_OPERATOR = (
    *CASE,
    PHASE,
    Column("operator", "operator", read=_kernel_name, align="left"),
    Column("family", "family", read="part.kind", align="left", show="files"),
    Column("different_shapes", "shapes", COUNT, "part.different_shapes", group="work"),
    replace(_CALLS, show="always"),
    *PIECE_OF_WORK,
    *BOUNDS,
    SHARE,
    *_TIMES,
)
_HIDDEN = (PIECE_PREDICTED.key, "efficiency")
_KERNEL = (
    *CASE,
    PHASE,
    Column("kernel", "kernel", read=_kernel_name, align="left"),
    replace(_CALLS, key="launches", header="launches", show="always", group="time"),
    *(replace(c, show="files" if c.key in _HIDDEN else "more" if c.key == "highest" else "always") for c in _TIMES),
    *(replace(column, show="more") if column.show != "files" else column for column in PIECE_OF_WORK),
    *(replace(column, show="files") for column in BOUNDS),
)
_GIVING = {"flops", "seconds", PIECE_PREDICTED.key}
"""Columns of operations that give way to names of several columns where times are known."""
_PATH = Column("path", "module", read=lambda row: Entry(row.part.paths[0], label=row.place), align="left")
_ALWAYS = {"path", "family", "seconds", PIECE_TIME.key, TIME_SHARE.key, *(column.key for column in CEILINGS)}
_OF_MODULES = tuple(
    replace(each, show="always" if each.key in _ALWAYS else "room" if each.show == "always" else each.show)
    for column in _FAMILY
    for each in ((_PATH, column) if column.key == "family" else (column,))
)
PART_COLUMNS = {
    "family": _FAMILY,
    "module-family": _OF_MODULES,
    "op": _OPERATION,
    "operator": _OPERATOR,
    "kernel": _KERNEL,
}


def part_rows(item: Evidence, by: PartKind) -> list[PartRow]:
    """Return a row for each part of a case, costliest first: by measured or expected time, else by the bound."""
    found = parts(item, by)
    work = item.work if item.work is not None else item.pieces
    if work is None:
        return []
    totals = [work.sum(part.records, item.device) for part in found]
    of = work.sum((r for part in found for r in part.records), item.device)
    times = [part.seconds for part in found]
    of_seconds = sum(known) if (known := [s for s in times if s is not None]) else None
    phases = {part.phase for part in found}
    rows = [
        PartRow(
            case=item.case,
            phase=part.phase if by in ("op", "operator") or len(phases) == 1 else None,
            part=part,
            total=total,
            of=of,
            seconds=part.seconds,
            of_seconds=of_seconds,
            ceilings=ceiling_shares(part.records, item.device, part.seconds),
        )
        for part, total in zip(found, totals, strict=True)
        if total.as_written.work is not None or part.seconds is not None
    ]
    return sorted(rows, key=_costliest)


def _costliest(row: PartRow) -> tuple[float, ...]:
    total = row.total
    amounts = (row.seconds, total.predicted_seconds, total.seconds, total.bytes.get("dram"), total.flops)
    return tuple(-(amount or 0.0) for amount in amounts)


def part_table(items: Sequence[Evidence], by: PartKind) -> Table:
    """Return a row for each part of each case, costliest first."""
    rows = [row for item in items for row in part_rows(item, by)]
    notes = [note for item in items for note in _notes([row for row in rows if row.case == item.case])]
    total = _together(rows) if len(items) == 1 and by == "family" and len(rows) > 1 else None
    times = [record for item in items for record in item.pieces or ()]
    recorded = any(record.shapes is not None for record in times)
    columns = _told_apart(rows, recorded) if by == "op" else led_by_expected(PART_COLUMNS[by], rows)
    columns = headed_by_clock(of_one_step(columns, (row.total for row in rows)), times)
    return build(_TITLES[by], columns, rows, total=total, notes=notes)


def _told_apart(rows: Sequence[PartRow], recorded: bool) -> tuple[Column, ...]:
    """Return the columns of operations, of which those that tell rows of one name apart are always shown.

    These are shapes, and where they are alike modules, unless shapes were `recorded`: they tell times apart. Beside
    times they take the room of what efficiency has.
    """
    named, naming, giving = [(row.case, row.phase, row.part.name) for row in rows], set[str](), set[str]()
    if len(set(named)) < len(rows):
        naming.add("shapes")
        with_shapes = {(*name, _shapes(row.part)) for name, row in zip(named, rows, strict=True)}
        naming |= {"path"} if len(with_shapes) < len(rows) and not recorded else set()
        giving |= _GIVING if any(row.seconds is not None for row in rows) else set()
    placed = any({*row.part.paths} - {"", UNATTRIBUTED} for row in rows)
    columns = [replace(c, show="files") if c.key == "path" and not placed else c for c in _OPERATION]
    return tuple(
        replace(c, group="", show="always") if c.key in naming else replace(c, show="room") if c.key in giving else c
        for c in columns
    )


def families(rs: RecordSet, phase: Phase | None = None) -> Table:
    """Return one row per operation family, with its share of FLOP, bytes, bound and time.

    Raises:
        InvalidValue: the set has no such phase.
    """
    return part_table(join(in_phase(rs, phase)), "family")


def operations(rs: RecordSet, phase: Phase | None = None) -> Table:
    """Return one row per distinct operation; numbers are those of all its calls.

    Raises:
        InvalidValue: the set has no such phase.
    """
    return part_table(join(in_phase(rs, phase)), "op")


def in_phase(rs: RecordSet, phase: Phase | None) -> RecordSet:
    """Return the records of one phase, or all of them; InvalidValue if the set has no such phase."""
    if phase is not None and phase not in rs.phases:
        known = ", ".join(rs.phases) or "none"
        raise InvalidValue(f"these records have no phase {phase!r}; they have: {known}")
    return rs if phase is None else rs.where(phase=phase)


def _together(rows: Sequence[PartRow]) -> PartRow:
    """Return the sum of all rows."""
    first = rows[0]
    part = replace(first.part, name="total", kind="", calls=sum(row.part.calls for row in rows), paths=("",))
    phases = {row.phase for row in rows}
    return replace(
        first,
        part=part,
        phase=first.phase if len(phases) == 1 else None,
        total=first.of,
        seconds=first.of_seconds,
        ceilings=ceiling_shares(first.of.records, first.of.device, first.of_seconds),
    )


def _notes(rows: Sequence[PartRow]) -> Iterator[str]:
    """Yield coverage, lower bounds, and what numbers of these rows need a word."""
    if not rows:
        return
    yield from piece_notes(rows[0].of, rows)
    if any(row.highest for row in rows):
        yield NOTE
    if any(row.seconds is None for row in rows) and rows[0].of_seconds is not None:
        yield "-: not timed apart; the time of calls that share module, name and recorded sizes has a row of its own"
