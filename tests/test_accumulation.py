"""`accumulation_steps`: work, memory and rates of several micro-batches, by hand and as a real step has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.real_steps import step_of, watched
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.models import eager
from rooflens.records import Case
from rooflens.timing import Policy, sample

BATCH, INS, OUTS, STEPS = 5, 4, 3, 4


def layer() -> nn.Linear:
    return nn.Linear(INS, OUTS, bias=False)


def estimated(module: nn.Module, batch: int, ins: int, **options: Any) -> rl.RecordSet:
    return rl.estimate(module, inputs=torch.ones(batch, ins), mode="train", **options)


def test_forward_and_backward_run_for_each_micro_batch_and_the_optimizer_once() -> None:
    one, four = (estimated(layer(), BATCH, INS, accumulation_steps=n) for n in (1, STEPS))
    for phase in ("forward", "backward"):
        assert four.total(phase).macs == STEPS * BATCH * INS * OUTS
    assert four.total("optimizer").bytes == one.total("optimizer").bytes
    # A later gradient is added to the first one: both are read, the sum is written; one addition for each.
    (added,) = [r for r in four if r.phase == "backward" and r.name == "add_"]
    assert added.calls == STEPS - 1
    assert added.work is not None
    assert added.work.total_flops == INS * OUTS
    assert added.work.bytes == {"dram": 3 * 4 * INS * OUTS}
    # The mean over micro-batches is a division of each loss.
    assert sum(r.calls for r in four if r.name == "div" and r.phase == "forward") == STEPS
    calls = next(r.host_calls for r in four if r.host_calls)
    assert {c.phase: c.module_calls for c in calls if c.path == ""} == {"forward": STEPS, "backward": 0}


def test_a_real_step_runs_the_same_operations() -> None:
    options = {"accumulation_steps": STEPS, "optimizer": "none"}
    ours: dict[str, int] = {}
    for record in estimated(nn.Sequential(layer(), nn.ReLU(), nn.Linear(OUTS, 2)), BATCH, INS, **options):
        ours[record.name] = ours.get(record.name, 0) + record.calls
    given = {"model": nn.Sequential(layer(), nn.ReLU(), nn.Linear(OUTS, 2)), "inputs": torch.ones(BATCH, INS)}
    _, theirs = watched(step_of(**given, **options))
    for name in ("mm", "addmm", "relu", "threshold_backward", "add_", "sum", "div"):
        assert ours[name] == theirs[name] > 0, name


WIDE = 256


def wide() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDE, WIDE, bias=False), nn.ReLU(), nn.Linear(WIDE, WIDE, bias=False))


@pytest.mark.parametrize("optimizer", ["none", "sgd", "adam"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_memory_is_that_of_a_real_step(steps: int, optimizer: str) -> None:
    options = {"accumulation_steps": steps, "optimizer": optimizer}
    memory = estimated(wide(), 64, WIDE, **options).memory
    real, _ = watched(step_of(model=wide(), inputs=torch.ones(64, WIDE), **options))
    assert memory is not None
    state = {"none": 0, "sgd": 1, "adam": 2}[optimizer] * 2 * 4 * WIDE * WIDE
    assert memory.peak == real.peak
    assert memory.optimizer == state


def test_gradients_live_across_micro_batches() -> None:
    # The peak comes where the second layer's new gradient is made while both old ones are there (256 KiB each). The
    # input, ReLU's output, the model's output and its gradient are 64 KiB each; loss, mean and its gradient are small.
    memory = estimated(wide(), 64, WIDE, accumulation_steps=2, optimizer="none").memory
    assert memory is not None
    assert memory.gradients == 512 * 1024
    assert memory.peak == (512 + 512 + 256 + 4 * 64) * 1024 + 3 * 512


def test_samples_are_those_of_all_micro_batches() -> None:
    case = Case(model="m", batch=8, mode="train", options=(("accumulation_steps", 4), ("gpus", 2)))
    assert case.samples == 64
    assert Case(model="m", batch=8, options=(("accumulation_steps", "many"),)).samples == 8
    assert Case(model="m").samples is None
    found = rl.estimate("squeezenet1_1", batch=2, img_size=64, mode="train", accumulation_steps=3, device="t4")
    (row,) = [line for line in rl.table(found, format="csv").splitlines() if ",step," in line]
    expected = found.total().predicted_seconds
    assert expected is not None
    assert f"{6 / expected}" in row
    assert "adds up the gradients of 3 micro-batches of 2 samples" in rl.table(found)


def test_a_measured_phase_is_the_sum_of_its_parts() -> None:
    step = step_of(model=layer(), inputs=torch.ones(BATCH, INS), accumulation_steps=2)
    run = eager(step, "cpu")
    assert run.phases == ("forward", "backward", "forward", "backward", "optimizer")

    class Clock:
        name = "monotonic"

        def start(self) -> None:
            self.marks = 0

        def mark(self) -> None:
            self.marks += 1

        def seconds(self) -> list[float]:
            return [10.0**n for n in range(self.marks)]

    policy = Policy(warmup=0, min_samples=2, max_samples=2)
    timings = sample(run.once, run.phases, Clock(), policy)  # type: ignore[arg-type]
    assert {phase: timing.samples for phase, timing in timings.items()} == {
        "forward": (101.0, 101.0),
        "backward": (1010.0, 1010.0),
        "optimizer": (10000.0, 10000.0),
    }


def test_gradients_are_the_mean_of_the_micro_batches() -> None:
    def gradient(steps: int) -> torch.Tensor:
        torch.manual_seed(0)
        step = step_of(model=layer(), inputs=torch.ones(BATCH, INS), accumulation_steps=steps, optimizer="none")
        eager(step, "cpu").once(lambda: None)
        return next(step.module.parameters()).grad  # type: ignore[return-value]

    torch.testing.assert_close(gradient(4), gradient(1))


def test_inputs_that_are_results_and_change_in_place_are_new_for_each_micro_batch() -> None:
    given = torch.ones(BATCH, INS, requires_grad=True).clone()
    module = nn.Sequential(nn.ReLU(inplace=True), layer())
    found = rl.estimate(module, inputs=given, mode="train", accumulation_steps=3, optimizer="none")
    assert found.total("forward").macs == 3 * BATCH * INS * OUTS
    assert found.total("backward").macs == 3 * 2 * BATCH * INS * OUTS


@pytest.mark.parametrize("mode", ["inference", "decode"])
def test_other_modes_have_no_micro_batches(mode: str) -> None:
    with pytest.raises(InvalidValue, match=f"is about a training step, which mode '{mode}' is not"):
        rl.estimate("hf:llama", mode=mode, accumulation_steps=2)


def test_a_number_below_one_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="accumulation_steps is 0; it has to be a whole number of at least 1"):
        rl.estimate("resnet18", mode="train", accumulation_steps=0)
