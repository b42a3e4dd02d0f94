"""What of a profile belongs to the step that was profiled, where other threads of the program work meanwhile."""

from __future__ import annotations

from dataclasses import replace

from rooflens.sources.profile.events import Events, HostOperation, LaunchCall
from rooflens.sources.profile.nesting import NestedEvent, forest
from rooflens.sources.range_names import phase_of


def lacking(events: Events, *, training: bool) -> str:
    """Return what a profile of a step on a device must have and lacks: launches, or operations of autograd."""
    launches = {launch.correlation for launch in events.launches}
    unseen = sum(activity.correlation not in launches for activity in events.activities)
    if launches and unseen:
        return (
            f"launches of {unseen} of {len(events.activities)} kernels, copies and fills: these belong to no operation"
        )
    without = training and events.activities and not any(operation.backward for operation in events.operations)
    return "operation of backward" if without else ""


def of_the_step(events: Events) -> Events:
    """Return the events without what other threads launched.

    torch's profiler follows the operations of the thread that starts it, and of autograd's threads while they work for
    it; what a device did is everybody's. A launch belongs to the step on the thread of its phases, and elsewhere inside
    of an operation.
    """
    steps = {named.thread for named in events.ranges if phase_of(named.name) is not None}
    inside: set[NestedEvent] = set()
    foreign: set[int] = set()
    for call in forest(events):
        if isinstance(call.event, HostOperation) or call.parent in inside:
            inside.add(call)
        elif isinstance(call.event, LaunchCall) and call.event.thread not in steps:
            foreign.add(call.event.correlation)
    own = tuple(activity for activity in events.activities if activity.correlation not in foreign)
    others = len(events.activities) - len(own)
    if not others:
        return events
    note = f"left out: {others} kernels, copies and fills that other threads of the program launched meanwhile"
    return replace(events, activities=own, notes=(*events.notes, note))
