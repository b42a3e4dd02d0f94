"""Counts the work of a step by arithmetic: no accelerator, no weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import repeat

from rooflens.costs import (
    EXPERTS_HIT,
    UNKNOWN_MASK,
    Arithmetic,
    Cost,
    Need,
    Workspaces,
    arithmetic_of,
    cost,
    dequantising_needs,
    expert_needs,
    fused_bytes,
    has_unknown_mask,
    mask_needs,
    masked,
    needed_on,
    optimizer_needs,
    serving_needs,
    traffic,
    widened_needs,
    workspaces,
)
from rooflens.records import Call, Case, Device, Floor, Memory, Operation, Record, Trace, Work
from rooflens.runs.options import Fusion

FULL_ATTENTION = (
    "FLOP of attention are those of all pairs (with --causal of half of them); times of a causal call are those of the"
    " half that its kernel executes"
)
CAUSAL_ATTENTION = "causal attention is counted as the half that its kernel executes"


@dataclass(frozen=True, slots=True)
class Repeated:
    """An operation, how often it occurs, and its DRAM bytes where fusion makes them other than its own.

    `need` is what every form of the step needs of it, where that follows from the operations around it.
    `layouts` holds a call of each layout, and how often it occurs, where there are several; `first` is the place of the
    first one in the step.
    """

    operation: Operation
    nbytes: int | None
    need: Need | None
    calls: int
    layouts: tuple[tuple[Call, int], ...] = ()
    first: int = field(default=0, compare=False)


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
    partial = hit = False
    needed: set[str] = set()
    for item in operations:
        operation, one = item.operation, cost(item.operation.call, arithmetic)
        counted, executed = one.work, one.kernel_work
        partial |= executed is not None
        hit |= item.need is not None and item.need.cause == "idle experts"
        if causal and executed is not None:
            counted, executed = executed, None
        work, executed = _work(counted, item.nbytes), None if executed is None else _work(executed, item.nbytes)
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
            kernel_work=executed,
            floor=_floor(one, work if executed is None else executed, item.need, arithmetic, device),
            traffic=traffic(operation.call, work.bytes["dram"]),
            call=operation.call,
            calls=item.calls,
            layouts=item.layouts,
            recomputed=operation.recomputed,
        )
    yield from _unsized(trace, case)
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
        kv_cache=trace.kv_cache,
        host_calls=trace.host_calls,
        modules=trace.modules,
        notes=(*trace.notes, *_conventions(trace, partial, causal, hit)),
    )


def _conventions(trace: Trace, partial: bool, causal: bool, hit: bool) -> Iterator[str]:
    """How causal attention, masks and the experts of a step are counted, where there are some."""
    if partial:
        yield CAUSAL_ATTENTION if causal else FULL_ATTENTION
    if trace.serving and has_unknown_mask(trace.operations, trace.masks):
        yield UNKNOWN_MASK
    if hit:
        yield EXPERTS_HIT


def _unsized(trace: Trace, case: Case) -> Iterator[Record]:
    """Operations of which nothing is known but the name."""
    for path, name in trace.unsized:
        unknown = Work(missing=frozenset({name}))
        yield Record(
            case=case, source="estimate", scope="op", path=path, kind="other", name=name, phase="forward", work=unknown
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
    needs = optimizer_needs(trace.operations, trace.lasting)
    known = masked(trace.operations, trace.masks, serving=trace.serving)
    needs |= mask_needs(trace.operations, known)
    if trace.serving:
        needs |= serving_needs(trace.operations, trace.cache, trace.lasting, known)
    for index, need in dequantising_needs(trace.operations, (*trace.parameter_blocks, *trace.buffer_blocks)).items():
        least = min(one.bytes for one in (need, needs.get(index)) if one is not None and one.bytes is not None)
        needs[index] = replace(need, bytes=least)
    needs |= dict(expert_needs(trace.operations, serving=trace.serving))
    needs |= widened_needs(trace.operations, needs)
    alike: dict[tuple[Operation, int | None, Need | None], list[tuple[Call, int]]] = {}
    places: list[int] = []
    for index, (operation, times) in enumerate(zip(trace.operations, trace.times or repeat(1), strict=False)):
        same = alike.setdefault((operation, fused.get(index), needs.get(index)), [])
        places += [] if same else [index]
        same.append((operation.call, times))
    return tuple(
        Repeated(*kind, sum(n for _, n in calls), _layouts(calls), first)
        for (kind, calls), first in zip(alike.items(), places, strict=True)
    )


def is_summed(trace: Trace, operations: Iterable[Repeated]) -> bool:
    """True if a trace has layers that stand for others, and they need what their neighbours need: so do the others."""

    def below(path: str) -> list[object]:
        inside = [item for item in operations if f"{item.operation.path}.".startswith(f"{path}.")]
        return [
            (
                replace(item, operation=replace(item.operation, path=""), calls=1, layouts=()),
                item.operation.path.removeprefix(path),
                [(call.layout, Fraction(n, item.calls)) for call, n in item.layouts],
            )
            for item in inside
        ]

    return bool(trace.neighbours) and all(below(one) == below(other) for one, other in trace.neighbours)


def of_each_layer(trace: Trace, operations: Sequence[Repeated]) -> tuple[Repeated, ...] | None:
    """Return the operations of every layer of a trace in which layers stand for others, in their order.

    None where it is not known which is whose: a layer runs several times.
    """
    paths = [path for _, _, path in trace.stood_for]
    others: dict[str, list[tuple[int, str]]] = {}
    for place, template, path in trace.stood_for:
        others.setdefault(template, []).append((place, path))
    if len({*paths, *others}) < len(paths) + len(others):
        return None
    listed: list[tuple[int, int, Repeated]] = []
    for item in operations:
        path = item.operation.path
        if any(_is_below(path, other) for other in paths):
            return None
        template = next((one for one in others if _is_below(path, one)), "")
        if not template:
            listed.append((item.first, len(paths), item))
            continue
        layers = [(item.first, template), *others[template]]
        calls, rest = divmod(item.calls, len(layers))
        layouts = tuple((call, of // len(layers)) for call, of in item.layouts)
        if rest:
            return None
        for place, own in layers:
            operation = replace(item.operation, path=own + path.removeprefix(template))
            order = len(paths) if own == template else paths.index(own)
            listed.append((place, order, replace(item, operation=operation, calls=calls, layouts=layouts)))
    return tuple(item for _, _, item in sorted(listed, key=lambda one: one[:2]))


def _is_below(path: str, layer: str) -> bool:
    return f"{path}.".startswith(f"{layer}.")


def _layouts(calls: Sequence[tuple[Call, int]]) -> tuple[tuple[Call, int], ...]:
    """A call of each layout with how many there are; nothing where there is one layout."""
    by_layout: dict[object, list[tuple[Call, int]]] = {}
    for call, times in calls if len(calls) > 1 else ():
        by_layout.setdefault(call.layout, []).append((call, times))
    if len(by_layout) < 2:
        return ()
    return tuple((laid[0][0], sum(n for _, n in laid)) for laid in by_layout.values())


def _floor(one: Cost, written: Work, need: Need | None, arithmetic: Arithmetic, device: Device | None) -> Floor | None:
    """What every implementation needs of an operation, where that is less than it does as `written`."""
    need = needed_on(device, need, written.flops)
    floor = one.floor if need is None else need.of(written, arithmetic, one.family)
    if floor is None:
        return None
    least, fewer = floor.work, False
    for ours, theirs in ((least.bytes, written.bytes), (least.flops, written.flops)):
        fewer = fewer or any(ours.get(name, 0) < n for name, n in theirs.items())
    return floor if fewer else None


def _work(work: Work, nbytes: int | None) -> Work:
    return work if nbytes is None else replace(work, bytes={"dram": nbytes})
