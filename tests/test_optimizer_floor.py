"""The bound of an optimizer reads and writes each tensor once, in whatever form; what the form moves has a name."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.records import Record
from rooflens.units import show

N = 1000 * 1000 + 10 * 1000
"""Parameters of the two layers, without biases."""
BANDWIDTH = rl.device("h100-sxm").require("dram").rate


def step(**options: Any) -> rl.RecordSet:
    net = nn.Sequential(nn.Linear(1000, 1000, bias=False), nn.Linear(1000, 10, bias=False))
    return rl.estimate(net, inputs=torch.empty(8, 1000), mode="train", device="h100-sxm", **options)


def updates(records: rl.RecordSet) -> list[Record]:
    return [record for record in records if record.phase == "optimizer"]


# Bytes per parameter in fp32. Written: what each foreach operation reads and writes.
# sgd: decay g + w p into a new tensor (12), momentum times 0.9 in place (8), plus the gradient (12), off a weight (12).
# adam: mean (12), squares scaled (8) and added to (12), root (8), over a number (8), plus epsilon (8), the update (16).
# adamw: the same, and the weight scaled (8). Once: gradient, weight and momentum read, weight and momentum written: 20;
# Adam has two momenta: 28.
@pytest.mark.parametrize(("optimizer", "written", "once"), [("sgd", 44, 20), ("adam", 72, 28), ("adamw", 80, 28)])
def test_every_form_has_the_bound_of_each_tensor_once(optimizer: str, written: int, once: int) -> None:
    total = step(optimizer=optimizer).total("optimizer")
    assert total.bytes["dram"] == written * N
    assert total.seconds == pytest.approx(once * N / BANDWIDTH)
    assert total.written_bound is not None
    assert total.written_bound.seconds == pytest.approx(written * N / BANDWIDTH)
    fused = step(optimizer=optimizer, fused=True).total("optimizer")
    assert fused.seconds == pytest.approx(total.seconds, rel=1e-4), "Adam's fused form also reads its step numbers"
    assert fused.written_bound is fused.bound


def test_operations_share_the_bytes_of_the_bound() -> None:
    # Gradient and weight are read first by decay, the momentum by its scaling; the last writer of each writes it.
    shares = [
        (r.name, r.work and r.work.bytes["dram"], r.bound_work and r.bound_work.bytes["dram"]) for r in updates(step())
    ]
    assert shares == [
        ("_foreach_add", 12 * N, 8 * N),
        ("_foreach_mul_", 8 * N, 4 * N),
        ("_foreach_add_", 12 * N, 4 * N),
        ("_foreach_add_", 12 * N, 4 * N),
    ]


@pytest.mark.parametrize("dtype", ["bf16", "amp-fp16", "amp-bf16"])
def test_other_dtypes_have_a_floor_too(dtype: str) -> None:
    total = step(dtype=dtype).total("optimizer")
    element = 2 if dtype == "bf16" else 4  # under autocast weights and gradients stay fp32
    assert total.seconds is not None
    assert total.written_bound is not None
    # A scaler reads the gradients too, and writes them unscaled.
    most = 28 if dtype == "amp-fp16" else 20
    assert 20 / 4 * element * N <= total.seconds * BANDWIDTH <= most / 4 * element * N * 1.001
    assert total.written_bound.seconds > 1.5 * total.seconds


def test_forward_and_backward_are_as_written() -> None:
    records = step()
    for phase in ("forward", "backward"):
        total = records.total(phase)
        assert total.written_bound is total.bound
    whole, optimizer = records.total(), records.total("optimizer")
    assert whole.written_bound is not None
    assert whole.bound is not None
    assert optimizer.written_bound is not None
    assert whole.written_bound.seconds - whole.bound.seconds == pytest.approx(
        optimizer.written_bound.seconds - (optimizer.seconds or 0)
    )


def test_what_a_compiler_fuses_has_the_same_floor() -> None:
    total = step(fusion="pointwise").total("optimizer")
    assert total.bytes["dram"] < 44 * N
    assert total.seconds == pytest.approx(20 * N / BANDWIDTH)


def test_both_numbers_are_shown_by_name() -> None:
    records = step()
    (case,) = json.loads(rl.table(records, format="json"))
    optimizer = case["phases"]["optimizer"]
    assert optimizer["seconds"] == pytest.approx(20 * N / BANDWIDTH)
    assert optimizer["as_written_seconds"] == pytest.approx(44 * N / BANDWIDTH)
    assert case["phases"]["forward"]["as_written_seconds"] == case["phases"]["forward"]["seconds"]
    table = rl.table(records)
    assert "as written" in table
    assert "as written" not in rl.table(step(fused=True))


def test_what_the_code_does_beyond_the_bound_has_its_cause() -> None:
    records = step()
    (case,) = json.loads(rl.table(records, format="json"))
    surplus = case["step"]["surplus"]["optimizer passes"]
    assert surplus["bytes"] == (44 - 20) * N
    assert surplus["seconds"] == pytest.approx(24 * N / BANDWIDTH)
    assert case["phases"]["forward"]["surplus"] == {}
    told = " ".join(rl.table(records).split())
    assert f"does more than the bound: optimizer passes {show(24 * N, 'B')}, " in told
    assert json.loads(rl.table(step(fused=True), format="json"))[0]["step"]["surplus"] == {}


def test_an_explanation_takes_the_bytes_of_the_bound() -> None:
    text = " ".join(rl.explain(step(optimizer="adam"), path="(optimizer)").text.split())
    # The update reads and writes the weight; the root of the squares moves nothing.
    assert f"In one pass that reads and writes each tensor once, this moves {8 * N:,} B." in text
    assert "this moves nothing, and computes meanwhile" in text


def test_record_files_keep_both(tmp_path: Any) -> None:
    records = step()
    again = rl.read(records.save(tmp_path / "step.jsonl"))
    assert again.total("optimizer").seconds == records.total("optimizer").seconds
    written = again.total("optimizer").written_bound
    assert written is not None
    assert written.seconds == pytest.approx(44 * N / BANDWIDTH)
