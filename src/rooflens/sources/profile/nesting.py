"""Which host event happened inside which other: the call forest, rebuilt from times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rooflens.sources.profile.events import Events, HostOperation, LaunchCall, NamedRange

_SLACK = 1e-10
"""Seconds: times are sums of floats, and an event that ends where the next begins does not hold it."""


@dataclass(slots=True, eq=False)
class NestedEvent:
    """A host event in its place; `children` are what happened directly inside of it."""

    event: HostOperation | LaunchCall | NamedRange
    parent: NestedEvent | None
    children: list[NestedEvent] = field(default_factory=list)

    def ancestors(self) -> Iterator[NestedEvent]:
        """The events around it, from inside out."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent

    def operations(self) -> Iterator[NestedEvent]:
        """The operations directly inside, those in ranges included."""
        waiting = list(reversed(self.children))
        while waiting:
            call = waiting.pop()
            if isinstance(call.event, HostOperation):
                yield call
            else:
                waiting.extend(reversed(call.children))


def forest(events: Events) -> list[NestedEvent]:
    """Every host event in the order in which they began, each after the one that holds it."""
    # Where two cover the same time, a range holds an operation and an operation holds a launch.
    ranked = [(0, event) for event in events.ranges]
    ranked += [(1, event) for event in events.operations]  # type: ignore[misc]
    ranked += [(2, event) for event in events.launches]  # type: ignore[misc]
    ranked.sort(key=lambda item: (item[1].start, -item[1].seconds, item[0]))
    open_calls: dict[int, list[NestedEvent]] = {}
    found = []
    for _, event in ranked:
        stack = open_calls.setdefault(event.thread, [])
        while stack and stack[-1].event.start + stack[-1].event.seconds <= event.start + _SLACK:
            stack.pop()
        call = NestedEvent(event, stack[-1] if stack else None)
        if stack:
            stack[-1].children.append(call)
        stack.append(call)
        found.append(call)
    return found
