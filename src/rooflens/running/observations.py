"""Which launches of a step are counted, and for which others each of them stands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass

from rooflens.sources.profile.launches import CalledLaunch, Round

FIRST_SHARE = 0.9
"""Of the kernels' time, which the first run counts: what is cut off later is little."""
ALIKE = 0.02
"""By so much differ the times of two launches of one call that do the same work (all parameters of an optimizer)."""

_Window = tuple[bool, int]
"""Whether it is during a call or after it, and the number of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingPlan:
    """What is counted of a step.

    Attributes:
        stands: by launch the one whose counts it takes.
        rounds: the runs of the step, and what is counted in each.
        counted: launches in the order in which they are counted.
    """

    stands: tuple[int, ...]
    rounds: tuple[Round, ...]
    counted: tuple[int, ...]

    def only(self, launches: Set[int], every: Sequence[CalledLaunch]) -> CountingPlan:
        """Return the plan that counts some launches only, with what their calls launch beside them.

        Args:
            every: all launches of the step.
        """
        if not self.rounds:
            return self
        windows = {_window(every[n]) for n in launches}
        rounds = [
            _round(
                {(True, call) for call in its.during} & windows | {(False, call) for call in its.after} & windows,
            )
            for its in self.rounds
        ]
        return CountingPlan(
            stands=self.stands,
            rounds=tuple(its for its in rounds if its != Round()),
            counted=tuple(n for n in self.counted if _window(every[n]) in windows),
        )


def every_launch(number: int) -> CountingPlan:
    """Return the plan that counts each of so many launches, in one run."""
    return CountingPlan(stands=tuple(range(number)), rounds=(), counted=tuple(range(number)))


def planned(launches: Sequence[CalledLaunch], seconds: Sequence[float]) -> CountingPlan:
    """Return the plan that counts each distinct launch once, those that stand for most time first.

    Args:
        seconds: of each launch.
    """
    stands = standing(launches, seconds)
    weights: dict[_Window, float] = defaultdict(float)
    for launch, first in enumerate(stands):
        weights[_window(launches[first])] += seconds[launch]
    sizes = Counter(map(_window, launches))
    left, rounds = FIRST_SHARE * sum(seconds), (set[_Window](), set[_Window]())
    for window in sorted(weights, key=lambda its: -weights[its] / sizes[its]):
        rounds[left <= 0].add(window)
        left -= weights[window]
    filled = [its for its in rounds if its]
    return CountingPlan(
        stands=stands,
        rounds=tuple(map(_round, filled)),
        counted=tuple(n for its in filled for n, launch in enumerate(launches) if _window(launch) in its),
    )


def standing(launches: Sequence[CalledLaunch], seconds: Sequence[float]) -> tuple[int, ...]:
    """Return for each launch the first that does the same: itself, where there is none.

    Two do if they are the n-th of the same kernel, grid and block in calls of one group. In one call, launches of the
    same kernel, grid and block do if they also take equally long.
    """
    first: dict[tuple[object, ...], int] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    stands: list[int] = []
    for n, launch in enumerate(launches):
        kernel = launch.name, launch.shape
        if launch.group is None:
            stands.append(n)
            continue
        seen[launch.call, kernel] += 1
        key = launch.group, kernel, seen[launch.call, kernel]
        if key not in first:
            earlier = (first[launch.group, kernel, k] for k in range(1, seen[launch.call, kernel]))
            alike = (k for k in earlier if abs(seconds[n] - seconds[k]) <= ALIKE * seconds[k])
            first[key] = next(alike, n)
        stands.append(first[key])
    return tuple(stands)


def _window(launch: CalledLaunch) -> _Window:
    return launch.inside, launch.call


def _round(windows: Set[_Window]) -> Round:
    return Round(
        during=frozenset(call for inside, call in windows if inside),
        after=frozenset(call for inside, call in windows if not inside),
    )
