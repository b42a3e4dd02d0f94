"""Fake tensors of which small integers keep their values, and modules of fake tensors."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import rooflens as rl
from rooflens.models.fakes import usual_methods, without_memory
from rooflens.models.known_values import KnownValues, keep


def test_random_numbers_are_no_padding() -> None:
    with KnownValues():
        images = torch.randn(5, 3, 8, 8).view(5, 3, 64).to(torch.bfloat16)
        padding = (images == 0.0).sum(dim=(-1, -2)) == 3 * 64
        assert images[~padding].shape == (5, 3, 64)
        assert images[padding].shape == (0, 3, 64)


def test_computed_numbers_may_be_padding() -> None:
    with KnownValues():
        assert (torch.randn(8).relu() == 0.0).constant is None  # type: ignore[attr-defined]


def test_a_known_mask_tells_how_many_it_takes() -> None:
    with KnownValues():
        words = torch.arange(6).expand(2, 6)
        mask = (words >= 4).unsqueeze(-1).expand(2, 6, 10)
        states = torch.randn(2, 6, 10)
        assert states[mask].shape == (2 * 2 * 10,)
        assert states[mask[..., 0]].shape == (4, 10)
        states[mask] = 0.0


def test_values_of_real_tensors_are_kept_while_the_mode_is_on() -> None:
    known = KnownValues()
    with known:
        meta = torch.empty(3, dtype=torch.int64, device="meta")
    values = torch.tensor([3, 1, 2])
    with known:
        fake = keep(known, FakeTensor(known, meta, torch.device("cpu")), values)
        assert type(fake.constant) is torch.Tensor
        assert fake.tolist() == [3, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_modules_of_fake_tensors_are_converted_and_copied(dtype: torch.dtype) -> None:
    with torch.device("meta"):
        layer = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    known = KnownValues()
    with known, usual_methods(), torch.no_grad():
        without_memory(layer, known).to(dtype)
        assert layer[0].weight.dtype == layer[1].running_mean.dtype == dtype
        again = copy.deepcopy(layer)
        assert again[0].weight is not layer[0].weight
        assert again(torch.randn(2, 4, dtype=dtype)).dtype == dtype
        shared = [layer[0].weight] * 2
        first, second = copy.deepcopy(shared)
        assert first is second


class Converted(nn.Module):
    """Converts a layer in each step, and copies its result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer = self.layer.to(x.dtype)
        y: torch.Tensor = copy.deepcopy(self.layer(x.detach()).detach())
        return y


def test_a_step_that_converts_its_layers_is_counted() -> None:
    module = Converted()
    step = rl.estimate(module, inputs=torch.ones(4, 16))
    assert step.total().matmul_flops == 2 * 4 * 16 * 8
    copied = [record.call for record in step if record.call is not None and record.call.name == "clone"]
    assert [call.writes for call in copied if call is not None] == [4 * 8 * 4]
    assert type(module.layer.weight) is nn.Parameter


class Listed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = zip(*(x[:2, :2].long() % 2), strict=True)
        return x[rows, columns]


def test_numbers_in_lists_of_indices_run_on_the_cpu() -> None:
    step = rl.estimate(Listed(), inputs=torch.ones(4, 16))
    assert any("run on the CPU with values" in note for record in step for note in record.notes)
    assert any(record.call is not None and record.call.name == "index" for record in step)


def test_known_numbers_under_a_known_mask_stay_known() -> None:
    with KnownValues():
        numbers = torch.arange(12).reshape(3, 4)
        chosen = torch.nn.functional.pad(numbers, (0, 1), value=-100).reshape(-1)
        chosen = chosen[chosen != -100]
        assert chosen.tolist() == list(range(12))
        assert torch.argsort(-chosen).tolist() == list(range(11, -1, -1))
        assert torch.randn(12, 2)[chosen].shape == (12, 2)


def test_unknown_integers_under_a_known_mask_are_unknown() -> None:
    with KnownValues():
        unknown = torch.randn(2, 3).argmax(-1)
        found = unknown[torch.arange(2) > 0]
        assert found.shape == (1,)
        assert found.constant is None  # type: ignore[attr-defined]
