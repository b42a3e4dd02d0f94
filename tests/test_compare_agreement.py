"""Estimate, measurement, profile and counters of one case, joined piece by piece."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.table_samples import (
    INFERENCE,
    STEADY,
    TRAINING,
    both,
    conv_net,
    device,
    estimated,
    operation,
    times,
    trained,
)
from torch import nn

import rooflens as rl
from rooflens.compare import Agreement, compare_evidence
from rooflens.compare.agreement import PieceKey
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import AS_IS, PHASES, Case, Phase, Record, Source, Timing, Work
from rooflens.results import RecordSet

# The toy net at its device (tests/table_samples.py): 55.296 us of the convolution's product, 10.24 us of the ReLU's
# vector FLOP, 24.696 us of the linear layer's bytes; 90.232 us together.
BOUND = 90.232e-6


def piece(
    path: str,
    seconds: float,
    *,
    source: Source = "profile",
    case: Case = INFERENCE,
    name: str = "",
    phase: Phase | None = "forward",
    flops: float | None = None,
) -> Record:
    return Record(
        case=case,
        source=source,
        scope="op" if source == "profile" else "kernel",
        path=path,
        kind=name,
        name=name,
        phase=phase,
        timing=Timing(samples=(seconds,), origin="profiler"),
        work=None if flops is None else Work(flops={"matmul.fp32": flops}, bytes={"dram": 7000}, origin="executed"),
    )


def profiled() -> RecordSet:
    return both() + RecordSet(
        [
            piece("features.0", 80e-6, name="convolution"),
            piece("features.1", 20e-6, name="relu"),
            piece("head", 30e-6, name="linear"),
            piece("(unattributed)", 5e-6, name="memcpy"),
        ]
    )


def test_a_case_is_its_bound_beside_its_measured_time() -> None:
    found = compare_evidence(both())
    (row,) = found.rows
    assert row.key == PieceKey(phase="forward")
    assert row.pair("bound") == pytest.approx((BOUND, 200e-6))
    assert row.ratio("bound") == pytest.approx(200e-6 / BOUND)
    assert row.error("bound") == pytest.approx(BOUND / 200e-6 - 1)
    assert row.pair("predicted") is None
    assert row.pair("flops") is None
    assert found.unpaired == ()


def test_errors_over_several_cases() -> None:
    second = replace(INFERENCE, batch=4)
    more = RecordSet([*conv_net(second), times(second, "forward", *(BOUND,) * 6)])
    errors = compare_evidence(both() + more).errors("bound")
    first = 1 - BOUND / 200e-6  # the second one measures its bound exactly
    assert errors is not None
    assert (errors.count, errors.mape, errors.bias) == pytest.approx((2, first / 2, -first / 2))
    assert errors.p90 == pytest.approx(0.9 * first)


def test_modules_join_the_profile_and_the_rest_is_listed() -> None:
    found = compare_evidence(profiled(), by="module")
    pairs = {row.key.path: row.pair("bound") for row in found.rows}
    assert pairs.pop("(unattributed)") is None
    assert {path: pair and pair[0] for path, pair in pairs.items()} == pytest.approx(
        {"features.0": 55.296e-6, "features.1": 10.24e-6, "head": 24.696e-6}
    )
    assert [pair and pair[1] for pair in pairs.values()] == [80e-6, 20e-6, 30e-6]
    (alone,) = found.unpaired
    assert (alone.key.path, alone.estimated, alone.observed["profile"].seconds) == ("(unattributed)", None, 5e-6)
    assert [row.key.path for row in found.worst("bound", 2)] == ["features.0", "features.1"]


def test_coverage_is_the_share_of_pieces_and_of_time_that_has_a_partner() -> None:
    coverage = {item.source: item for item in compare_evidence(profiled(), by="module").coverage}
    assert (coverage["estimate"].pieces, coverage["estimate"].joined, coverage["estimate"].share) == (3, 3, 1)
    profile = coverage["profile"]
    assert (profile.pieces, profile.joined, profile.share) == pytest.approx((4, 3, 130 / 135))
    assert "measure" not in coverage, "a time of the whole is no module"


def test_the_time_of_the_whole_counts_before_the_sum_of_pieces() -> None:
    (row,) = compare_evidence(profiled()).rows
    assert row.observed["profile"].seconds == pytest.approx(135e-6)
    assert row.pair("bound") == pytest.approx((BOUND, 200e-6))


def test_operations_join_by_module_and_name() -> None:
    found = compare_evidence(profiled(), by="op")
    keys = {(row.key.path, row.key.name): row.paired for row in found.rows}
    assert keys["features.0", "convolution"]
    assert not keys["(unattributed)", "memcpy"]


def test_counters_show_executed_over_algorithmic_and_counted_over_compulsory() -> None:
    counters = RecordSet([piece("features.0", 90e-6, source="counters", flops=110_592, phase=None)])
    found = compare_evidence(estimated() + counters, by="module")
    row = next(row for row in found.rows if row.paired)
    # 110,592 is twice the convolution's 55,296 FLOP; 7,000 bytes over its 6,496.
    assert row.key.path == "features.0"
    assert (row.ratio("flops"), row.ratio("dram")) == pytest.approx((2, 7000 / 6496))
    assert row.error("flops") == -0.5
    assert row.ratio("bound") == pytest.approx(90 / 55.296)


def test_flop_that_were_not_all_counted_are_held_against_nothing() -> None:
    """A quotient with a lower bound says that less was executed than the algorithm needs."""
    (counted,) = RecordSet([piece("features.0", 90e-6, source="counters", flops=110_592, phase=None)])
    assert counted.work is not None
    lower = replace(counted, work=replace(counted.work, missing=frozenset({"gemm"})))
    row = next(row for row in compare_evidence(estimated() + RecordSet([lower]), by="module").rows if row.paired)
    assert (row.pair("flops"), row.observed["counters"].flops) == (None, None)
    assert row.ratio("dram") == pytest.approx(7000 / 6496)


def test_flop_without_a_formula_are_held_against_nothing() -> None:
    counted = piece("features.0", 90e-6, source="counters", flops=110_592, phase=None)
    (known,) = (r for r in estimated() if r.path == "features.0")
    assert known.work is not None
    lower = replace(known, work=replace(known.work, missing=frozenset({"mylib::conv"})))
    (row,) = compare_evidence(RecordSet([lower, counted]), by="module").rows
    assert row.pair("flops") is None
    assert row.pair("dram") == (6496, 7000)


def test_recomputed_work_is_executed_too() -> None:
    step = trained() + RecordSet(
        [piece("features.0", 1.0, source="counters", case=TRAINING, phase="backward", flops=1)]
    )
    row = next(row for row in compare_evidence(step, by="module").rows if row.paired)
    # Backward of the convolution (2 x 40,000) and what repeats its forward (55,296).
    assert row.pair("flops") == (135_296, 1)


def test_phases_are_joined_one_by_one() -> None:
    measured = [times(TRAINING, phase, *(n * 1e-3,) * 6) for n, phase in enumerate(PHASES, start=1)]
    found = compare_evidence(trained() + RecordSet(measured), by="phase")
    assert {row.key.phase: row.observed["measure"].seconds for row in found.rows} == {
        "forward": 1e-3,
        "backward": 2e-3,
        "optimizer": 3e-3,
    }
    (whole,) = compare_evidence(trained() + RecordSet(measured)).rows
    assert whole.key == PieceKey()
    assert whole.observed["measure"].seconds == pytest.approx(6e-3)


def test_errors_by_a_field() -> None:
    grouped = compare_evidence(profiled(), by="op").by("name", "bound")
    assert set(grouped) == {"convolution", "relu", "linear"}
    assert grouped["relu"].mape == pytest.approx(1 - 10.24 / 20)
    assert set(compare_evidence(both()).by("device", "bound")) == {"toy"}


def test_a_file_of_another_tool_joins_the_only_estimate_and_a_note_says_so() -> None:
    file = Case(model="report", device="toy", dtype=AS_IS)
    counters = RecordSet([piece("head", 1.0, source="counters", case=file, phase=None, flops=20_480)])
    found = compare_evidence(estimated() + counters, by="module")
    assert [row.key.path for row in found.rows if row.paired] == ["head"]
    assert "'report' does not tell its case: taken for 'toynet batch 2 fp32 inference on toy'" in found.notes[0]
    two = estimated() + RecordSet(conv_net(replace(INFERENCE, batch=4))) + counters
    alone = compare_evidence(two, by="module").unpaired
    assert [row.case.model for row in alone if row.estimated is None] == ["report"], "it might be either"


def test_two_files_that_claim_one_estimate_are_an_error() -> None:
    files = [Case(model=name, device="toy", dtype=AS_IS) for name in ("one", "two")]
    counters = RecordSet([piece("head", 1.0, source="counters", case=file, flops=1) for file in files])
    with pytest.raises(InvalidValue, match="two sets from 'counters' belong to it"):
        compare_evidence(estimated() + counters)


def test_a_measurement_without_an_estimate_stays_alone() -> None:
    lonely = replace(INFERENCE, model="other")
    found = compare_evidence(both() + RecordSet([times(lonely, "forward", *STEADY)]))
    (alone,) = found.unpaired
    assert (alone.case, alone.observed["measure"].seconds) == (lonely, 200e-6)


def test_evidence_takes_both_sides_and_a_known_level() -> None:
    with pytest.raises(Incomparable, match="a measurement, a profile or counters is missing"):
        compare_evidence(estimated())
    with pytest.raises(Incomparable, match="an estimate is missing"):
        compare_evidence(RecordSet([times(INFERENCE, "forward", *STEADY)]))
    with pytest.raises(InvalidValue, match="cannot join by 'layer'; known: case, phase, module"):
        compare_evidence(both(), by="layer")  # type: ignore[arg-type]


def joined_by_module(paths: list[str], seen: list[str]) -> Agreement:
    work = Work(flops={"matmul.fp32": 1000}, bytes={"dram": 10})
    records = [operation(INFERENCE, path, "linear", work) for path in paths]
    return compare_evidence(
        RecordSet([*records, *(piece(path, 1e-6) for path in seen)], devices={"toy": device()}), by="module"
    )


PATHS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=8)


@given(PATHS, PATHS)
def test_every_piece_is_in_one_row(paths: list[str], seen: list[str]) -> None:
    found = joined_by_module(paths, seen)
    assert sorted(row.key.path for row in found.rows) == sorted({*paths, *seen})
    assert {row.key.path for row in found.rows if row.paired} == {*paths} & {*seen}
    assert sum(row.observed["profile"].seconds or 0 for row in found.rows if row.observed) == pytest.approx(
        len(seen) * 1e-6
    )


def test_a_step_that_was_run_in_several_ways_has_a_row_for_each() -> None:
    graphed, two = (replace(INFERENCE, options=(option,)) for option in (("cuda_graph", True), ("gpus", 2)))
    timings = [times(two, "forward", 4e-4), times(graphed, "forward", 1e-4)]
    rows = compare_evidence(RecordSet([*timings, *both()], devices=both().devices)).rows
    found = {row.case.options: row.observed["measure"].seconds for row in rows}
    assert found == {(): 200e-6, (("cuda_graph", True),): 1e-4, (("gpus", 2),): 4e-4}
    assert all(row.estimated is not None and row.estimated.seconds == pytest.approx(BOUND) for row in rows)
    # One way alone is joined as before, with whatever else observed the case.
    alone = compare_evidence(RecordSet([timings[0], *estimated()], devices=both().devices)).rows
    assert [row.observed["measure"].seconds for row in alone] == [4e-4]
    # An estimate that says how the step is to run is of the same step too.
    said = [replace(record, case=replace(record.case, options=graphed.options)) for record in estimated()]
    (row,) = compare_evidence(RecordSet([timings[0], *said], devices=both().devices)).rows
    assert row.estimated is not None
    assert row.estimated.seconds == pytest.approx(BOUND)


@pytest.mark.parametrize("by", ["case", "phase"])
def test_the_expected_time_of_a_step_is_that_of_its_estimate_and_beside_kernels_that_of_the_device_alone(
    by: str,
) -> None:
    """A clock around the step sees launches and waiting; counters see the time of two kernels."""
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    estimate = rl.estimate(net, inputs=torch.ones(4, 64), device="h100-sxm")
    (case,) = estimate.cases
    alone = sum(group.total.predicted_seconds or 0 for group in estimate.by("op"))
    step = estimate.total().predicted_seconds
    assert step is not None
    assert step > 2 * alone > 0
    seen = Timing(samples=(step,) * 5, origin="cuda-events")
    measured = Record(case=case, source="measure", scope="model", phase="forward", timing=seen)
    kernels = Record(case=case, source="counters", scope="kernel", name="gemm", phase="forward", timing=seen)
    beside = rl.compare(estimate, RecordSet([kernels]), by=by)
    whole = rl.compare(estimate, RecordSet([measured]), by=by)
    assert isinstance(beside, Agreement)
    assert isinstance(whole, Agreement)
    assert [row.pair("predicted") for row in whole.rows] == [(step, step)]
    (row,) = beside.rows
    assert row.pair("predicted") == pytest.approx((alone, step))
    told = "expected: on the device alone, without waiting for the host"
    assert told in rl.table(beside, width=200)
    assert told not in rl.table(whole, width=200)
