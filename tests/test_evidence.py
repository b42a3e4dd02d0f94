"""An estimate and a measurement of the same case, side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.table_samples import (
    INFERENCE,
    STEADY,
    TRAINING,
    both,
    conv_net,
    device,
    estimated,
    measured,
    operation,
    times,
    trained,
)

from rooflens.errors import AmbiguousResult
from rooflens.records import Case, Phase, Record, Work
from rooflens.report.case_names import differing, name_of
from rooflens.results import RecordSet
from rooflens.results.evidence import join
from rooflens.results.quantities import ATTAINABLE_MFU, HFU, MFU, efficiency, hfu, mfu
from rooflens.runs.run import Run


def test_an_estimate_and_a_measurement_of_one_case_are_one_piece_of_evidence() -> None:
    (item,) = join(both())
    assert item.sources == ("estimate", "measure")
    assert item.case == INFERENCE
    total, time = item.total(), item.measured()
    assert total is not None
    assert total.matmul_flops == 75_776
    assert time is not None
    assert time.seconds == 200e-6


@pytest.mark.parametrize(
    "other",
    [
        replace(INFERENCE, model="other"),
        replace(INFERENCE, batch=3),
        replace(INFERENCE, dtype="bf16"),
        replace(INFERENCE, mode="train"),
        replace(INFERENCE, options=(("img_size", 8),)),
        replace(INFERENCE, device="another"),
    ],
    ids=lambda case: case.label(),
)
def test_another_case_is_not_joined(other: Case) -> None:
    items = join(estimated() + RecordSet([times(other, "forward", *STEADY)]))
    assert [item.sources for item in items] == [("estimate",), ("measure",)]


def test_an_estimate_without_device_takes_that_of_the_measurement_and_its_ceilings() -> None:
    anywhere = RecordSet(conv_net(replace(INFERENCE, device=None)))
    (item,) = join(anywhere + measured())
    assert item.case.device == "toy"
    total = item.total()
    assert total is not None
    # 55.296 us of the convolution's product, 10.24 us of 1,024 vector FLOP at 100 MFLOP/s, 24.696 us of the linear
    # layer's bytes at 1 GB/s.
    assert total.seconds == pytest.approx(90.232e-6)


def test_the_estimate_of_the_same_device_is_preferred_and_the_other_one_stays() -> None:
    anywhere = RecordSet(conv_net(replace(INFERENCE, device=None)))
    items = join(anywhere + both())
    assert [(item.case.device, item.sources) for item in items] == [
        (None, ("estimate",)),
        ("toy", ("estimate", "measure")),
    ]


def test_a_measurement_without_device_joins_only_where_that_is_unambiguous() -> None:
    nowhere = RecordSet([times(replace(INFERENCE, device=None), "forward", *STEADY)])
    (item,) = join(estimated() + nowhere)
    assert item.sources == ("estimate", "measure")
    second = RecordSet(conv_net(replace(INFERENCE, device="second")))
    assert [item.sources for item in join(estimated() + second + nowhere)] == [
        ("estimate",),
        ("estimate",),
        ("measure",),
    ]


def test_counters_with_work_of_their_own_are_not_mixed_with_an_estimate() -> None:
    counted = replace(
        operation(INFERENCE, "", "gemm", Work(flops={"matmul.fp32": 1e6}, bytes={"dram": 1e5}, origin="executed")),
        source="counters",
        scope="kernel",
        timing=times(INFERENCE, None, 1e-3).timing,
    )
    estimate, counters = join(estimated() + RecordSet([counted]))
    assert estimate.measured() is None
    total, time = counters.total(), counters.measured()
    assert total is not None
    assert time is not None
    assert (total.flops, time.seconds) == (1e6, 1e-3)


def train_times(*records: Record) -> RecordSet:
    return trained() + RecordSet(records)


def test_a_step_is_the_sum_of_its_phases_unless_it_was_timed_as_a_whole() -> None:
    phases = [
        times(TRAINING, "forward", 1.0, 1.0),
        times(TRAINING, "backward", 2.0),
        times(TRAINING, "optimizer", 0.5),
    ]
    (item,) = join(train_times(*phases))
    step = item.measured()
    assert step is not None
    assert step.seconds == 3.5
    assert step.timing is None
    assert step.interval == (None, None)
    (item,) = join(train_times(*phases, times(TRAINING, None, 3.25)))
    step, backward = item.measured(), item.measured("backward")
    assert step is not None
    assert step.seconds == 3.25
    assert backward is not None
    assert backward.seconds == 2.0


def test_a_step_of_which_a_phase_was_not_timed_has_no_time() -> None:
    (item,) = join(train_times(times(TRAINING, "forward", 1.0), times(TRAINING, "backward", 2.0)))
    assert item.measured() is None
    assert item.measured("optimizer") is None


def test_a_single_phase_is_the_step_whichever_of_both_was_timed() -> None:
    (item,) = join(estimated() + RecordSet([times(INFERENCE, None, *STEADY)]))
    assert item.measured("forward") == item.measured()
    assert item.measured() is not None


def test_measurements_of_the_same_thing_are_pooled_and_never_added() -> None:
    again = RecordSet([times(INFERENCE, "forward", 300e-6, 300e-6)])
    (item,) = join(both() + again)
    time = item.measured()
    assert time is not None
    assert time.samples == len(STEADY) + 2
    assert time.seconds == pytest.approx(
        200.5e-6
    )  # between the 5th and 6th of 198 199 200 200 200 | 201 201 202 300 300
    assert time.pooled == 2


def counted(*seconds: float, case: Case = INFERENCE, flops: float = 1e6) -> RecordSet:
    """A run under ncu: a kernel for each time, of 1 MFLOP."""
    work = Work(flops={"matmul.fp32": flops}, bytes={"dram": 1e5}, origin="executed")
    kernel = replace(operation(case, "", "gemm", work), source="counters", scope="kernel")
    return RecordSet(replace(kernel, timing=times(case, None, each).timing) for each in seconds)


def test_runs_in_pieces_of_one_case_stand_side_by_side_and_are_never_added() -> None:
    # 1 + 2 ms, 2 + 2 ms, and 3 + 3 ms, each with the work of its two kernels; the second is given twice.
    together = estimated() + counted(1e-3, 2e-3) + (counted(2e-3, 2e-3) + counted(3e-3, 3e-3)) + counted(2e-3, 2e-3)
    _, *runs = join(together)
    assert [item.case.options for item in runs] == [(), (("run", 2),), (("run", 3),)]
    assert [item.measured().seconds for item in runs] == pytest.approx([3e-3, 4e-3, 6e-3])  # type: ignore[union-attr]
    assert [item.total().flops for item in runs] == [2e6, 2e6, 2e6]  # type: ignore[union-attr]
    assert name_of(runs[0].case, differing(together.cases)) == "run=1"
    assert Run.of(runs[1].case) == Run.of(runs[0].case)  # for advice: which run it was is no option
    with pytest.raises(AmbiguousResult, match="run=2"):
        together.where(source="counters").total()
    assert [together.where(source="counters", run=n).total().measured_seconds for n in (1, 2, 3)] == [3e-3, 4e-3, 6e-3]


def test_runs_of_a_profiler_and_of_a_replay_are_not_added_either() -> None:
    for source in ("profile", "replay"):
        one, other = (counted(each, each).records for each in (1e-3, 2e-3))
        sets = [RecordSet(replace(r, source=source, work=None) for r in run) for run in (one, other)]
        found = [item.measured().seconds for item in join(estimated() + sets[0] + sets[1])]  # type: ignore[union-attr]
        assert found == pytest.approx([2e-3, 4e-3])


def test_parts_that_were_chosen_of_one_run_are_that_run() -> None:
    # Two kernels of 1 MFLOP forward, one backward; forward is given twice.
    forward, rest = counted(1e-3, 2e-3).records, counted(4e-3).records
    run = RecordSet([replace(r, phase="forward") for r in forward] + [replace(r, phase="backward") for r in rest])
    first, last = run.where(phase="forward"), run.where(phase="backward")
    (item,) = join(first + last + first)
    assert item.total().flops == 3e6  # type: ignore[union-attr]
    assert item.measured().seconds == pytest.approx(7e-3)  # type: ignore[union-attr]
    beside = RecordSet.union([first, counted(5e-3), last])
    assert [item.measured().seconds for item in join(beside)] == pytest.approx([7e-3, 5e-3])  # type: ignore[union-attr]


def test_two_second_runs_of_other_files_are_told_apart() -> None:
    seconds = [(counted(1e-3) + counted(each)).where(run=2) for each in (2e-3, 3e-3, 4e-3)]
    found = join(RecordSet.union(seconds))
    assert [dict(item.case.options)["run"] for item in found] == [2, 3, 4]


def test_a_measurement_of_a_set_is_one_and_an_equal_one_of_another_file_is_kept_for_the_check() -> None:
    given = both()
    assert [join(given + other)[0].measured().pooled for other in (given, both())] == [1, 2]  # type: ignore[union-attr]


def test_pieces_of_a_model_are_added_with_their_calls() -> None:
    piece = replace(times(INFERENCE, "forward", 1e-3), scope="kernel", source="profile", calls=3)
    other = replace(times(INFERENCE, "forward", 2e-3), scope="kernel", source="profile", path="head")
    (item,) = join(RecordSet([piece, other]))
    time = item.measured()
    assert time is not None
    assert time.seconds == pytest.approx(5e-3)


def test_the_sum_of_times_is_that_of_each_step_as_the_busy_time_is() -> None:
    # Three steps of 1 + 2 x 3, 2 + 2 x 2 and 6 + 2 x 1 ms: sums of 7, 6 and 8. Medians add up to 2 + 2 x 2.
    one, two = times(INFERENCE, "forward", 1e-3, 2e-3, 6e-3), times(INFERENCE, "forward", 3e-3, 2e-3, 1e-3)
    pieces = [replace(r, scope="op", source="profile", calls=n, path=str(n)) for n, r in ((1, one), (2, two))]
    busy = times(INFERENCE, None, 7e-3, 6e-3, 8e-3).timing
    whole = Record(case=INFERENCE, source="profile", scope="model", busy=busy)
    (item,) = join(RecordSet([*pieces, whole]))
    time = item.measured()
    assert time is not None
    assert time.seconds == pytest.approx(7e-3)
    assert time.summed == pytest.approx(7e-3)
    fewer = replace(pieces[1], timing=times(INFERENCE, None, 2e-3).timing)  # of one step alone
    assert join(RecordSet([pieces[0], fewer, whole]))[0].measured().summed == pytest.approx(6e-3)  # type: ignore[union-attr]


def test_pieces_of_which_one_was_not_timed_have_no_sum() -> None:
    """A sum over the others is too small, and what is held against it too high."""
    piece = replace(times(INFERENCE, "forward", 1e-3), scope="kernel", source="counters")
    bare = replace(piece, timing=None, work=Work(flops={"vector.fp32": 1}, origin="executed"))
    (item,) = join(RecordSet([piece, bare]))
    assert item.measured() is None
    (phases,) = join(RecordSet([piece, replace(bare, phase="backward")]))
    assert phases.measured() is None
    timed = phases.measured("forward")
    assert timed is not None
    assert timed.seconds == pytest.approx(1e-3)
    assert phases.measured("backward") is None


def test_efficiency_and_utilisation_need_a_bound_and_a_time() -> None:
    (item,) = join(trained())
    total = item.total()
    assert total is not None
    # Bound 492.216 us: see test_tables. Products: 75,776 + 120,000 FLOP at 1 GFLOP/s, and 55,296 recomputed.
    assert efficiency(total, 1e-3) == pytest.approx(0.492216)
    assert mfu(total, 1e-3) == pytest.approx(0.195776)
    assert hfu(total, 1e-3) == pytest.approx(0.251072)
    assert efficiency(total, None) is mfu(total, None) is hfu(total, None) is None
    assert efficiency(None, 1.0) is mfu(None, 1.0) is hfu(None, 1.0) is None
    (bare,) = join(RecordSet(trained().records))
    assert mfu(bare.total(), 1.0) is None
    assert efficiency(bare.total(), 1.0) is None


def executed(phase: Phase | None, flops: float, seconds: float) -> RecordSet:
    """A launch of a training step under ncu."""
    return RecordSet(replace(r, case=TRAINING, phase=phase) for r in counted(seconds, flops=flops))


def test_a_measurement_beside_a_sum_over_layers_is_chosen_without_these_layers() -> None:
    measured, estimate = times(INFERENCE, "forward", 1e-3), estimated()
    layers = [replace(r, path=f"layer{n}") for n in range(3) for r in estimate.records]
    both = RecordSet([*estimate.records, measured], whole={INFERENCE: lambda: layers})
    assert list(both) == [*layers, measured]
    assert list(both.where(source="measure")) == [measured]
    assert list(both.where(source="estimate")) == layers
    assert [list(own) for *_, own in both.split()] == [layers, [measured]]


def test_what_kernels_executed_is_not_the_work_of_the_model() -> None:
    kernels = executed("forward", 1e5, 0.5e-3) + RecordSet(())
    kernels = kernels.with_records([*kernels, *executed("backward", 3e5, 1.5e-3), *executed("optimizer", 1, 2e-3)])
    step = next(item for item in join(trained() + kernels) if item.sources == ("counters",))
    # The model has 75,776 + 120,000 FLOP of products and repeats 55,296; kernels executed 400,001 in 4 ms.
    assert MFU.read(step).value == pytest.approx(0.195776 / 4)
    assert HFU.read(step).value == pytest.approx(0.251072 / 4)
    assert MFU.read(step, "forward").value == pytest.approx(0.075776 / 0.5)
    assert ATTAINABLE_MFU.read(step).value is None
    alone = join(RecordSet(kernels, devices=trained().devices))[0]
    assert MFU.read(alone).value is HFU.read(alone).value is None
    partly = join(trained() + executed("forward", 1e5, 0.5e-3))[1]
    assert MFU.read(partly).value is None


def test_utilisation_weighs_each_precision_by_its_own_peak() -> None:
    case = Case(model="mixed", device="two-rates")
    rates = device("two-rates", matmul_fp32=1e9, matmul_bf16=4e9, dram=1e9)
    work = Work(flops={"matmul.fp32": 1e6, "matmul.bf16": 8e6}, bytes={"dram": 1})
    (item,) = join(RecordSet([operation(case, "", "linear", work)], devices={rates.name: rates}))
    assert mfu(item.total(), 10e-3) == pytest.approx((1e-3 + 2e-3) / 10e-3)
