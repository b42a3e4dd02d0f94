"""How long an action takes, and which of several is fastest."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rooflens.devices.rules import SourcedValue
from rooflens.records import Device, Fact, Silicon
from rooflens.sources.calibrate.pinned import Pinning
from rooflens.sources.calibrate.trial_sizes import TrialSizes
from rooflens.timing import Clock, CudaClock, MonotonicClock, Policy, sample

Action = Callable[[], object]
Timer = Callable[[Action, float], float]
"""Takes an action and the seconds to spend on it; returns the shortest time of one call."""

# Some functions of torch are private, where it has no others: they may be gone (AttributeError) or changed (TypeError).
TROUBLE = (RuntimeError, OSError, ImportError, ValueError, TypeError, AttributeError, subprocess.SubprocessError)
"""What a task may raise without stopping the others: torch, drivers and compilers raise these."""

LEAST = {"cpu": 0.02, "cuda": 0.003}
"""Seconds of one sample: far longer than the clock's resolution and the host's time to launch."""
REST = {"cpu": 0.0, "cuda": 0.06}
"""Seconds without work before each burst. Under load a card soon meets its power limit and lowers its clock. After a
rest it runs at its highest clock for some milliseconds: no later work beats that, and two runs agree on it."""
BURST = {"cpu": 100, "cuda": 3}
"""Samples in a row."""
STEADY_SECONDS = 0.6
"""Seconds of work without a pause, for the rate that a card keeps up."""
SAMPLES = 100
FINALISTS = 2
MOST_REPEATS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRates:
    """What tasks measured: rates by resource, facts by name, and what a reader must know."""

    rates: Mapping[str, SourcedValue] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __add__(self, other: MeasuredRates) -> MeasuredRates:
        return MeasuredRates(
            rates={**self.rates, **other.rates},
            facts={**self.facts, **other.facts},
            notes=(*self.notes, *other.notes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every task is run with.

    Attributes:
        where: ``cpu`` or ``cuda``.
        timer: of work in the current stream.
        wall: of work that has ended when its call returns.
        steady: of work in the current stream without a pause: the median, not the shortest; None where that is the
            same.
        known: the catalogue's entry for this machine.
        earlier: what earlier tasks measured.
    """

    where: str
    sizes: TrialSizes
    pinning: Pinning
    timer: Timer
    wall: Timer
    steady: Timer | None = None
    known: Device | None = None
    earlier: MeasuredRates = MeasuredRates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to use a resource.

    Attributes:
        how: what it does, for the reference.
        amount: FLOP or bytes of one call.
        make: allocates what the call needs.
    """

    how: str
    amount: float
    make: Callable[[], Action]


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest rate, and how a candidate reached it."""

    rate: float
    how: str
    candidate: Candidate | None = None


def shortest(
    call: Action,
    seconds: float,
    clock: Clock,
    least: float,
    *,
    rest: float = 0.0,
    burst: int = SAMPLES,
    pause: Callable[[float], None] = time.sleep,
) -> float:
    """The time of one call: the shortest of several samples of at least `least` seconds, within about `seconds`.

    Args:
        rest: seconds without work before each `burst` of samples.
    """
    once = _once(call, clock)
    if 4 * once > seconds:
        return once
    repeats = max(1, min(MOST_REPEATS, math.ceil(least / once)))
    taken, spent, best = 0, 0.0, once
    while taken < SAMPLES and (spent < seconds or not taken):
        pause(rest)
        budget = max(seconds - spent, 1e-3)
        policy = Policy(warmup=1, min_samples=min(3, burst), max_samples=burst, budget=budget, precision=0.0)
        samples = _samples(call, repeats, clock, policy)
        taken, spent = taken + len(samples), spent + rest + sum(samples)
        best = min(best, min(samples) / repeats)
    return best


def steady(call: Action, seconds: float, clock: Clock, least: float) -> float:
    """The time of one call under steady load: the median of samples without a pause."""
    once = _once(call, clock)
    repeats = max(1, math.ceil(least / once))
    count = max(3, math.ceil(seconds / (repeats * once)))
    policy = Policy(warmup=1, min_samples=count, max_samples=count, budget=seconds)
    return median(_samples(call, repeats, clock, policy)) / repeats


def _once(call: Action, clock: Clock) -> float:
    return max(*_samples(call, 1, clock, Policy(warmup=1, min_samples=1, max_samples=1)), 1e-9)


def _samples(call: Action, repeats: int, clock: Clock, policy: Policy) -> Sequence[float]:
    def run(mark: Callable[[], None]) -> None:
        for _ in range(repeats):
            call()
        mark()

    return sample(run, ("forward",), clock, policy)["forward"].samples


def timers(where: str) -> tuple[Timer, Timer, Timer | None]:
    """The timers of a bench: `timer`, `wall` and `steady`."""
    monotonic = MonotonicClock()
    clock: Clock = CudaClock() if where == "cuda" else monotonic
    least = LEAST[where]
    return (
        lambda call, seconds: shortest(call, seconds, clock, least, rest=REST[where], burst=BURST[where]),
        lambda call, seconds: shortest(call, seconds, monotonic, least),
        (lambda call, seconds: steady(call, seconds, clock, least)) if where == "cuda" else None,
    )


def race(
    candidates: Sequence[Candidate], seconds: float, timer: Timer, now: Callable[[], float] = time.monotonic
) -> Best:
    """The best candidate. Half of the time goes to a first round, the other half to the two best of it.

    Leaves out a candidate that would overrun the time or that raises: a layout may be unsupported.

    Raises:
        RuntimeError and others of `TROUBLE`: no candidate ran; the first one raised this.
    """
    end = now() + seconds
    tried: list[tuple[Best, Candidate]] = []
    problems: list[Exception] = []
    for candidate in candidates:
        left = end - now()
        if tried and (left <= 0 or 4 * candidate.amount > left * tried[-1][0].rate):
            continue
        try:
            tried.append((_tried(candidate, seconds / 2 / len(candidates), timer), candidate))
        except TROUBLE as error:
            problems.append(error)
    if not tried:
        raise problems[0]
    tried.sort(key=lambda pair: -pair[0].rate)
    best = [result for result, _ in tried[:FINALISTS]]
    for place, (_, candidate) in enumerate(tried[:FINALISTS]):
        left = end - now()
        if left > 0:
            best.append(_tried(candidate, left / (FINALISTS - place), timer))
    return max(best, key=lambda result: result.rate)


def only(how: str, amount: float, call: Action, seconds: float, timer: Timer) -> Best:
    """The rate of a call that has no rival; the other arguments are those of a :class:`Candidate`."""
    return race([Candidate(how=how, amount=amount, make=lambda: call)], seconds, timer)


def _tried(candidate: Candidate, seconds: float, timer: Timer) -> Best:
    return Best(rate=candidate.amount / timer(candidate.make(), seconds), how=candidate.how, candidate=candidate)


def rate_of(best: Best, *, silicon: Silicon | None = None, accumulate: str | None = None) -> SourcedValue:
    """The rate of a candidate, as a device file holds it."""
    return SourcedValue(value=best.rate, origin="measured", reference=best.how, silicon=silicon, accumulate=accumulate)


def fact(value: float, reference: str) -> Fact:
    """A measured fact."""
    return Fact(value=value, origin="measured", reference=reference)
