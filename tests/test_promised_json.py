"""``--format json``: the shape that design.md promises."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.table_samples import (
    INFERENCE,
    TRAINING,
    both,
    conv_net,
    demo,
    estimated,
    hostile,
    measured,
    times,
    trained,
    uncounted,
)

from rooflens.report.case_json import promised_json
from rooflens.report.text_formats import as_json
from rooflens.results import RecordSet

PAGE = Path(__file__).parent.parent / "docs" / "json.md"

PHASE = {
    "matmul_flops",
    "recomputed_flops",
    "flops",
    "macs",
    "bytes",
    "intensity",
    "seconds",
    "bound_by",
    "predicted_seconds",
    "predicted_low",
    "predicted_high",
}
CAUSES = ["parameters", "buffers", "inputs", "activations", "gradients", "optimizer", "kv_cache", "temporaries"]
MEMORY = ["peak", *CAUSES, "workspace"]


def promised(rs: RecordSet) -> list[dict[str, Any]]:
    """As a reader of the text gets it."""
    read: list[dict[str, Any]] = json.loads(as_json(promised_json(rs)))
    return read


def test_every_promised_key_is_there() -> None:
    (case,) = promised(estimated())
    assert {"format", "case", "parameters", "phases", "memory", "coverage"} <= case.keys()
    assert case["format"] == 1
    assert case["case"] == {
        "model": "toynet",
        "device": "toy",
        "batch": 2,
        "dtype": "fp32",
        "mode": "inference",
        "options": {},
    }
    assert list(case["phases"]) == ["forward"]
    assert PHASE <= case["phases"]["forward"].keys()
    assert list(case["memory"]) == MEMORY
    assert {"operations", "counted", "uncounted"} <= case["coverage"].keys()


def test_numbers_are_those_worked_out_by_hand() -> None:
    (case,) = promised(estimated())
    forward = case["phases"]["forward"]
    assert case["parameters"] == 5346
    assert (forward["matmul_flops"], forward["flops"], forward["macs"]) == (75_776, 76_800, 37_888)
    assert forward["bytes"] == {"dram": 39_384}
    assert forward["seconds"] == pytest.approx(90.232e-6)
    assert (forward["bound_by"], forward["predicted_seconds"]) == ("matmul.fp32", None)
    assert case["memory"]["peak"] == 31_160 == sum(case["memory"][cause] for cause in CAUSES)
    assert case["coverage"] == {"operations": 3, "counted": 3, "uncounted": [], "bytes_share": 1.0}
    assert case["measured"] is None


def test_counts_are_integers_also_where_the_arithmetic_made_floats() -> None:
    text = as_json(promised_json(demo()))
    for key in ("matmul_flops", "flops", "macs", "dram", "parameters", "recomputed_flops"):
        found = re.findall(rf'"{key}": (\S+?),?\n', text)
        assert found
        assert all(number.isdigit() or number == "null" for number in found)


def test_without_a_device_every_time_is_null_and_every_count_stays() -> None:
    (case,) = promised(RecordSet(conv_net(replace(INFERENCE, device=None))))
    forward = case["phases"]["forward"]
    assert case["case"]["device"] is None
    assert forward["flops"] == 76_800
    times = (
        "seconds",
        "bound_by",
        "predicted_seconds",
        "predicted_low",
        "predicted_high",
        "as_written_seconds",
        "whole_model_seconds",
        "mfu",
    )
    assert {forward[key] for key in times} == {None}
    assert case["notes"] == ["no device is named: bounds are unknown"]


def test_training_has_the_phases_that_ran_and_the_step() -> None:
    (case,) = promised(trained())
    assert list(case["phases"]) == ["forward", "backward", "optimizer"]
    assert case["phases"]["backward"]["matmul_flops"] == 120_000
    assert case["phases"]["backward"]["recomputed_flops"] == 55_296
    assert case["step"]["matmul_flops"] == 195_776
    assert case["step"]["seconds"] == pytest.approx(492.216e-6)
    assert case["case"]["options"] == {"optimizer": "sgd"}


def test_one_object_per_case_in_order() -> None:
    cases = promised(demo())
    assert [(case["case"]["model"], case["case"]["batch"]) for case in cases] == [
        (model, batch) for model in ("resnet18", "alexnet", "mobilenet_v3_large") for batch in (1, 16)
    ]
    assert promised_json(RecordSet([])) == []


def test_a_measurement_beside_the_estimate() -> None:
    (case,) = promised(both())
    assert case["sources"] == ["estimate", "measure"]
    forward = case["phases"]["forward"]
    assert (forward["measured_seconds"], forward["efficiency"]) == (200e-6, pytest.approx(0.45116))
    assert (forward["mfu"], forward["hfu"]) == (pytest.approx(0.37888), pytest.approx(0.37888))
    timing = {"median": 200e-6, "low": 198e-6, "high": 202e-6, "cold": 0.5, "samples": 8, "clock": "monotonic"}
    timing |= {"compiling": None}
    assert case["measured"] == {
        "source": "measure",
        "phases": {"forward": timing | {"noise": pytest.approx(0.00625)}},
        "step": timing | {"noise": pytest.approx(0.00625)},
        "sum_of_times": None,
        "span": None,
        "throughput": pytest.approx(10_000),
        "memory": {"peak": 40_960, "reserved": 2_097_152, "monitor": None, "before": None},
    }


def test_a_measurement_without_estimate_keeps_the_shape_and_leaves_unknowns_null() -> None:
    (case,) = promised(measured())
    assert case["phases"] == {}
    assert case["step"] is None
    assert case["memory"] == dict.fromkeys(MEMORY)
    assert case["coverage"] == {"operations": None, "counted": None, "uncounted": [], "bytes_share": None}
    assert case["measured"]["step"]["median"] == 200e-6


def test_a_phase_that_was_only_measured_is_not_estimated() -> None:
    (case,) = promised(RecordSet(conv_net(TRAINING)) + RecordSet([times(TRAINING, "backward", 1.0)]))
    assert list(case["phases"]) == ["forward"]
    assert list(case["measured"]["phases"]) == ["backward"]
    assert case["measured"]["step"] is None
    assert case["measured"]["throughput"] is None


def test_uncounted_operations_are_named_and_make_lower_bounds() -> None:
    (case,) = promised(uncounted())
    assert case["coverage"] == {"operations": 2, "counted": 1, "uncounted": ["my_kernel"], "bytes_share": 0.75}
    assert case["phases"]["forward"]["lower_bound"] is True
    assert case["phases"]["forward"]["flops"] == 1005


def test_any_text_comes_back_as_it_was() -> None:
    first, second = promised(hostile())
    assert first["case"]["model"] == hostile().cases[0].model
    assert second["case"]["options"] == dict(hostile().cases[1].options)
    assert as_json(promised_json(hostile())).isascii()


def test_numbers_that_json_cannot_write_are_null() -> None:
    assert json.loads(as_json([float("inf"), {"a": (float("nan"), 1.5)}])) == [None, {"a": [None, 1.5]}]


def test_the_example_in_the_documentation_is_real() -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert examples
    assert [json.loads(example) for example in examples] == [promised(both())]


def test_the_documentation_names_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {key for item in value.values() for key in keys(item)}
        return {key for item in value for key in keys(item)} if isinstance(value, list) else set()

    assert {key for key in keys(promised(both())) if f"`{key}`" not in page} == set()
