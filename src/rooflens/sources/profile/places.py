"""Where host events belong: the module that was running, and the phase of the step.

An operation belongs to the innermost module that was running. A backward operation belongs where the forward operation
that created its autograd node does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rooflens.costs.profiler_names import accumulates, is_engine
from rooflens.records import Phase
from rooflens.sources.profile.events import HostEvent, HostOperation, NamedRange
from rooflens.sources.profile.nesting import NestedEvent
from rooflens.sources.range_names import OPTIMIZER_PATH, is_optimizer, module_of, phase_of

_LOSS = "(loss)"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlace:
    """Where a host event belongs.

    Attributes:
        path: module path, ``(loss)`` or ``(optimizer)``; None where it is not known, and ``""``, the whole model, where
            nobody named modules.
        phase: None outside of the phases of a step.
        recomputed: it repeats forward work during backward.
    """

    path: str | None = None
    phase: Phase | None = None
    recomputed: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """What is known of a host event from those around it."""

    path: str | None = None
    backward: bool = False
    optimizer: bool = False
    recomputed: bool = False


class _Phases:
    """The phases of a step that ranges mark."""

    def __init__(self, ranges: Iterable[NamedRange]) -> None:
        phases = ((its.start, its.end, phase_of(its.name)) for its in ranges)
        self._marked = sorted((start, end, phase) for start, end, phase in phases if phase is not None)
        self._starts = [start for start, _, _ in self._marked]

    def of(self, state: _State, start: float) -> Phase | None:
        """Return the phase at a time, on any thread; where none is marked, the phase of what runs."""
        if self._marked:
            n = bisect_right(self._starts, start) - 1
            return self._marked[n][2] if n >= 0 and start < self._marked[n][1] else None
        return "optimizer" if state.optimizer else "backward" if state.backward else "forward"


def outside(training: bool) -> Mapping[Phase, str]:
    """Return the path of what runs outside of the modules of a step, by phase."""
    return {"forward": _LOSS, "backward": _LOSS, "optimizer": OPTIMIZER_PATH} if training else {}


def places_of(calls: Iterable[NestedEvent], outside: Mapping[Phase, str]) -> dict[NestedEvent, EventPlace]:
    """Return the place of each host event, given in order of time: forward operations come before their backward ones.

    Args:
        outside: path of what runs outside of modules, by phase.
    """
    calls = list(calls)
    ranges = [call.event for call in calls if isinstance(call.event, NamedRange)]
    phases = _Phases(ranges)
    named = any(module_of(its.name, None) is not None for its in ranges)
    nowhere = _State(path=None if named else "")
    states: dict[NestedEvent, _State] = {}
    nodes = _Nodes()
    places: dict[NestedEvent, EventPlace] = {}
    for call in calls:
        state = _inside(call, nowhere if call.parent is None else states[call.parent], nodes)
        states[call] = state = state if named or state.path is not None else replace(state, path="")
        phase = phases.of(state, call.event.start)
        path = outside.get(phase) if state.path is None and not state.backward and phase is not None else state.path
        places[call] = EventPlace(path=path, phase=phase, recomputed=state.recomputed)
        nodes.see(call.event, path)
    return places


class _Nodes:
    """Which module made which node of the autograd graph."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], str | None] = {}
        self._run: dict[int, str | None] = {}

    def see(self, event: HostEvent, path: str | None) -> None:
        """Take down that an operation begins at a path."""
        if isinstance(event, HostOperation) and event.sequence is not None and not event.backward:
            # Several may begin before the node with this number is made: the last of them made it.
            self._made[event.thread, event.sequence] = path

    def of(self, event: HostOperation) -> str | None:
        """Return the path of the module that made the node which a backward operation runs."""
        known = event.forward_thread is not None and event.sequence is not None
        path = self._made.get((event.forward_thread, event.sequence)) if known else None  # type: ignore[arg-type]
        self._run[event.thread] = path
        return path

    def latest(self, thread: int) -> str | None:
        """Return the path of the node that a thread ran last."""
        return self._run.get(thread)


def _inside(call: NestedEvent, around: _State, nodes: _Nodes) -> _State:
    """What is known inside of an event."""
    if isinstance(call.event, NamedRange):
        return _inside_range(call.event, around)
    return _inside_operation(call.event, around, nodes) if isinstance(call.event, HostOperation) else around


def _inside_range(event: NamedRange, around: _State) -> _State:
    path = module_of(event.name, around.path)
    if path is not None:
        return replace(around, path=path, recomputed=around.backward)
    return replace(around, path=OPTIMIZER_PATH, optimizer=True) if is_optimizer(event.name) else around


def _inside_operation(event: HostOperation, around: _State, nodes: _Nodes) -> _State:
    if event.backward:
        return _State(path=nodes.of(event), backward=True)
    if accumulates(event.name):
        # The engine adds a gradient right after the node that made it has run.
        return _State(path=nodes.latest(event.thread), backward=True)
    if is_engine(event.name):
        return replace(around, backward=True)
    # Gradients are computed with recording off: what would be recorded is run for the second time.
    return replace(around, recomputed=True) if around.backward and event.sequence is not None else around
