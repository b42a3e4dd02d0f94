"""Sampling against a clock that does not tick by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rooflens.errors import InvalidValue
from rooflens.records.timing import TimingOrigin
from rooflens.timing import MonotonicClock, Policy, sample


class FakeClock:
    """Time passes only when work says so."""

    name: TimingOrigin = "monotonic"

    def __init__(self) -> None:
        self.time = 0.0
        self._marks: list[float] = []
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        self._marks = [self.time]

    def mark(self) -> None:
        self._marks.append(self.time)

    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self._marks, self._marks[1:], strict=False)]


def work(clock: FakeClock, *phases: Callable[[int], float]) -> Callable[[Callable[[], None]], None]:
    """A run whose phases take what each function says for the n-th call."""

    def run(mark: Callable[[], None]) -> None:
        for phase in phases:
            clock.time += phase(clock.starts)
            mark()

    return run


def test_the_cold_call_and_warm_up_stand_apart_and_every_sample_is_kept() -> None:
    clock = FakeClock()
    # The first call takes 5 s, the next three 2 s, all others 1 s.
    forward = work(clock, lambda n: 5.0 if n == 1 else 2.0 if n <= 4 else 1.0)
    policy = Policy(warmup=3, warmup_seconds=100, min_samples=7, budget=7, precision=0)
    timing = sample(forward, ("forward",), clock, policy, now=lambda: clock.time)["forward"]
    assert timing.cold == 5.0
    assert timing.warmup == (2.0, 2.0, 2.0)
    assert timing.samples == (1.0,) * 7
    assert timing.median == 1.0


def test_warm_up_goes_on_as_long_as_calls_get_faster() -> None:
    clock = FakeClock()
    # The 2nd call takes 2.9 s, each one after it 0.1 s less, until all take 1 s from the 21st on.
    forward = work(clock, lambda n: max(1.0, 3.1 - 0.1 * n))
    policy = Policy(warmup_seconds=1e9, settle=10, settle_seconds=0, budget=7, precision=0)
    timing = sample(forward, ("f",), clock, policy, now=lambda: clock.time)["f"]
    # Ten calls that end with k equal ones hold 45 - k (k - 1) / 2 falling pairs. Without a trend at 5 % these are
    # at most 22 (1.96 sqrt(125) = 21.9, less one for continuity): k = 8 leaves 17, k = 7 leaves 24. The first of the
    # equal calls is the 21st, the 20th after the cold one: the 27th after it is the eighth of them.
    assert len(timing.warmup) == 27
    assert set(timing.samples) == {1.0}


def test_warm_up_takes_its_least_time_and_is_bounded() -> None:
    clock = FakeClock()
    policy = Policy(settle=2, settle_seconds=5.5, warmup_seconds=8, budget=7, precision=0)
    steady = sample(work(clock, lambda _: 1.0), ("f",), clock, policy, now=lambda: clock.time)["f"]
    assert len(steady.warmup) == 6
    clock = FakeClock()
    rising = sample(work(clock, float), ("f",), clock, Policy(warmup_seconds=8, budget=7), now=lambda: clock.time)["f"]
    assert rising.warmup == (2.0, 3.0, 4.0)  # 9 s are over


def test_phases_are_timed_apart() -> None:
    clock = FakeClock()
    run = work(clock, lambda _: 1.0, lambda _: 2.0, lambda _: 0.5)
    timings = sample(run, ("forward", "backward", "optimizer"), clock, Policy(budget=10), now=lambda: clock.time)
    assert {phase: t.median for phase, t in timings.items()} == {"forward": 1.0, "backward": 2.0, "optimizer": 0.5}


def test_sampling_stops_when_the_median_is_known() -> None:
    clock = FakeClock()
    timing = sample(
        work(clock, lambda _: 1e-3), ("f",), clock, Policy(budget=1e9, max_samples=10_000), now=lambda: clock.time
    )["f"]
    assert len(timing.samples) == 8  # all alike: the interval has no width at the first look, after 8 samples


def test_noise_is_sampled_until_the_budget_is_spent() -> None:
    clock = FakeClock()
    run = work(clock, lambda n: 1.0 if n % 2 else 3.0)
    policy = Policy(warmup=0, budget=100)
    timing = sample(run, ("f",), clock, policy, now=lambda: clock.time)["f"]
    assert len(timing.samples) == 50  # 2 s on average
    # Half of the samples are 1 and half 3: the quartiles are 1 and 3, the median 2.
    assert timing.noise == pytest.approx(1.0)


def test_slow_work_is_sampled_a_few_times_whatever_the_budget() -> None:
    clock = FakeClock()
    policy = Policy(min_samples=7, warmup_seconds=1, budget=1)
    timing = sample(work(clock, lambda _: 60.0), ("f",), clock, policy, now=lambda: clock.time)["f"]
    assert (len(timing.warmup), len(timing.samples)) == (1, 7)


def test_fast_work_is_not_sampled_for_ever() -> None:
    clock = FakeClock()
    policy = Policy(max_samples=20, precision=0, budget=1e9)
    timing = sample(work(clock, lambda _: 1e-6), ("f",), clock, policy, now=lambda: clock.time)["f"]
    assert len(timing.samples) == 20


def test_progress_is_told() -> None:
    clock = FakeClock()
    told: list[float] = []
    policy = Policy(warmup=0, budget=10, precision=0)
    sample(work(clock, lambda _: 1.0), ("f",), clock, policy, progress=told.append, now=lambda: clock.time)
    assert told == pytest.approx([0.1 * n for n in range(11)])  # 0 after the cold call


def test_a_run_that_forgets_a_phase_is_an_error() -> None:
    clock = FakeClock()
    with pytest.raises(RuntimeError, match="marked 1 phases, expected 2"):
        sample(work(clock, lambda _: 1.0), ("forward", "backward"), clock)


@pytest.mark.parametrize("settings", [{"budget": 0}, {"min_samples": 0}, {"min_samples": 5, "max_samples": 4}])
def test_impossible_policies_are_rejected(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidValue, match="cannot sample"):
        Policy(**settings)


def test_the_monotonic_clock_times_what_lies_between_its_marks() -> None:
    import time

    clock = MonotonicClock()
    clock.start()
    time.sleep(0.02)
    clock.mark()
    clock.mark()
    slept, nothing = clock.seconds()
    assert slept >= 0.02
    assert nothing < slept


def test_a_clock_that_the_timed_code_sets_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MonotonicClock()
    clock.start()
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(f"time.{name}", lambda: 0.0)
    sum(range(10_000))
    clock.mark()
    assert clock.seconds()[0] > 0
