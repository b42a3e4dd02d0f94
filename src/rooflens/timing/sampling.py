"""Warm up, then repeat until the median is known well enough or the time is spent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rooflens.errors import InvalidValue
from rooflens.records import Timing
from rooflens.records.timing import Z_95, trend
from rooflens.timing.clock import Clock

Name = TypeVar("Name", bound=str)
WARM_UP, SAMPLING = "warm-up", "sampling"
"""Parts of the wall time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When to stop.

    Attributes:
        warmup: most calls of the warm-up, which follows the cold call and is not sampled.
        warmup_seconds: time after which warm-up ends in any case.
        settle: for warm-up to end earlier, so many last calls must show no trend.
        settle_seconds: shortest warm-up, unless `warmup` calls end it: clocks rise with load.
        min_samples: samples taken even if the budget is spent.
        max_samples: samples after which to stop.
        budget: seconds for sampling.
        precision: stop when the 95 % interval of the median, relative to the median, is this narrow.
    """

    warmup: int = 1000
    warmup_seconds: float = 2.0
    settle: int = 10
    settle_seconds: float = 0.2
    min_samples: int = 7
    max_samples: int = 1000
    budget: float = 3.0
    precision: float = 0.01

    def __post_init__(self) -> None:
        if self.min_samples < 1 or self.max_samples < self.min_samples or not 0 < self.budget < math.inf:
            raise InvalidValue(
                f"cannot sample {self.min_samples} to {self.max_samples} times in {self.budget} s; use positive numbers"
            )


def sample(
    run: Callable[[Callable[[], None]], None],
    phases: tuple[Name, ...],
    clock: Clock,
    policy: Policy | None = None,
    progress: Callable[[float], None] | None = None,
    part: Callable[[str], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> dict[Name, Timing]:
    """Time a run, phase by phase.

    Args:
        run: does the work once and calls its argument at the end of each phase.
        phases: names of the phases, in order; parts of the same name are one phase, whose time is their sum.
        clock: times the phases.
        part: told when warm-up and sampling begin.
        now: wall clock that the budgets are kept by.

    Returns:
        The timing of each phase: cold call apart, warm-up apart, every steady sample kept.
    """
    policy = policy or Policy()
    cold = _once(run, clock, phases)
    if progress is not None:
        progress(0.0)
    part(WARM_UP)
    warmup: list[list[float]] = []
    begun = now()
    while len(warmup) < policy.warmup and not _warm(warmup, now() - begun, policy):
        warmup.append(_once(run, clock, phases))
    part(SAMPLING)
    samples: list[list[float]] = []
    begun = now()
    while len(samples) < policy.max_samples:
        samples.append(_once(run, clock, phases))
        spent = (now() - begun) / policy.budget
        if progress is not None:
            progress(min(1.0, spent))
        if len(samples) >= policy.min_samples and (spent >= 1 or _known(samples, policy.precision)):
            break
    places = {name: [i for i, phase in enumerate(phases) if phase == name] for name in phases}
    return {
        phase: Timing(
            samples=tuple(sum(s[i] for i in its) for s in samples),
            origin=clock.name,
            cold=sum(cold[i] for i in its),
            warmup=tuple(sum(w[i] for i in its) for w in warmup),
        )
        for phase, its in places.items()
    }


def _once(run: Callable[[Callable[[], None]], None], clock: Clock, phases: tuple[str, ...]) -> list[float]:
    clock.start()
    run(clock.mark)
    seconds = clock.seconds()
    if len(seconds) != len(phases):
        raise RuntimeError(f"the run marked {len(seconds)} phases, expected {len(phases)}: {', '.join(phases)}")
    return seconds


def _warm(calls: list[list[float]], spent: float, policy: Policy) -> bool:
    if spent >= policy.warmup_seconds:
        return True
    if spent < policy.settle_seconds or len(calls) < policy.settle:
        return False
    return abs(trend([sum(call) for call in calls[-policy.settle :]])) < Z_95


def _known(samples: list[list[float]], precision: float) -> bool:
    """True if the median of the whole is known to the wanted precision; tested whenever the count doubles."""
    n = len(samples)
    if n < 8 or n & (n - 1):
        return False
    whole = Timing(samples=tuple(map(sum, samples)), origin="monotonic")
    interval = whole.interval
    return interval is not None and whole.median > 0 and (interval[1] - interval[0]) / whole.median < precision
