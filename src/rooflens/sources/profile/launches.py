"""Kernels of a profiled step by the numbered calls that launched them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rooflens.records import Phase
from rooflens.sources.profile.attribution import attribute
from rooflens.sources.profile.events import DeviceActivity, Events, LaunchCall, NamedRange
from rooflens.sources.profile.nesting import NestedEvent, forest
from rooflens.sources.range_names import call_of

BEFORE_ALL = -1
"""The number of what runs before the first call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledLaunch:
    """A kernel and the call of an operation that launched it.

    Attributes:
        shape: grid and block.
        call: number of the call; of the one before where it was launched between calls.
        inside: whether a call launched it.
        group: what calls have in common that do the same work; None where a launch stands for itself.
    """

    name: str
    shape: tuple[int, ...]
    call: int
    inside: bool
    group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCall:
    """A call of a step, the first one that does the same (itself, if none did), and where it ran; None is unknown."""

    call: int
    first: int
    path: str | None
    phase: Phase | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCalls:
    """What a program tells of the step that it marked.

    Attributes:
        calls: all of them; those that repeat an earlier one were left out.
        processes: how many run the program together.
    """

    calls: tuple[PlacedCall, ...]
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is counted in one run of a step: launches during calls, and after calls, before the next."""

    during: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()


def launch_order(activity: DeviceActivity) -> tuple[bool, int, float]:
    """Return a key that sorts activities as the host launched them."""
    return activity.correlation is None, activity.correlation or 0, activity.start


def called_launches(events: Events, groups: Sequence[int | None]) -> Iterator[CalledLaunch]:
    """Yield the kernels of a step in the order of launches.

    Args:
        events: of a step whose calls are ranges, by their numbers.
        groups: of the calls, by number.
    """
    during: dict[NestedEvent, int] = {}
    launched: dict[int, tuple[int | None, float]] = {}
    begun: list[tuple[float, int]] = []
    for event in forest(events):
        number = call_of(event.event.name) if isinstance(event.event, NamedRange) else None
        if number is None and event.parent is not None:
            number = during.get(event.parent)
        elif number is not None:
            begun.append((event.event.start, number))
        if number is not None:
            during[event] = number
        if isinstance(event.event, LaunchCall):
            launched[event.event.correlation] = number, event.event.start
    begun.sort()
    of_step = [share.activity for share in attribute(events) if share.activity is not None]
    for activity in sorted((its for its in of_step if its.kind == "kernel"), key=launch_order):
        call, start = launched.get(activity.correlation or 0, (None, activity.start))
        before = begun[n - 1][1] if (n := bisect_right(begun, (start, len(groups)))) else BEFORE_ALL
        yield CalledLaunch(
            name=activity.name,
            shape=activity.shape,
            call=before if call is None else call,
            inside=call is not None,
            group=None if call is None or call >= len(groups) else groups[call],
        )
