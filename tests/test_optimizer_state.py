"""State of optimizers in types of its own, and master weights: memory, bytes and bound by hand and in real steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.real_steps import step_of, watched
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.models import make_optimizer
from rooflens.models.mixed_optimizers import MixedOptimizer
from rooflens.runs.options import Options
from rooflens.runs.run import Run

N = 1000 * 1000
BANDWIDTH = rl.device("h100-sxm").require("dram").rate


def net() -> nn.Module:
    return nn.Linear(1000, 1000, bias=False)


def step(**options: Any) -> rl.RecordSet:
    return rl.estimate(net(), inputs=torch.empty(8, 1000), mode="train", device="h100-sxm", **options)


# Bytes per parameter. Bound: gradient, weight or its master, and state are read; weight, master and state are written.
# A weight with a master is not read. Adam keeps two states, SGD one.
@pytest.mark.parametrize(
    ("dtype", "optimizer", "options", "kept", "once"),
    [
        ("bf16", "adamw", {}, 2 + 2, 2 + 2 + 4 + 2 + 4),
        ("bf16", "adamw", {"optimizer_dtype": "bf16"}, 2 + 2, 2 + 2 + 4 + 2 + 4),
        ("bf16", "adamw", {"master_weights": True}, 4 + 8, 2 + 4 + 8 + 2 + 4 + 8),
        ("bf16", "adam", {"optimizer_dtype": "fp32"}, 8, 2 + 2 + 8 + 2 + 8),
        ("bf16", "adamw", {"master_weights": True, "optimizer_dtype": "bf16"}, 4 + 4, 2 + 4 + 4 + 2 + 4 + 4),
        ("fp16", "sgd", {"master_weights": True}, 4 + 4, 2 + 4 + 4 + 2 + 4 + 4),
        ("fp32", "adam", {"optimizer_dtype": "bf16"}, 4, 4 + 4 + 4 + 4 + 4),
        ("amp-bf16", "sgd", {"optimizer_dtype": "bf16"}, 2, 4 + 4 + 2 + 4 + 2),
    ],
)
def test_memory_and_bound_by_hand_and_as_a_real_step_has_them(
    dtype: str, optimizer: str, options: dict[str, Any], kept: int, once: int
) -> None:
    given = {"dtype": dtype, "optimizer": optimizer, **options}
    found = step(**given)
    total, memory = found.total("optimizer"), found.memory
    assert memory is not None
    assert not [note for record in found for note in record.notes if "with values" in note]
    block = 512  # torch's allocator gives whole blocks
    states = (2 if "adam" in optimizer else 1) + bool(options.get("master_weights"))
    assert kept * N <= (memory.optimizer or 0) < kept * N + states * block
    assert total.seconds == pytest.approx(once * N / BANDWIDTH)
    assert total.bytes["dram"] >= once * N
    real, _ = watched(step_of(model=net(), inputs=torch.empty(8, 1000), **given))
    assert memory.peak == real.peak


def test_state_in_8_bits_has_a_scale_for_256_elements() -> None:
    found = step(dtype="bf16", optimizer="adamw", optimizer_dtype="int8")
    blocks = 3907  # 1,000,000 / 256 = 3906.25
    assert found.memory is not None
    # Two states of a byte, two scales of 4 B per block, and the values of 256 codes for each kind of state; each in
    # blocks of 512 B: 1,000,448, 15,872 and 1,024 B.
    assert found.memory.optimizer == 2 * (1_000_448 + 15_872 + 1_024)
    moved = 2 * N + 2 * 2 * N + 2 * 2 * (N + 4 * blocks) + 2 * 1024
    total = found.total("optimizer")
    assert total.bytes["dram"] == moved
    assert total.seconds == pytest.approx(moved / BANDWIDTH)
    # AdamW 13 and a root; each state decoded (1) and scaled again (3).
    assert total.flops == (13 + 1 + 2 * 4) * N
    assert found.coverage.uncounted == ()


def test_state_of_few_elements_stays_in_fp32() -> None:
    few = nn.Linear(63, 65, bias=False)  # 4,095 elements
    found = rl.estimate(few, inputs=torch.empty(2, 63), mode="train", optimizer="sgd", optimizer_dtype="int8")
    total = found.total("optimizer")
    assert total.bytes["dram"] == 4095 * 4 * 5
    assert total.flops == 6 * 4095
    many = nn.Linear(64, 64, bias=False)
    found = rl.estimate(many, inputs=torch.empty(2, 64), mode="train", optimizer="sgd", optimizer_dtype="int8")
    assert found.total("optimizer").bytes["dram"] == 4096 * (3 * 4 + 2 * 1) + 2 * 4 * 16 + 1024
    assert found.memory is not None
    assert found.memory.optimizer == 4096 + 512 + 1024


def test_masters_beside_state_in_8_bits_are_copied_to_the_parameters() -> None:
    total = step(dtype="bf16", optimizer="adamw", optimizer_dtype="int8", master_weights=True).total("optimizer")
    scales = 2 * 2 * 4 * 3907 + 2 * 1024
    assert total.seconds == pytest.approx((2 + 4 + 2 + 4 + 2 + 2) * N / BANDWIDTH + scales / BANDWIDTH, rel=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_masters_are_updated_as_torch_updates_fp32(optimizer: str) -> None:
    torch.manual_seed(0)
    halves = [nn.Parameter(torch.randn(5, 3, dtype=torch.bfloat16)) for _ in range(2)]
    whole = [nn.Parameter(half.detach().float()) for half in halves]
    ours, theirs = make_optimizer(optimizer, halves, master=True), make_optimizer(optimizer, whole)
    assert isinstance(ours, MixedOptimizer)
    assert theirs is not None
    for _ in range(3):
        for half, full in zip(halves, whole, strict=True):
            half.grad = torch.randn(5, 3, dtype=torch.bfloat16)
            full.grad = half.grad.float()
        ours.step()
        theirs.step()
    for half, full in zip(halves, whole, strict=True):
        torch.testing.assert_close(ours.state[half]["master"], full.detach())
        assert torch.equal(half, full.to(torch.bfloat16))


def test_state_of_the_type_of_the_parameters_is_torchs_own() -> None:
    parameter = nn.Parameter(torch.ones(3))
    assert type(make_optimizer("adam", [parameter], state="fp32")) is torch.optim.Adam
    assert isinstance(make_optimizer("adam", [parameter], state="bf16"), MixedOptimizer)


def test_an_explanation_tells_what_a_code_costs() -> None:
    found = step(dtype="bf16", optimizer="sgd", optimizer_dtype="int8")
    text = " ".join(rl.explain(found, path="(optimizer)").text.split())
    assert "blockwise_update_" in text
    assert "The search for a code is not counted." in text
    assert f"{(6 + 4) * N:,} FLOP" in text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"optimizer": "none", "master_weights": True}, "master_weights is about the state of an optimizer"),
        ({"fused": True, "optimizer_dtype": "fp32"}, "leave out fused or optimizer_dtype"),
        ({"optimizer_dtype": "fp8"}, "unknown optimizer_dtype 'fp8'; known: fp32, bf16, int8"),
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        Options(**options)


@pytest.mark.parametrize("dtype", ["fp32", "amp-bf16"])
def test_parameters_in_fp32_have_no_masters(dtype: str) -> None:
    with pytest.raises(InvalidValue, match="keeps copies of 16-bit parameters in fp32, and these are float32"):
        step(dtype=dtype, master_weights=True)


def test_other_modes_have_no_optimizer() -> None:
    with pytest.raises(InvalidValue, match="optimizer_dtype='int8' is about a training step, which mode 'decode'"):
        rl.estimate("hf:llama", mode="decode", optimizer_dtype="int8")


def test_state_in_8_bits_is_not_run() -> None:
    options = Options(optimizer_dtype="int8")
    with pytest.raises(InvalidValue, match="whose kernels rooflens counts and does not run"):
        Run(model="resnet18", mode="train", options=options).check_runs()
    with pytest.raises(InvalidValue, match="does not run"):
        rl.measure(net(), inputs=torch.ones(1, 1000), mode="train", optimizer_dtype="int8", device="cpu")
