"""A step without any operation does no work, which is known."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.records import Phase


@pytest.mark.parametrize("module", [nn.Flatten(), nn.Identity(), nn.Unflatten(1, (2, 2)), nn.Sequential()])
@pytest.mark.parametrize("phase", [None, "forward"])
def test_views_alone_are_zero_and_not_unknown(module: nn.Module, phase: Phase | None) -> None:
    total = rl.estimate(module, inputs=torch.randn(3, 4), device="t4").total(phase)
    assert (total.flops, total.matmul_flops, total.macs, total.seconds) == (0, 0, 0, 0)
    assert total.bytes == {"dram": 0}
    assert total.intensity is None  # nothing over nothing
    assert total.coverage.operations == 0


def test_a_table_shows_the_zero() -> None:
    records = rl.estimate(nn.Flatten(), inputs=torch.randn(3, 4), device="t4")
    assert re.search(r"^ +0 +0 +0 +0 +0 B +0 s +0 s$", str(rl.table(records)), re.MULTILINE)


def test_a_phase_that_does_not_run_stays_unknown() -> None:
    assert rl.estimate(nn.Flatten(), inputs=torch.randn(3, 4)).total("backward").flops is None


def test_an_empty_set_stays_unknown() -> None:
    records = rl.estimate(nn.Linear(4, 3), inputs=torch.randn(3, 4))
    assert records.sum([], None).flops is None


class Viewed(nn.Module):
    """A view by a method."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 2)


def test_a_module_of_views_of_its_own_is_zero() -> None:
    assert rl.estimate(Viewed(), inputs=torch.randn(4)).total().flops == 0


def test_an_explanation_says_that_there_is_nothing() -> None:
    with pytest.raises(InvalidValue, match="nothing to explain"):
        rl.explain(rl.estimate(nn.Flatten(), inputs=torch.randn(3, 4)))
