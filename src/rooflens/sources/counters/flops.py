"""FLOP by precision and unit, from counters: every trap of the hardware's names is handled here.

A term that was collected and has no value makes its precision unknown, never zero. Launches with the same counters
share a :class:`CounterPlan`, which says which counters make up what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

from rooflens.sources.counters.launches import CounterNames, names_of
from rooflens.sources.counters.metrics import Lanes, has_moves, lanes, tensor_instruction, tensor_resource
from rooflens.sources.counters.printed_numbers import CounterValue

Counters = Mapping[str, CounterValue]

_MOST_KNOWN = 4096
_WARP = 32
"""Threads of a warp: a warp instruction counts as so many thread instructions."""
_LANES = ("smsp", "sm")
"""The same instructions are counted per processor and per quarter of it."""
PIPE = "sm__inst_executed_pipe_tensor"
MOVES = f"{PIPE}_op_hmma_type_hfma2.sum"
_SPLITS = ("operation", "result", "sparsity")
_TENSOR = re.compile(
    r"sm__ops_path_tensor_(?:op_(?P<operation>[a-z0-9]+)_)?src_(?P<operands>[a-z0-9]+(?:_(?:bf|tf|fp|int)\d+)*?)"
    r"(?:_dst_(?P<result>[a-z0-9]+))?(?:_sparsity_(?P<sparsity>on|off))?\.sum"
)
_GENERAL = re.compile(r"sgemm|dgemm|_simt_|ffma")
"""Names by which libraries say that general lanes do the product."""
_BUSY = ("sm__pipe_tensor_cycles_active.sum", "sm__pipe_tensor_cycles_active_v2.sum")
"""Cycles in which tensor cores worked: where there are none, there was no tensor operation."""
_MAYBE_WITHOUT = "7.5"
"""Some chips of this compute capability have no tensor cores, and give counters of theirs no value."""
_UNCOLLECTED = (
    "matrix FLOP are unknown: operations of tensor cores were not collected (sm__inst_executed_pipe_tensor.sum tells"
    " whether there were any, sm__ops_path_tensor_* how many)"
)
_NONE = "no counter of FLOP was collected: FLOP are unknown"


@dataclass(slots=True)
class Counted:
    """FLOP by resource as far as they are known.

    Attributes:
        unknown: whether some FLOP of the launch are not in `flops`.
        notes: why, and what was decided.
    """

    flops: dict[str, int | float] = field(default_factory=dict)
    unknown: bool = False
    notes: list[str] = field(default_factory=list)

    def lacks(self, note: str) -> None:
        self.unknown = True
        self.notes.append(note)


@dataclass(frozen=True, slots=True)
class Split:
    """Counters of the same tensor operations: their total, if it was collected, and the parts of a split."""

    whole: Split | str | None
    parts: tuple[Split | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """The tensor operations on one kind of operands."""

    name: str
    resource: str | None
    names: tuple[str, ...]
    counters: Split | str
    sparse: tuple[str, ...]


Terms = tuple[tuple[str | None, int], ...]
"""Counters and the FLOP of each count; None for a counter that is not there."""


@dataclass(frozen=True, slots=True)
class LaneCounters:
    """The counters of one precision of the general lanes; `packed` are the further ones of a chip."""

    precision: Lanes
    terms: Terms
    packed: Terms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CounterPlan:
    """Which of the counters of a launch make up what, on a chip of compute capability `cc`.

    Attributes:
        every: all of the counters below.
        lanes: the precisions of which something was collected.
        operations: every counter that `tensor` needs.
        hfma: counter of half FMAs, None where none or where all of them are arithmetic.
        pipe: counter of instructions of the tensor pipe.
        busy: counters of the cycles in which it worked.
        known: earlier results by the values of the counters: a kernel executes the same each time it is launched.
    """

    cc: str | None
    every: tuple[str, ...]
    lanes: tuple[LaneCounters, ...]
    tensor: tuple[Operands, ...]
    operations: tuple[str, ...]
    hfma: str | None
    half: tuple[str, ...]
    pipe: str | None
    busy: tuple[str, ...]
    known: dict[tuple[CounterValue, ...], Counted] = field(default_factory=dict)


def counted(name: str, names: CounterNames, counters: Counters, cc: str | None) -> Counted:
    """Return the FLOP of a launch of a kernel on a chip of compute capability `cc`; `names` are of its counters.

    Launches that executed the same share the answer; do not change it.
    """
    plan = _plan(names, cc)
    doubtful = _may_use_tensor_cores(name)
    key = (doubtful, *map(counters.__getitem__, plan.every))
    counts = plan.known.get(key)
    if counts is None:
        if len(plan.known) >= _MOST_KNOWN:
            plan.known.clear()
        counts = plan.known[key] = _counted(plan, doubtful, counters)
    return counts


def _counted(plan: CounterPlan, doubtful: bool, counters: Counters) -> Counted:
    counts = Counted()
    if not plan.lanes and not plan.tensor and plan.pipe is None:
        counts.lacks(_NONE)
        return counts
    moves = _moves(plan, counters)
    for lane in plan.lanes:
        _general(lane, counters, moves, counts)
    if plan.tensor:
        _tensor(plan, counters, moves, counts)
    else:
        _without_operations(doubtful, plan, counters, moves, counts)
    if counts.flops and not plan.lanes:
        counts.lacks("FLOP of the general lanes are unknown: no thread instructions were collected")
    if not counts.flops and not counts.unknown:
        counts.lacks(_NONE)
    return counts


def has_unseen_tensor_work(counters: Counters) -> bool:
    """True if a launch executed, or may have executed, tensor instructions whose operations no counter of it saw."""
    pipes = [value for name in (f"{PIPE}.sum", f"{PIPE}_v2.sum") if (value := counters.get(name)) is not None]
    if any(value for name, value in counters.items() if _TENSOR.fullmatch(name)):
        return False
    return not pipes or pipes[0] > (counters.get(MOVES) or 0)


def uncounted(every: Iterable[str]) -> tuple[str, ...]:
    """Return the precisions of the general lanes of which a file counts nothing."""
    there = {lane.precision.resource for lane in _plan(names_of(tuple(every)), None).lanes}
    return tuple(precision.resource for precision in lanes() if precision.resource not in there)


@lru_cache(maxsize=1024)
def _plan(names: CounterNames, cc: str | None) -> CounterPlan:
    have = frozenset(names.all)
    general = []
    for precision in lanes():
        terms = _terms(precision.terms, have)
        if any(metric is not None for metric, _ in terms):
            packed = precision.packed if cc in precision.packed_on else {}
            general.append(LaneCounters(precision, terms, _terms(packed, have)))
    half = [metric for term in ("hadd", "hmul") if (metric := _lane(term, have)) is not None]
    operations = tuple(name for name in names.all if _TENSOR.fullmatch(name))
    pipes = [name for name in (f"{PIPE}.sum", f"{PIPE}_v2.sum") if name in have]
    busy = tuple(name for name in _BUSY if name in have)
    added = [metric for lane in general for metric, _ in (*lane.terms, *lane.packed) if metric is not None]
    return CounterPlan(
        cc=cc,
        every=tuple(dict.fromkeys((*added, *operations, *pipes, *busy, *have & {MOVES}))),
        lanes=tuple(general),
        tensor=_operands(names.all),
        operations=operations,
        hfma=_lane("hfma", have) if has_moves(cc) else None,
        half=tuple(half),
        pipe=next(iter(pipes), None),
        busy=busy,
    )


def _terms(terms: Mapping[str, int], have: frozenset[str]) -> Terms:
    return tuple((_lane(term, have), factor) for term, factor in terms.items())


def _lane(term: str, have: frozenset[str]) -> str | None:
    names = (f"{unit}__sass_thread_inst_executed_op_{term}_pred_on.sum" for unit in _LANES)
    return next((name for name in names if name in have), None)


def _operands(names: Iterable[str]) -> tuple[Operands, ...]:
    groups: dict[str, list[re.Match[str]]] = {}
    for name in names:
        if (match := _TENSOR.fullmatch(name)) is not None:
            groups.setdefault(match["operands"], []).append(match)
    return tuple(
        Operands(
            name=operands,
            resource=tensor_resource(operands),
            names=tuple(match[0] for match in matches),
            counters=_split(matches, _SPLITS),
            sparse=tuple(match[0] for match in matches if match["sparsity"] == "on"),
        )
        for operands, matches in groups.items()
    )


def _split(matches: Sequence[re.Match[str]], splits: Sequence[str]) -> Split | str:
    """Counters of one kind of operands as a tree: by instruction, then by result, then by sparsity."""
    if not splits:
        name: str = matches[0][0]
        return name
    split, *others = splits
    groups: dict[str | None, list[re.Match[str]]] = {}
    for match in matches:
        groups.setdefault(match[split], []).append(match)
    whole = groups.pop(None, None)
    if whole and not groups:
        return _split(whole, others)
    return Split(_split(whole, others) if whole else None, tuple(_split(group, others) for group in groups.values()))


def _once(counters: Counters, of: Split | str | None) -> CounterValue:
    """Tensor operations, each counted once.

    Total and split are the same work. Either the total counts or the sum over the parts: the larger one where a file
    has both, since either may lack some. One part without a value makes a sum unknown.
    """
    if not isinstance(of, Split):
        return None if of is None else counters[of]
    whole, summed = _once(counters, of.whole), 0
    for part in of.parts:
        value = _once(counters, part)
        if value is None:
            return whole
        summed += value  # type: ignore[assignment]
    return summed if whole is None else max(whole, summed)


@dataclass(frozen=True, slots=True)
class Moves:
    """Half FMAs by which the compiler loads constants (HFMA2.MMA): no arithmetic, and no tensor operation.

    Attributes:
        threads: thread instructions among the counted ``hfma``.
        warps: warp instructions among those of the tensor pipe.
        known: False where the file cannot tell moves from arithmetic.
    """

    threads: int | float = 0
    warps: int | float = 0
    known: bool = True


_NO_MOVES = Moves()


def _moves(plan: CounterPlan, counters: Counters) -> Moves:
    """By their own counter; else all of hfma where it fits into the tensor pipe and nothing else is half arithmetic."""
    own = counters.get(MOVES)
    hfma = counters[plan.hfma] if plan.hfma is not None else None
    if not hfma:
        return _NO_MOVES if not own else Moves(warps=own)
    if own is not None:
        return Moves(threads=min(hfma, own * _WARP), warps=own)
    pipe = counters[plan.pipe] if plan.pipe is not None else None
    if pipe is None or hfma > _WARP * pipe or any(counters[name] for name in plan.half):
        return Moves(known=False)
    return Moves(threads=hfma, warps=ceil(hfma / _WARP))


def _general(lane: LaneCounters, counters: Counters, moves: Moves, counts: Counted) -> None:
    precision, resource = lane.precision, lane.precision.resource
    total = _sum(lane.terms, counters)
    if total is None:
        named = zip(precision.terms, lane.terms, strict=True)
        lacking = [term for term, (metric, _) in named if metric is None or counters[metric] is None]
        counts.lacks(f"{resource} is unknown: it needs {' and '.join(lacking)}, of which the file has no value")
        return
    if lane.packed:
        more = _sum(lane.packed, counters)
        total += more or 0
        if more is None:
            listed = ", ".join(precision.packed)
            counts.lacks(f"{resource} is a lower bound: packed instructions ({listed}) were not collected")
    if total and precision.halves:
        total -= precision.terms["hfma"] * moves.threads
        if not moves.known:
            counts.notes.append(
                f"{resource} may hold moves: on this chip compilers load constants by half FMAs, and the file lacks"
                f" {MOVES} to tell them apart"
            )
        if total:
            counts.notes.append(f"{resource} counts thread instructions; packed ones (half2) do twice the FLOP")
    counts.flops[resource] = total


def _sum(terms: Terms, counters: Counters) -> CounterValue:
    total: int | float = 0
    for metric, factor in terms:
        value = None if metric is None else counters[metric]
        if value is None:
            return None
        total += factor * value
    return total


def _tensor(plan: CounterPlan, counters: Counters, moves: Moves, counts: Counted) -> None:
    """Operations of tensor cores; the instructions tell whether some were missed."""
    seen = False
    idle = [counters[name] for name in plan.operations].count(0) == len(plan.operations)
    if idle:  # as most kernels are
        counts.flops |= {its.resource: 0 for its in plan.tensor if its.resource is not None}
    for its in () if idle else plan.tensor:
        used = [counters[name] for name in its.names].count(0) < len(its.names)
        total = _once(counters, its.counters) if used else 0
        if total is None:
            counts.lacks(f"tensor operations on {its.name} are unknown: their counters have no value")
            continue
        seen |= total > 0
        if its.resource is not None:
            counts.flops[its.resource] = counts.flops.get(its.resource, 0) + total
        elif total:
            counts.notes.append(f"{total:g} tensor operations on {its.name} are no FLOP and in no total")
        if total and any(counters[name] for name in its.sparse):
            counts.notes.append("tensor operations use 2:4 sparsity: their roof is twice the dense one")
    pipe = counters[plan.pipe] if plan.pipe is not None else None
    if not seen and not counts.unknown and pipe is not None and pipe > moves.warps:
        counts.lacks("tensor instructions ran, and none of the collected counters of operations saw them")


def _without_operations(doubtful: bool, plan: CounterPlan, counters: Counters, moves: Moves, counts: Counted) -> None:
    """Instructions of the tensor pipe alone say that there is work, and rarely how much."""
    pipe = counters[plan.pipe] if plan.pipe is not None else None
    if pipe is None:
        without = plan.pipe is not None and plan.cc == _MAYBE_WITHOUT
        if doubtful and not without and not any(counters[name] == 0 for name in plan.busy):
            counts.lacks(_UNCOLLECTED)
        return
    real = pipe - moves.warps
    if real <= 0:
        return
    if (known := tensor_instruction(plan.cc)) is not None:
        resource, flops = known
        counts.flops[resource] = flops * real
        only = f"right on compute capability {plan.cc} only"
        counts.notes.append(f"{resource}: {flops} FLOP per tensor instruction, {only}")
    else:
        counts.lacks(
            "tensor instructions ran, and their FLOP were not counted: 512 per instruction is right on compute"
            " capability 7.0 only; collect sm__ops_path_tensor_*"
        )


@lru_cache(maxsize=65536)
def _may_use_tensor_cores(name: str) -> bool:
    return _GENERAL.search(name.lower()) is None
