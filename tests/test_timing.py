"""Timing: what can be said from samples, checked by hand and by simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.errors import InvalidValue
from rooflens.records import Timing
from rooflens.records.timing import trend

SECONDS = st.floats(0, 1e6)


def timing(*samples: float) -> Timing:
    return Timing(samples=samples, origin="monotonic")


def ranks(n: int) -> tuple[int, int]:
    """The ranks, counted from 1, between which the interval of `n` samples lies."""
    interval = timing(*range(1, n + 1)).interval
    assert interval is not None
    return int(interval[0]), int(interval[1])


def coverage(n: int, low: int, high: int) -> Fraction:
    """Probability that the median lies between two order statistics of `n` samples.

    The median is above rank `low` if at least `low` samples fall below it, and below rank `high` if at most `high` - 1
    do; how many fall below it is binomial with p = 1/2.
    """
    return Fraction(sum(math.comb(n, k) for k in range(low, high)), 2**n)


def test_six_samples_cover_with_their_extremes() -> None:
    # All six fall on one side of the median with probability 2 / 2^6 = 3.1 %; with five it would be 6.25 %.
    assert ranks(6) == (1, 6)
    assert coverage(6, 1, 6) == 1 - Fraction(2, 64)
    assert timing(1, 2, 3, 4, 5).interval is None


def test_a_hundred_samples() -> None:
    # 50 -+ 1.96 * 10 / 2 = 40.2 and 59.8, widened to whole ranks: 40 and 61, which tables give as 96.5 %.
    assert ranks(100) == (40, 61)
    assert 0.964 < coverage(100, 40, 61) < 0.966


@pytest.mark.parametrize("n", [*range(6, 60), 100, 101, 500, 1001])
def test_the_interval_covers_95_percent_and_is_symmetric(n: int) -> None:
    low, high = ranks(n)
    assert low + high == n + 1
    assert coverage(n, low, high) >= 0.95
    # It wastes little: two ranks narrower on each side would no longer cover.
    assert low + 2 > high - 2 or coverage(n, low + 2, high - 2) < 0.95


@pytest.mark.parametrize("n", [6, 11, 30, 101])
def test_simulated_coverage(n: int) -> None:
    # Times of a computer are skewed; the median of this log-normal distribution is exactly 1 ms.
    trials = np.random.default_rng(20240229).lognormal(mean=math.log(1e-3), sigma=0.5, size=(4000, n))
    intervals = [timing(*trial.tolist()).interval for trial in trials]
    hits = sum(1 for interval in intervals if interval is not None and interval[0] <= 1e-3 <= interval[1])
    assert hits / len(trials) >= 0.95


@given(st.lists(SECONDS, min_size=6, max_size=50))
def test_order_does_not_matter_and_the_median_lies_inside(samples: list[float]) -> None:
    forward, backward = timing(*samples), timing(*reversed(samples))
    assert forward.median == backward.median
    assert forward.interval == backward.interval
    assert forward.noise == backward.noise
    assert forward.interval is not None
    assert forward.interval[0] <= forward.median <= forward.interval[1]


def test_median_and_noise_by_hand() -> None:
    # Quartiles of 1..5 are 2 and 4, the median is 3.
    assert timing(5, 1, 4, 2, 3).median == 3
    assert timing(5, 1, 4, 2, 3).noise == pytest.approx(2 / 3)
    # Between samples: quartiles of 1, 2, 3, 4 are 1.75 and 3.25, the median is 2.5.
    assert timing(1, 2, 3, 4).noise == pytest.approx(1.5 / 2.5)


def test_too_little_is_unknown() -> None:
    assert timing(1, 2, 3).noise is None
    assert timing(0, 0, 0, 0).noise is None
    assert timing(2.0).median == 2.0


def test_every_sample_is_kept_and_the_cold_call_is_apart() -> None:
    seen = Timing(samples=(3e-3, 1e-3, 9e-3), origin="cuda-events", cold=0.8, warmup=(5e-3,))
    assert seen.samples == (3e-3, 1e-3, 9e-3)
    assert seen.median == 3e-3
    assert (seen.cold, seen.warmup) == (0.8, (5e-3,))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ((), "at least one sample"),
        ((1.0, -0.5), "no duration: -0.5"),
        ((1.0, math.inf), "no duration: inf"),
        ((math.nan, 1.0), "no duration: nan"),
    ],
)
def test_samples_that_are_no_durations(samples: tuple[float, ...], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        timing(*samples)


def test_a_series_that_rises_has_a_drift() -> None:
    # Twelve rising values: all 66 pairs rise. z = 65 / sqrt(12 x 11 x 29 / 18) = 65 / 14.58 = 4.46, beyond 2.58.
    # The first third is 10, 11, 12, 13 with median 11.5, the last 18, 19, 20, 21 with median 19.5.
    rising = Timing(samples=tuple(float(n) for n in range(10, 22)), origin="monotonic")
    assert trend(rising.samples) == pytest.approx(65 / math.sqrt(12 * 11 * 29 / 18))
    assert rising.drift == pytest.approx(19.5 / 11.5 - 1)


def test_a_series_that_goes_up_and_down_has_none() -> None:
    assert Timing(samples=(1.0, 2.0) * 6, origin="monotonic").drift == 0
    assert Timing(samples=(1.0,) * 12, origin="monotonic").drift == 0
    assert Timing(samples=(1.0,) * 8, origin="monotonic").drift is None


def test_a_long_series_is_thinned_before_its_trend_is_tested() -> None:
    # 1000 values in 100 blocks of 10, whose medians rise: all 4950 pairs.
    rising = [float(n) for n in range(1000)]
    assert trend(rising) == pytest.approx(4949 / math.sqrt(100 * 99 * 205 / 18))
