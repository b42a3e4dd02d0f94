"""Models, batches, devices and phases compared: correlations, exponents, speed-ups, ratios, sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from scipy import stats
from tests.comparison_samples import noisy, timed
from tests.ranked_steps import a_card, relu_on
from tests.table_samples import TRAINING, device, operation, times, trained

from rooflens.compare import Sweep, compare_devices, correlations, exponents, phase_ratios, sweeps
from rooflens.compare.statistics import change
from rooflens.devices.rules import times as times_of
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Fact, Failure, Record, Traffic, Work
from rooflens.report.render import render
from rooflens.report.series import sweep_table
from rooflens.results import RecordSet, join

NETS = Case(model="", device="toy", batch=8)
FLOPS = (1e6, 2e6, 5e6, 3e6, 8e6)
SECONDS = (1.1e-3, 2.3e-3, 4.4e-3, 3.9e-3, 7.0e-3)


def net(number: int, flops: float, seconds: float | None, case: Case = NETS) -> list[Record]:
    """A model of one product: a quarter of its FLOP in bytes, a hundredth in parameters, a tenth in result bytes."""
    case = replace(case, model=f"net{number}")
    work = Work(flops={"matmul.fp32": flops}, bytes={"dram": flops / 4})
    traffic = Traffic(weights=flops / 20, inputs=flops / 10, outputs=flops / 10)
    return [
        Record(case=case, source="estimate", scope="model", parameters=int(flops / 100)),
        replace(operation(case, "layer", "linear", work), traffic=traffic),
        *([] if seconds is None else [times(case, "forward", *(seconds,) * 6)]),
    ]


def nets(case: Case = NETS, seconds: Sequence[float | None] = SECONDS) -> RecordSet:
    records = [r for n, (flops, time) in enumerate(zip(FLOPS, seconds, strict=True)) for r in net(n, flops, time, case)]
    return RecordSet(records, devices={"toy": device(), "other": device("other", matmul_fp32=2e9, dram=1e9)})


def test_correlations_are_scipys_over_the_models_of_a_setting() -> None:
    found = correlations(nets())
    assert [item.quantity for item in found] == ["flops", "matmul_flops", "parameters", "bytes", "activations"]
    for item in found:  # each quantity is a share of the FLOP
        assert item.setting == NETS
        assert item.time == "measured"
        assert [model for model, _, _ in item.points] == [f"net{n}" for n in range(5)]
        assert item.coefficients["pearson"].value == pytest.approx(stats.pearsonr(FLOPS, SECONDS).statistic)
        assert item.coefficients["kendall"].p == pytest.approx(stats.kendalltau(FLOPS, SECONDS, method="exact").pvalue)
        assert item.coefficients["kendall"].value == pytest.approx(stats.kendalltau(FLOPS, SECONDS).statistic)
    assert found[-1].points[0] == ("net0", 1e5, 1.1e-3)


def test_each_setting_has_its_own_correlation_and_few_models_have_none() -> None:
    second, third = replace(NETS, batch=16), replace(NETS, dtype="bf16", device="other")
    few = RecordSet([*net(0, 1e6, 1e-3, replace(NETS, batch=99)), *net(1, 2e6, 2e-3, replace(NETS, batch=99))])
    found = correlations(nets() + nets(second) + nets(third) + few, quantities=["flops"])
    assert [item.setting for item in found] == [NETS, second, third]


def test_correlation_with_another_quantity_and_with_the_bound() -> None:
    found = correlations(nets(seconds=(None,) * 5), against="flops", quantities=["bytes", "latency", "flops"])
    assert [(item.quantity, item.time) for item in found] == [("bytes", "bound"), ("latency", "bound")]
    assert found[0].coefficients["pearson"].value == pytest.approx(1)
    with pytest.raises(InvalidValue, match="unknown quantity 'colour'; known: flops"):
        correlations(nets(), against="colour")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="unknown time 'guessed'"):
        correlations(nets(), time="guessed")  # type: ignore[arg-type]
    with pytest.raises(Incomparable, match="no case has a measured time"):
        correlations(nets(seconds=(None,) * 5), time="measured")


def test_where_nothing_was_measured_latency_is_the_expected_time_of_every_step_or_the_bound_of_every_step() -> None:
    def relus(*samples: int) -> list[Record]:
        each = [(n, record) for n in samples for record in relu_on(a_card("toy"), n)]
        return [replace(record, case=replace(record.case, model=f"relu{n}", batch=8)) for n, record in each]

    known = RecordSet(relus(100, 200, 300), devices={"toy": a_card("toy")})
    (found,) = correlations(known, quantities=["flops"], methods=["spearman"])
    assert found.time == "predicted"
    # A million FLOP and 8 MB a sample; a stream reaches 80 % of 1 TB/s.
    assert [flops for _, flops, _ in found.points] == [1e8, 2e8, 3e8]
    assert [seconds for _, _, seconds in found.points] == pytest.approx([1e-3, 2e-3, 3e-3])
    assert {item.time for item in exponents(known, over="flops")} <= {"predicted"}
    (bound,) = correlations(known, quantities=["flops"], methods=["spearman"], time="bound")
    assert bound.points[0][2] == pytest.approx(0.8e-3)
    # Of a fourth model nobody knows what its operation is.
    open_ = known + RecordSet([replace(record, call=None) for record in relus(400)])
    (found,) = correlations(open_, quantities=["flops"], methods=["spearman"])
    assert (found.time, len(found.points)) == ("bound", 4)


def test_measured_and_bound_are_never_mixed() -> None:
    partly = nets(seconds=(*SECONDS[:3], None, None))
    assert [len(item.points) for item in correlations(partly, quantities=["flops"])] == [3]


def test_a_constant_quantity_has_no_coefficients() -> None:
    constant = RecordSet([r for n, time in enumerate(SECONDS) for r in net(n, 1e6, time)], devices={"toy": device()})
    (item,) = correlations(constant, quantities=["flops"])
    assert item.coefficients == {}


def batches(*pairs: tuple[int, float], case: Case = NETS) -> RecordSet:
    """Measured times of one model by batch."""
    return RecordSet(
        [times(replace(case, model="net", batch=batch), "forward", *(seconds,) * 6) for batch, seconds in pairs]
    )


def test_an_exponent_over_batches() -> None:
    # 1 ms at batch 1, 4 ms at 4, 16 ms at 16 ...: proportional. A second model takes the square root.
    one = batches((16, 16e-3), (1, 1e-3), (4, 4e-3), (64, 64e-3))
    root = batches((1, 1e-3), (4, 2e-3), (16, 4e-3), (64, 8e-3), case=replace(NETS, dtype="bf16"))
    few = batches((1, 1e-3), (4, 4e-3), (16, 16e-3), case=replace(NETS, dtype="fp16"))
    first, second = exponents(one + root + few)
    assert first.case == replace(NETS, model="net", batch=None)
    assert first.fit.exponent == pytest.approx(1)
    assert list(first.points) == [(1, 1e-3), (4, 4e-3), (16, 16e-3), (64, 64e-3)]
    assert list(first.fit.interval) == pytest.approx([1, 1])
    assert second.fit.exponent == pytest.approx(0.5)
    assert list(second.fit.interval) == pytest.approx([0.5, 0.5])


def test_an_exponent_over_an_option_and_over_a_quantity() -> None:
    lengths = (10, 20, 40, 80)
    cases = {n: replace(NETS, model="net", options=(("causal", True), ("seq_len", n))) for n in lengths}
    records = RecordSet([times(case, "forward", *(length**2,) * 6) for length, case in cases.items()])
    (found,) = exponents(records, over="seq_len")
    assert found.case.options == (("causal", True),)
    assert found.fit.exponent == pytest.approx(2)
    (over,) = exponents(nets(), over="flops", of="bytes")
    assert over.case == NETS
    assert (over.fit.exponent, over.fit.factor) == pytest.approx((1, 0.25))
    with pytest.raises(InvalidValue, match=r"no case has a number 'causal' to grow over; known here: .*batch, seq_len"):
        exponents(records, over="causal")


def test_one_batch_has_no_exponent() -> None:
    assert exponents(batches((1, 1e-3))) == ()


def on(name: str, seconds: Sequence[float], batch: int = 8) -> Record:
    return timed(tuple(seconds), Case(model="net", device=name, batch=batch))


def with_power(name: str, watts: float) -> RecordSet:
    return RecordSet((), devices={name: replace(device(name), facts={"power": Fact(value=watts)})})


def test_devices_are_put_beside_the_first_one() -> None:
    slow, fast = noisy(1, 4e-3), noisy(2, 1e-3)
    records = RecordSet([on("slow", slow), on("fast", fast)]) + with_power("slow", 100) + with_power("fast", 200)
    found = compare_devices(records, prices={"slow": 1, "fast": 5})
    base, row = found.rows
    expected = change([fast], [slow])
    assert (base.case.device, base.speedup, base.interval) == ("slow", 1, None)
    assert (row.speedup, row.interval, row.p) == (expected.ratio, expected.interval, expected.p)
    assert row.speedup == pytest.approx(4, rel=0.02)
    assert row.speedup_per_watt == pytest.approx((row.speedup or 0) / 2)
    assert row.speedup_per_price == pytest.approx((row.speedup or 0) / 5)
    assert row.joules_per_sample == pytest.approx(200 * row.seconds / 8)
    (turned, _) = compare_devices(records, baseline="fast").rows
    assert turned.speedup == pytest.approx(1 / 4, rel=0.02)


def test_two_cards_have_the_power_of_two() -> None:
    two = times_of(with_power("one", 100).devices["one"], 2)
    records = RecordSet([on("one", noisy(1)), on(two.name, noisy(2))], devices={two.name: two})
    rows = compare_devices(records + with_power("one", 100)).rows
    assert [row.watts for row in rows] == [100, 200]
    # Two processes on two cards: 200 W for the seconds of a step of 16 samples.
    case = replace(rows[0].case, options=(("gpus", 2),))
    steps = [timed(tuple(noisy(n)), replace(case, device=name)) for n, name in enumerate(("one", "fast"), 1)]
    together = compare_devices(RecordSet(steps) + with_power("one", 100) + with_power("fast", 300)).rows
    assert [row.watts for row in together] == [200, 600]
    assert [row.joules_per_sample for row in together] == [(row.watts or 0) * row.seconds / 16 for row in together]


def test_devices_of_estimates_are_compared_by_their_bounds() -> None:
    # A product of 1e6 FLOP and 0.25e6 bytes: 1 ms at 1 GFLOP/s; 0.5 ms at 2 GFLOP/s.
    other = replace(NETS, device="other")
    found = compare_devices(nets(seconds=(None,) * 5) + nets(other, seconds=(None,) * 5))
    assert {(row.case.device, row.time) for row in found.rows} == {("toy", "bound"), ("other", "bound")}
    assert [row.speedup for row in found.rows if row.case.device == "other"] == pytest.approx([2] * 5)
    assert {row.interval for row in found.rows} == {None}


def test_steps_that_one_device_alone_has_are_listed() -> None:
    found = compare_devices(RecordSet([on("a", noisy(1)), on("b", noisy(2)), on("b", noisy(3), batch=16)]))
    assert [case.batch for case in found.alone] == [16]
    with pytest.raises(Incomparable, match=r"no step was seen on 'a' and on another device \(devices here: a"):
        compare_devices(RecordSet([on("a", noisy(1))]))


def test_a_wrong_device_or_price_is_an_error() -> None:
    records = RecordSet([on("a", noisy(1)), on("b", noisy(2))])
    with pytest.raises(InvalidValue, match="no step on a device 'c'; devices here: a, b"):
        compare_devices(records, prices={"c": 1})
    with pytest.raises(InvalidValue, match="no step on a device 'c'"):
        compare_devices(records, baseline="c")
    with pytest.raises(InvalidValue, match="the price of 'a' is 0"):
        compare_devices(records, prices={"a": 0})


def test_forward_over_backward() -> None:
    forward, backward = noisy(1), noisy(2, 2e-3)
    measured = RecordSet([timed(forward, TRAINING), timed(backward, TRAINING, "backward")])
    (found,) = phase_ratios(trained() + measured)
    assert found.time == pytest.approx(0.5, rel=0.02)
    assert found.time_interval is not None
    assert found.time_interval[0] < 0.5 < found.time_interval[1]
    # Matrix work: forward 75,776; backward 40,000 + 80,000, what is recomputed left out.
    assert found.matmul_flops == pytest.approx(75_776 / 120_000)
    # Bytes: forward 39,384 and 160 of the loss; backward 240 + 20,000 + 12,288 + 6,496 + 40,000, recomputed ones too.
    assert found.bytes == pytest.approx(39_544 / 79_024)


def test_the_share_of_backward_takes_the_whole_step() -> None:
    measured = RecordSet([times(TRAINING, phase, *(1e-3,) * 6) for phase in ("forward", "backward", "optimizer")])
    (found,) = phase_ratios(measured)
    assert (found.time, found.backward_share) == pytest.approx((1, 1 / 3))
    assert found.flops is None
    with pytest.raises(Incomparable, match="no case has forward and backward"):
        phase_ratios(nets())


def test_a_sweep_has_a_knee_and_an_end() -> None:
    # Samples per second: 1000, 2000, 3800, 4000, 3000; 95 % of the highest is 3800, at batch 4.
    records = batches((1, 1e-3), (2, 1e-3), (4, 4 / 3800), (8, 2e-3), (16, 16 / 3000))
    full = replace(NETS, model="net", batch=17)
    failure = Failure(case=full, source="measure", stage="forward", kind="out of memory", message="full")
    (found,) = sweeps(join(records), [failure])
    assert (found.origin, found.best, found.knee, found.largest) == ("measured", (8, 4000), 4, 16)
    assert found.case == replace(NETS, model="net", batch=None)
    (short,) = sweeps(join(batches((1, 1e-3), (2, 1e-3))))
    assert (short.knee, short.largest) == (None, None)


def test_a_batch_that_does_not_fit_is_never_the_best_one() -> None:
    rates = ((1, 100.0), (2, 150.0), (4, 190.0), (8, 200.0), (9, 250.0), (16, 300.0))
    found = Sweep(case=replace(NETS, batch=None), origin="bound", rates=rates, too_large=(9, 16))
    assert (found.best, found.knee, found.largest) == ((8, 200.0), 4, 8)  # 95 % of 200 is 190
    fewer = replace(found, too_large=(8, 9, 16))
    assert (fewer.best, fewer.knee, fewer.largest) == ((4, 190.0), None, None)
    none = replace(found, too_large=(1, 2, 4, 8, 9, 16))
    assert (none.best, none.knee, none.largest) == (None, None, None)
    shown = render([sweep_table([none])], "csv").splitlines()[-1]
    assert shown.endswith(',bound,6,,,,,"1, 2, 4, 8, 9, 16"')


def test_a_sweep_of_bounds_is_told_from_a_measured_one() -> None:
    found = sweeps(join(nets(seconds=(None,) * 5)))
    assert {item.origin for item in found} == {"bound"}
    assert sweeps(join(nets(seconds=(None,) * 5)), origins=("measured",)) == ()
