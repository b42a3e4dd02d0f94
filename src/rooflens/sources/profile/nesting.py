"""Which host event happened inside which other: a forest, rebuilt from times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rooflens.sources.profile.events import Events, HostEvent, HostOperation

_SLACK = 1e-10
"""Seconds: times are sums of floats, and an event that ends where the next begins does not hold it."""


@dataclass(slots=True, eq=False)
class NestedEvent:
    """A host event in its place; `children` are what happened directly inside of it."""

    event: HostEvent
    parent: NestedEvent | None
    children: list[NestedEvent] = field(default_factory=list)

    def operations(self) -> Iterator[NestedEvent]:
        """Give the operations directly inside, those in ranges included."""
        waiting = list(reversed(self.children))
        while waiting:
            nested = waiting.pop()
            if isinstance(nested.event, HostOperation):
                yield nested
            else:
                waiting.extend(reversed(nested.children))


def forest(events: Events) -> list[NestedEvent]:
    """Return every host event in the order in which they began, each after the one that holds it."""
    # Where two cover the same time, a range holds an operation and an operation holds a launch.
    kinds: tuple[tuple[HostEvent, ...], ...] = (events.ranges, events.operations, events.launches)
    ranked = [(rank, event) for rank, kind in enumerate(kinds) for event in kind]
    ranked.sort(key=lambda item: (item[1].start, -item[1].seconds, item[0]))
    open_events: dict[int, list[NestedEvent]] = {}
    nested = []
    for _, event in ranked:
        stack = open_events.setdefault(event.thread, [])
        while stack and stack[-1].event.end <= event.start + _SLACK:
            stack.pop()
        nested.append(NestedEvent(event, stack[-1] if stack else None))
        if stack:
            stack[-1].children.append(nested[-1])
        stack.append(nested[-1])
    return nested
