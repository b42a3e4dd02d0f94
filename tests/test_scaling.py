"""Several devices beside one: arithmetic by hand, and two processes on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError
from rooflens.records import Scaling, Timing

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        if len(x) > 4:
            raise NotImplementedError("no kernel for this")
        return self.layer(x)

def build(batch):
    return Model(), torch.randn(batch, 8)
"""


def timing(*samples: float) -> Timing:
    return Timing(samples=samples, origin="monotonic")


def test_scaling_by_hand() -> None:
    found = Scaling(
        devices=4, alone=timing(0.9), together=timing(1.0), gradient_bytes=100_000_000, reduce=timing(0.002)
    )
    assert found.efficiency == pytest.approx(0.9)  # 4 / 1.0 over 4 x 1 / 0.9
    assert found.bus_bytes == 150_000_000  # each of 4 parts goes round 3 of 4 devices twice: 2 x 3 / 4
    assert found.bus_bandwidth == pytest.approx(75e9)  # 0.15 GB in 2 ms
    assert found.exposed == pytest.approx(0.1)
    # A link of 600 GB/s in both directions together sends 300 GB/s: 0.15 GB take 0.5 ms.
    assert found.least_reduce(600e9) == pytest.approx(0.5e-3)


def test_two_processes_train_together(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    found = rl.measure(f"{path}:build", batch=[2, 8], mode="train", gpus=2, device="cpu", budget=0.1)
    measured = found.where(source="measure")
    assert [record.phase for record in measured] == ["forward", "backward", "optimizer", None]
    assert [case.options for case in measured.cases] == [(("gpus", 2),)]
    (scaling,) = [record.scaling for record in measured if record.scaling is not None]
    assert scaling.devices == 2
    assert scaling.gradient_bytes == (8 * 4 + 4) * 4
    assert len(scaling.together.samples) == len(scaling.reduce.samples)
    (failure,) = found.failures
    assert (failure.case.batch, failure.kind) == (8, "unsupported")
    assert "no kernel for this" in failure.message
    text = rl.table(found)
    assert "Scaling" in text
    assert "144 B" in text  # of gradients


def test_what_several_devices_are_not_for() -> None:
    with pytest.raises(InvalidValue, match="give mode='train'"):
        rl.measure("alexnet", gpus=2, device="cpu")
    with pytest.raises(InvalidValue, match="name the model"):
        rl.measure(torch.nn.Linear(2, 2), inputs=torch.ones(1, 2), mode="train", gpus=2, device="cpu")
    with pytest.raises(InvalidValue, match="gpus is 0; it has to be a whole number of at least 1"):
        rl.measure("alexnet", gpus=0, mode="train", device="cpu")


def test_a_model_that_never_runs_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    with pytest.raises(ModelError, match=r"no kernel for this \(unsupported"):
        rl.measure(f"{path}:build", batch=8, mode="train", gpus=2, device="cpu", budget=0.1)
