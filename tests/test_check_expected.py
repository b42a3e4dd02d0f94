"""A measured time far outside of the band of the expected one is a finding, with reasons that fit the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ranked_steps import a_card, relu_on

import rooflens as rl
from rooflens.checks import Finding, examine
from rooflens.checks.expected import FAR, NEAR
from rooflens.records import Record, Timing
from rooflens.results import RecordSet, join

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
CODES = ("slower-than-expected", "faster-than-expected")


def found(seconds: float, constants: Mapping[str, float] | None = None, **case: Any) -> list[Finding]:
    """What the check says of a relu that is expected to take 1 ms on the device, and took so long."""
    estimate = relu_on(a_card("round", **(constants or {})), **case)
    timing = Timing(samples=(seconds,) * 5, origin="cuda-events")
    measured = Record(case=estimate.cases[0], source="measure", scope="model", timing=timing)
    return of_both(estimate, measured)


def of_both(estimate: RecordSet, measured: Record) -> list[Finding]:
    records = estimate + RecordSet([measured], devices=estimate.devices)
    return [finding for finding in examine(records=records) if finding.code in CODES]


def band(constants: Mapping[str, float] | None = None, **case: Any) -> tuple[float, float]:
    total = relu_on(a_card("round", **(constants or {})), **case).total()
    assert total.predicted_low is not None
    assert total.predicted_high is not None
    return total.predicted_low, total.predicted_high


def test_the_limits_are_twice_the_upper_and_half_the_lower_end_where_the_device_decides() -> None:
    low, high = band()
    assert low < 1e-3 < high
    assert (found(1.99 * high), found(0.51 * low)) == ([], [])
    (slow,), (fast,) = found(2.01 * high), found(0.49 * low)
    assert (slow.code, slow.severity) == ("slower-than-expected", "warning")
    assert (fast.code, fast.severity) == ("faster-than-expected", "info")
    assert slow.evidence["ratio"] == pytest.approx(2.01 * high / 1e-3)
    # If the clock alone made 1 ms of work last so long, it ran at that share of its own.
    assert f"(to {100 * 1e-3 / (2.01 * high):.0f} %, if by the clock alone)" in slow.message


def test_where_the_host_has_a_part_three_times_are_allowed_and_the_host_is_named() -> None:
    host = {"host__operation": 10e-3}
    _, high = band(host)
    assert found(2.9 * high, host) == []
    (slow,) = found(3.1 * high, host)
    assert f"the host launches {3.1 * high / 10e-3:.3g} times as slowly as assumed" in slow.message
    assert "clock or power" not in slow.message  # the device waits anyway
    (fast,) = found(0.4 * band(host)[0], host)
    assert "the step was compiled or captured in a CUDA graph" in fast.message
    graph = {"options": (("cuda_graph", True),)}
    assert found(1e-3, host, **graph) == []  # a graph has no host


def test_reasons_are_those_that_the_step_can_have() -> None:
    (slow,) = found(1.0, dtype="bf16")
    assert "products ran in fp32" not in slow.message  # it has none
    assert "layout" not in slow.message
    estimate = rl.estimate("alexnet", batch=64, dtype="tf32", device="h100-sxm")
    timing = Timing(samples=(1.0,), origin="monotonic")
    doubted = "noisy: another program ran"
    measured = Record(case=estimate.cases[0], source="measure", scope="model", timing=timing, notes=(doubted,))
    (slow,) = of_both(estimate, measured)
    for reason in (doubted, "was not warm", "TF32 was off", "another layout", "clock or power"):
        assert reason in slow.message
    (fast,) = of_both(estimate, replace(measured, timing=replace(timing, samples=(1e-6,))))
    assert "the clock was read before the device had finished" in fast.message


def test_pieces_and_steps_without_an_expected_time_are_no_matter_of_this_check() -> None:
    estimate = relu_on(a_card("round"))
    timing = Timing(samples=(5.0,), origin="profiler")
    piece = Record(case=estimate.cases[0], source="measure", scope="op", path="relu", name="relu", timing=timing)
    assert not {*CODES} & {*examine(records=estimate + RecordSet([piece])).codes}
    assert set(FAR) == {"device-bound", "graph", "mixed", "host-bound", "in turn"}
    assert NEAR < 1 < min(FAR.values())


def test_own_measurements_raise_no_false_alarm() -> None:
    measured = rl.read(RESULTS / "times-h200.jsonl")
    assert isinstance(measured, RecordSet)
    cases = [case for case in measured.cases if case.model == "alexnet" and case.mode == "inference"]
    estimates = [
        rl.estimate(
            "alexnet",
            batch=case.batch,
            dtype=case.dtype,
            device="h200",
            channels_last=dict(case.options).get("channels_last", False) is True,
        )
        for case in cases
    ]
    both = RecordSet.union([*estimates, measured])
    expected = [item for item in join(both) if item.total() is not None and item.measured() is not None]
    assert len(expected) == len(cases) == 4
    assert not {*CODES} & {*examine(records=both).codes}
