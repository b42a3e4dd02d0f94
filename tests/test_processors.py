"""Expected times on a processor: from its own suite, of forward passes in fp32."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch

import rooflens as rl
from rooflens.errors import Incomparable
from rooflens.predict import Card, card_of, expected_seconds
from rooflens.predict.fitting import PROCESSOR_STAGES, TimedCall, fitted, priced
from rooflens.predict.processor_suite import processor_suite
from rooflens.predict.suite import SuiteCall, convolved, dense, made
from rooflens.records import Call, Ceiling, Device, Tensor
from rooflens.sources.replay.processor_times import processor_times

CONSTANTS = {
    "processor.start": 2e-6,
    "processor.start_convolution": 10e-6,
    "processor.streamed": 0.5,
    "processor.cached": 4.0,
    "processor.cache": 1e6,
    "processor.read": 0.25,
    "processor.read_cached": 2.0,
    "processor.product": 1.0,
    "processor.few_rows": 20.0,
    "processor.pointwise": 0.5,
    "processor.blocks": 2.0,
    "processor.written": 1.0,
    "processor.fresh": 10.0,
}


def processor(**constants: float) -> Device:
    """100 GFLOP/s of products and of arithmetic, and 40 GB/s."""
    rates = {"matmul.fp32": 100e9, "matmul.bf16": 100e9, "vector.fp32": 100e9, "special.fp32": 1e9, "dram": 40e9}
    ceilings = tuple(
        Ceiling(
            resource=name,
            rate=rate,
            origin="measured",
            reference="by hand",
            silicon="memory" if name == "dram" else "fma",
        )
        for name, rate in rates.items()
    )
    return Device(
        name="toy-cpu", title="Toy", vendor="toy", kind="cpu", arch="", ceilings=ceilings, facts={},
        constants=CONSTANTS | constants,
    )  # fmt: skip


def toy() -> Card:
    card = card_of(processor())
    assert card is not None
    return card


def alone(call: Call) -> float:
    return expected_seconds(priced(SuiteCall("any", call)), toy())


def linear(m: int, k: int, n: int) -> Call:
    weight = Tensor((k, n), "fp32", 4 * k * n, None, (1, k), 0)
    return made("mm", dense(m, n), self=dense(m, k), mat2=weight)


def test_a_product_of_many_rows_computes_and_one_row_reads_its_weights() -> None:
    # 2 x 100 x 200 x 300 FLOP at 100 GFLOP/s are 120 us, and 20 more rows a fifth of that.
    assert alone(linear(100, 200, 300)) == pytest.approx(2e-6 + 120e-6 * 1.2)
    # A row of 200 and of 300, and 60,000 weights: 242,000 bytes at 40 x 0.25 x 2 = 20 GB/s.
    assert alone(linear(1, 200, 300)) == pytest.approx(2e-6 + 242_000 / 20e9)
    # 1000 x 1000 weights are 4 MB, which no cache of 1 MB holds: 10 GB/s.
    assert alone(linear(1, 1000, 1000)) == pytest.approx(2e-6 + 4_008_000 / 10e9)


def test_elements_come_from_the_cache_or_from_memory_and_large_results_are_new_memory() -> None:
    small = dense(10_000)
    assert alone(made("add", small, self=small, other=small)) == pytest.approx(2e-6 + 120_000 / 80e9)
    # In place, what is written was read before: half of the bytes.
    assert alone(made("relu_", small, self=small)) == pytest.approx(2e-6 + 40_000 / 80e9)
    large = dense(10_000_000)  # 40 MB, above glibc's 32 MiB
    moved, new = 120e6 / 20e9, 40e6 * 10 / 40e9
    assert alone(made("add", large, self=large, other=large)) == pytest.approx(2e-6 + moved + new)


def test_a_convolution_pads_its_channels_and_copies_its_input() -> None:
    # 8 -> 24 channels of 10 x 10 are computed as 16 -> 32: 102,400 FLOP at 50 GFLOP/s. 3,200 bytes are read, 9,600
    # written: at 80 GB/s, the first twice.
    seconds = 10e-6 + 2 * 16 * 32 * 100 / 50e9 + (2 * 3_200 + 9_600) / 80e9
    assert alone(convolved(1, 8, 24, 10, 1)) == pytest.approx(seconds)


def test_weights_are_cold_where_the_step_is_larger_than_the_cache() -> None:
    piece = priced(SuiteCall("any", linear(100, 200, 300)))._replace(weights=240_000.0)
    small, large = piece._replace(held=0.5e6), piece._replace(held=5e6)
    assert expected_seconds(large, toy()) - expected_seconds(small, toy()) == pytest.approx(240_000 / 10e9)


def test_the_constants_behind_some_times_are_found_again() -> None:
    true = {"processor.product": 0.7, "processor.few_rows": 40.0, "processor.start": 5e-6}
    card = card_of(processor(**true))
    assert card is not None
    some = [item for item in processor_suite() if item.effect in ("stream", "product")]
    device = replace(processor(), constants={})
    found = fitted([TimedCall(item, expected_seconds(priced(item), card)) for item in some], device)
    for name, value in true.items():
        assert found[name] == pytest.approx(value, rel=0.2), name
    assert not any("convolution" in name for name in found)  # no call told of it


def test_every_effect_of_the_suite_tells_constants_and_all_can_be_called() -> None:
    effects = {effect for some, _ in PROCESSOR_STAGES for effect in some}
    assert effects == {item.effect for item in processor_suite()}
    first = {item.effect: item for item in reversed(processor_suite())}
    with torch.no_grad():
        ticks = itertools.count()
        times = processor_times(tuple(first.values()), 0.0, now=lambda: 0.01 * next(ticks))
    assert [item.effect for item, _ in times] == list(first), "none was left out"
    assert [seconds for _, seconds in times] == pytest.approx([0.01] * len(times))


def test_a_calibration_keeps_what_the_suite_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    suite_times = import_module("rooflens.sources.replay.suite_times")  # a function has its name, too
    some = tuple(item for item in processor_suite() if item.effect == "stream")[:4]
    monkeypatch.setattr(suite_times, "processor_suite", lambda: some)
    monkeypatch.setattr(suite_times, "PROCESSOR_SECONDS", 0.0)
    monkeypatch.setattr(suite_times, "alone_on", lambda *_: nullcontext())
    found = suite_times.measured_constants(replace(processor(), constants={}))
    assert {"processor.start", "host.view", "host.module"} <= found.keys()
    assert "processor.product" not in found, "no call told of it"
    card = card_of(replace(processor(), constants=found))
    assert card is not None
    assert card.level == "calibrated"


def small_steps(dtype: str = "fp32", mode: str = "inference", **options: Any) -> rl.RecordSet:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    return rl.estimate(model, inputs=torch.ones(8, 64), device=processor(), dtype=dtype, mode=mode, **options)


def test_a_step_is_its_calls_and_what_lies_between_them_in_turn() -> None:
    found = small_steps().total().prediction
    assert found is not None
    assert (found.level, found.regime, found.generation) == ("calibrated", "in turn", "toy-cpu")
    assert found.host is not None
    assert found.seconds == pytest.approx(found.device + found.host)
    assert found.low < found.seconds < found.high
    # A linear layer and a rectifier: 2 us each, 8 x 64 x 64 x 2 FLOP times 28/8, 4,096 bytes read and written.
    assert found.device == pytest.approx(2e-6 + 65_536 * 3.5 / 100e9 + 2e-6 + 4_096 / 80e9)
    assert small_steps().under(processor(), "forward", "graph").predicted_seconds is None


@pytest.mark.parametrize("asked", [{"dtype": "bf16"}, {"mode": "train"}, {"compile": True}])
def test_what_the_suite_does_not_time_is_unknown(asked: dict[str, Any]) -> None:
    assert small_steps(**asked).total().predicted_seconds is None


def test_without_a_suite_nothing_is_expected_and_advice_is_for_gpus() -> None:
    assert card_of(replace(processor(), constants={})) is None
    with pytest.raises(Incomparable, match="known for single GPUs"):
        rl.advise("alexnet", batch=1, device=processor())
