"""Counts the work of a step by arithmetic: no accelerator, no weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rooflens.costs import Workspaces, arithmetic_of, cost, fused_bytes, optimizer_bytes, traffic, workspaces
from rooflens.records import Call, Case, Device, Memory, Operation, Record, Trace, Work
from rooflens.runs.options import Fusion

FULL_ATTENTION = "attention is counted in full; the bound of a causal call uses the half that its kernel executes"
CAUSAL_ATTENTION = "causal attention is counted as the half that its kernel executes"


@dataclass(frozen=True, slots=True)
class Repeated:
    """An operation, how often it occurs, and its DRAM bytes where fusion makes them other than its own.

    `least` are the bytes that it moves in every form of the step. What moves none is computed while others move.
    `layouts` holds a call of each layout, and how often it occurs, where there are several.
    """

    operation: Operation
    nbytes: int | None
    least: int | None
    calls: int
    layouts: tuple[tuple[Call, int], ...] = ()


def records(
    trace: Trace, operations: Iterable[Repeated], case: Case, device: Device | None, *, causal: bool = False
) -> Iterator[Record]:
    """The records of a traced step: one per distinct operation of a module and phase, and one for the whole model.

    Args:
        operations: the step's operations, from :func:`repeated`.
        case: the cell; its dtype decides in which precision fp32 products run.
        device: where the bound will be taken, or None.
        causal: count causal attention as the half that a kernel executes.

    Raises:
        MissingCeiling: the device has no rate for a matrix precision that the step needs.
    """
    arithmetic = arithmetic_of(case.dtype, device)
    partial = False
    needed: set[str] = set()
    for item in operations:
        operation, one = item.operation, cost(item.operation.call, arithmetic)
        counted, executed = one.work, one.kernel_work
        partial |= executed is not None
        if causal and executed is not None:
            counted, executed = executed, None
        work = _work(counted, item.nbytes)
        needed |= work.flops.keys()
        yield Record(
            case=case,
            source="estimate",
            scope="op",
            path=operation.path,
            kind=one.family,
            name=operation.call.name,
            phase=operation.phase,
            work=work,
            kernel_work=_needed(executed, work, item),
            traffic=traffic(operation.call, work.bytes["dram"]),
            call=operation.call,
            calls=item.calls,
            layouts=item.layouts,
            recomputed=operation.recomputed,
        )
    for path, name in trace.unsized:
        unknown = Work(missing=frozenset({name}))
        yield Record(
            case=case, source="estimate", scope="op", path=path, kind="other", name=name, phase="forward", work=unknown
        )
    if device is not None:
        for resource in sorted(r for r in needed if r.startswith("matmul.")):
            device.require(resource)
    yield Record(
        case=case,
        source="estimate",
        scope="model",
        parameters=trace.parameters,
        memory=trace.memory
        if trace.memory is None or device is None
        else memory_on(device, trace.memory, workspaces(trace, arithmetic)),
        host_calls=trace.host_calls,
        notes=(*trace.notes, *(((CAUSAL_ATTENTION if causal else FULL_ATTENTION),) if partial else ())),
    )


def memory_on(device: Device, held: Memory, taken: Workspaces | None) -> Memory:
    """The memory of a step at its peak; where a device's libraries are known, with what they take."""
    reported = None if taken is None else taken.reported(device)
    return held if reported is None or held.peak is None else replace(held, workspace=reported - held.peak)


def repeated(trace: Trace, fusion: Fusion = "none") -> tuple[Repeated, ...]:
    """The distinct operations of a traced step, with how often each occurs, in order of first appearance.

    Operations to which fusion gives different traffic count as distinct.
    """
    fused = fused_bytes(trace.operations, trace.lasting, fusion)
    least = optimizer_bytes(trace.operations, trace.lasting)
    alike: dict[tuple[Operation, int | None, int | None], list[Call]] = {}
    for index, operation in enumerate(trace.operations):
        alike.setdefault((operation, fused.get(index), least.get(index)), []).append(operation.call)
    return tuple(Repeated(*kind, len(calls), _layouts(calls)) for kind, calls in alike.items())


def _layouts(calls: Sequence[Call]) -> tuple[tuple[Call, int], ...]:
    """A call of each layout with how many there are; nothing where there is one layout."""
    by_layout: dict[object, list[Call]] = {}
    for call in calls if len(calls) > 1 else ():
        by_layout.setdefault(call.layout, []).append(call)
    return tuple((laid[0], len(laid)) for laid in by_layout.values()) if len(by_layout) > 1 else ()


def _needed(executed: Work | None, work: Work, item: Repeated) -> Work | None:
    """What every form of the step needs of an operation, where that is less than it does as written."""
    if item.least is not None and item.least < work.bytes["dram"]:
        return _work(work if item.least else replace(work, flops={}), item.least)
    return None if executed is None else _work(executed, item.nbytes)


def _work(work: Work, nbytes: int | None) -> Work:
    return work if nbytes is None else replace(work, bytes={"dram": nbytes})
