"""Device time and host time to operations, modules and phases: arithmetic on events, without a profiler.

A kernel belongs to the operation during which it was launched, and lies where that operation does.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rooflens.costs.profiler_names import is_engine, is_known, short
from rooflens.records import Phase
from rooflens.sources.profile.device_time import ROUNDING
from rooflens.sources.profile.events import DeviceActivity, Events, HostOperation, LaunchCall, NamedRange
from rooflens.sources.profile.nesting import NestedEvent, forest
from rooflens.sources.profile.places import EventPlace, places_of
from rooflens.sources.profile.steps import MarkedSteps
from rooflens.sources.range_names import module_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """A stretch of time and what it belongs to.

    Attributes:
        seconds: on the device for an activity, else on the host.
        operation: name as an estimate has it, None where none claims the time.
        call: number of the operation's call: what shares it belongs to the same call.
        shapes: sizes of the tensors that the call takes, None where they were not recorded.
        activity: what the device did, None for host time.
        step: number of the marked step, None outside of all; 0 where none is marked.
        launched: False where the file holds no launch of the activity.
        span: start and end of what it is the time of; of host time they hold what runs inside too.
    """

    seconds: float
    place: EventPlace
    operation: str | None = None
    call: int | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    activity: DeviceActivity | None = None
    step: int | None = 0
    launched: bool = True
    span: tuple[float, float] | None = None


def attribute(
    events: Events, outside: Mapping[Phase, str] | None = None, *, all_phases: bool = False
) -> tuple[TimeShare, ...]:
    """Return all device time by operation, module and phase; host time where no device was seen.

    Host time is that of operations, without what Python does between them. Where the phases of a step are marked, what
    was started outside of them is left out. Where whole steps are marked, what belongs to none has no step; neither
    has what was launched before the recording began, and ended before the first activity that it saw launched.

    Args:
        outside: path of what runs outside of modules, by phase.
        all_phases: also give what a device did outside of marked phases, without a place.
    """
    calls = forest(events)
    places = places_of(calls, outside or {})
    steps = MarkedSteps(events.ranges)
    if not events.activities:
        return _host_shares(calls, places, steps)
    shares = _with_steps_of_unlaunched(_device_shares(events, calls, places, steps))
    return shares if all_phases else tuple(share for share in shares if share.place.phase or not share.launched)


def _device_shares(
    events: Events, calls: list[NestedEvent], places: Mapping[NestedEvent, EventPlace], steps: MarkedSteps
) -> list[TimeShare]:
    numbers = {call: n for n, call in enumerate(calls)}
    launches: dict[int | None, NestedEvent] = {}
    by_identity: dict[int | None, NestedEvent] = {}
    for call in calls:
        if isinstance(call.event, LaunchCall):
            launches[call.event.correlation] = call
        elif isinstance(call.event, HostOperation) and call.event.identity is not None:
            by_identity[call.event.identity] = call
    claimants = _claimants(calls)
    shares = []
    for activity in events.activities:
        launch = launches.get(activity.correlation) or by_identity.get(activity.identity)
        known = launch is not None and places[launch].phase is not None
        operation = claimants[launch] if launch is not None and known else None
        shares.append(
            TimeShare(
                seconds=activity.seconds,
                place=places[operation or launch] if launch is not None and known else EventPlace(),
                operation=None if operation is None else short(operation.event.name),
                call=None if operation is None else numbers[operation],
                shapes=_shapes(operation),
                activity=activity,
                step=None if launch is None else steps.at(launch.event.start),
                launched=launch is not None,
                span=(activity.start, activity.start + activity.seconds),
            )
        )
    return shares


def _with_steps_of_unlaunched(shares: list[TimeShare]) -> tuple[TimeShare, ...]:
    """The shares; one without a launch belongs to the step of what its device began before it.

    Where that is nothing, it was launched before the recording if it ended by then, else it belongs to the first step.
    """
    begun: dict[int | None, list[tuple[float, int | None]]] = {}
    for share in shares:
        if share.activity is not None and share.launched:
            begun.setdefault(share.activity.device, []).append((share.activity.start, share.step))
    for its in begun.values():
        its.sort(key=lambda item: item[0])

    def step_of(activity: DeviceActivity) -> int | None:
        known = begun.get(activity.device) or [(-math.inf, 0)]
        n = bisect_right(known, activity.start, key=lambda item: item[0])
        before = n == 0 and activity.start + activity.seconds <= known[0][0] + ROUNDING
        return None if before else known[max(n - 1, 0)][1]

    return tuple(
        share if share.activity is None or share.launched else replace(share, step=step_of(share.activity))
        for share in shares
    )


def _claimants(calls: Iterable[NestedEvent]) -> dict[NestedEvent, NestedEvent | None]:
    """By event the operation to which belongs what is launched during it.

    It is the outermost, within the module or node that runs, of the best kind: one that an estimate counts, else one
    with a namespace (a custom operator), else any (a custom autograd function), else the node itself.
    """
    claims: dict[NestedEvent, tuple[int, NestedEvent | None]] = {}
    for call in calls:
        best = claims[call.parent] if call.parent is not None else _NOBODY
        if isinstance(call.event, NamedRange):
            best = best if module_of(call.event.name, None) is None else _NOBODY
        elif isinstance(call.event, HostOperation):
            if is_engine(call.event.name):
                best = _NOBODY
            elif _is_node(call):
                best = _NODE, call
            else:
                best = min(best, (_kind(call.event.name), call), key=lambda item: item[0])
        claims[call] = best
    return {call: claimant for call, (_, claimant) in claims.items()}


def _shapes(call: NestedEvent | None) -> tuple[tuple[int, ...], ...] | None:
    return call.event.shapes if call is not None and isinstance(call.event, HostOperation) else None


_KNOWN, _NAMED, _OTHER, _NODE = range(4)
_NOBODY: tuple[int, NestedEvent | None] = (4, None)


def _kind(name: str) -> int:
    return _KNOWN if is_known(name) else _NAMED if "::" in name else _OTHER


def _is_node(call: NestedEvent) -> bool:
    """True if it stands for an autograd node that is run, around the operations that do its work."""
    return isinstance(call.event, HostOperation) and call.event.backward


def _host_shares(
    calls: list[NestedEvent], places: Mapping[NestedEvent, EventPlace], steps: MarkedSteps
) -> tuple[TimeShare, ...]:
    """Host time of operations, where the host is the device. What torch runs around them belongs to the longest."""
    knowing = _with_known_inside(calls)
    folded = _folded(calls, knowing)
    claims: dict[NestedEvent, NestedEvent] = {}
    seconds: dict[NestedEvent, float] = {}
    rest: list[NestedEvent] = []
    for call in calls:
        claim = claims.get(call.parent) if call.parent is not None else None
        if claim is None and _counts(call, folded) and places[call].phase is not None:
            if is_known(call.event.name) or (call not in knowing and _can_claim(call)):
                claim = call
                seconds[call] = call.event.seconds
            else:
                rest.append(call)
        if claim is not None:
            claims[call] = claim
    lost = []
    spans = {call: (call.event.start, call.event.end) for call in seconds}
    heirs: dict[NestedEvent, NestedEvent] = {}
    for call in reversed(rest):  # from inside out: what is inside has its full time before it is compared
        inner = [child for child in call.operations() if _counts(child, folded)]
        own = max(0.0, call.event.seconds - sum(child.event.seconds for child in inner))
        inside = [child if child in seconds else heirs[child] for child in inner if child in seconds or child in heirs]
        heir = max(inside, key=seconds.__getitem__, default=None)
        if heir is not None:
            heirs[call] = heir
        if heir is None or is_engine(call.event.name) or _is_node(call):
            place, step = EventPlace(phase=places[call].phase), steps.at(call.event.start)
            lost.append(TimeShare(seconds=own, place=place, step=step, span=(call.event.start, call.event.end)))
        else:
            seconds[heir] += own
            spans[heir] = call.event.start, call.event.end
    numbers = {call: n for n, call in enumerate(calls)}
    shares = [
        TimeShare(
            seconds=spent,
            place=places[call],
            operation=short(call.event.name),
            call=numbers[call],
            shapes=_shapes(call),
            step=steps.at(call.event.start),
            span=spans[call],
        )
        for call, spent in seconds.items()
    ]
    return (*shares, *reversed(lost))


def _with_known_inside(calls: Iterable[NestedEvent]) -> set[NestedEvent]:
    """The events in which an operation runs that an estimate would count."""
    around: set[NestedEvent] = set()
    for call in reversed(list(calls)):
        inside = call in around or (isinstance(call.event, HostOperation) and is_known(call.event.name))
        if inside and call.parent is not None:
            around.add(call.parent)
    return around


def _folded(calls: Iterable[NestedEvent], knowing: set[NestedEvent]) -> set[NestedEvent]:
    """The events that have no time of their own.

    A view, an allocation or a copy that a call makes on its way to an operation is part of it: ``linear`` transposes.
    """
    folded: set[NestedEvent] = set()
    for call in calls:
        around = call.parent
        if around is None or not isinstance(around.event, HostOperation) or isinstance(call.event, NamedRange):
            continue
        transparent = around in knowing and not is_known(around.event.name)
        makes_its_way = transparent and not is_engine(around.event.name) and not _is_node(around)
        if around in folded or (makes_its_way and call not in knowing and not is_known(call.event.name)):
            folded.add(call)
    return folded


def _counts(call: NestedEvent, folded: set[NestedEvent]) -> bool:
    return isinstance(call.event, HostOperation) and call not in folded


def _can_claim(call: NestedEvent) -> bool:
    """True if an operation without a formula stands for itself, and not for what runs inside of it."""
    return not is_engine(call.event.name) and not (_is_node(call) and any(call.operations()))
