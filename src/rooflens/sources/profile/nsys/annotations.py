"""NVTX ranges as modules, phases, and operations, which ``torch.autograd.profiler.emit_nvtx`` names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rooflens.costs.profiler_names import is_engine
from rooflens.sources.profile.events import HostEvent, HostOperation, NamedRange
from rooflens.sources.profile.steps import is_step
from rooflens.sources.range_names import OURS, emitted, is_optimizer, module_of, module_range, phase_of, phase_range

_ATEN = "aten::"
_NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRange(HostEvent):
    """A range under the name that is written; `thread` is a number of ours, `process` the system's."""

    process: int


def as_events(marks: Iterable[WrittenRange]) -> tuple[tuple[NamedRange, ...], tuple[HostOperation, ...], bool]:
    """Return ranges and operations, and True if they tell the phase of what runs.

    Where torch wrote ranges, one is an operation if its name has a namespace (``aten::``) or the number of an autograd
    node. Any other is a module or a phase by its name. Where rooflens wrote none, a range called forward, backward or
    optimizer is a phase, and every other one a module.
    """
    ordered = sorted(marks, key=lambda mark: (mark.start, -mark.seconds))
    ours = any(mark.name.startswith(OURS) for mark in ordered)
    by_torch = any(mark.name.startswith(_ATEN) or emitted(mark.name)[0] != mark.name for mark in ordered)
    ranges: list[NamedRange] = []
    operations: list[tuple[int, HostOperation]] = []
    nodes: dict[int, HostOperation] = {}
    for mark in ordered:
        name, sequence = emitted(mark.name)
        if by_torch and ("::" in name or sequence is not None):
            operations.append((mark.process, _operation(mark, name, sequence, nodes)))
        else:
            name = name if ours else _as_ours(name)
            ranges.append(NamedRange(name=name, start=mark.start, seconds=mark.seconds, thread=mark.thread))
    named = bool(operations) or any(phase_of(its.name) or is_optimizer(its.name) for its in ranges)
    return tuple(ranges), tuple(_with_makers(operations)), named


def _as_ours(name: str) -> str:
    phase = phase_of(name, plain=True)
    if phase is not None:
        return phase_range(phase)
    known = is_optimizer(name) or is_step(name) or module_of(name, None) is not None
    return name if known else module_range(name)


def _operation(mark: WrittenRange, name: str, sequence: int | None, nodes: dict[int, HostOperation]) -> HostOperation:
    """An operation; within the engine's call of a node, the range that has its number is the node itself."""
    around = nodes.get(mark.thread)
    inside = around is not None and mark.start < around.end and sequence == around.sequence
    evaluates = name.startswith(_NODE)
    operation = HostOperation(
        name=name,
        start=mark.start,
        seconds=mark.seconds,
        thread=mark.thread,
        sequence=sequence,
        backward=evaluates or (inside and sequence is not None and "::" not in name),
    )
    if evaluates:
        nodes[mark.thread] = operation
    return operation


def _with_makers(operations: Sequence[tuple[int, HostOperation]]) -> Iterable[HostOperation]:
    """The operations with the thread that made each node: the one of its process that ran forward under its number.

    Where several did, nobody knows which.
    """
    engine = {op.thread for _, op in operations if op.backward}
    makers: dict[tuple[int, int], set[int]] = {}
    for process, op in operations:
        if op.sequence is not None and not op.backward and not is_engine(op.name):
            makers.setdefault((process, op.sequence), set()).add(op.thread)
    for process, op in operations:
        if not op.backward or op.sequence is None:
            yield op
            continue
        threads = makers.get((process, op.sequence), set())
        threads = threads if len(threads) == 1 else threads - engine
        yield replace(op, forward_thread=next(iter(threads))) if len(threads) == 1 else op
