"""Cheap operations that models call on the side have formulas: no total is a lower bound because of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rooflens as rl
from rooflens.results import Total

X, Y = torch.ones(4, 6), torch.ones(4, 6)
"""24 elements of 4 bytes."""


class Calls(nn.Module):
    """One call."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call

    def forward(self, *inputs: Tensor) -> Any:
        return self._call(*inputs)


def total(call: Callable[..., Any], *inputs: Tensor) -> Total:
    counted = rl.estimate(Calls(call), inputs=inputs)
    assert counted.total().missing == frozenset()
    return counted.total()


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (torch.fmax, 24),
        (torch.hypot, 4 * 24),  # two squares, a sum, a root
        (torch.logaddexp, 7 * 24),
        (torch.dist, 3 * 24 + 1),
        (lambda x, _: torch.isposinf(x), 24),
        (lambda x, _: torch.nan_to_num(x), 3 * 24),
        (lambda x, _: torch.frac(x), 2 * 24),
        (lambda x, _: torch.exp2(x), 24),
        (lambda x, _: torch.special.erfc(x) + torch.erfinv(x), 3 * 24),
        (lambda x, _: torch.lgamma(x), 24),
        (lambda x, _: torch.sinc(x), 3 * 24),
        (lambda x, _: torch.signbit(x), 0),
        (lambda x, _: torch.cummax(x, 1), 24),
        (lambda x, _: torch.logcumsumexp(x, 1), 7 * 24),
        (lambda x, _: torch.count_nonzero(x), 24),
        (lambda x, _: torch.multinomial(x, 1), 2 * 24),
        (lambda x, _: torch.median(x), 0),
        (lambda x, _: torch.bucketize(x, torch.ones(3)), 0),
        (lambda x, _: torch.diag_embed(x), 0),
        (lambda x, _: torch._is_all_true(x > 0), 24),  # the comparison
        (lambda x, _: torch._is_any_true(x > 0), 24),
        (torch.isclose, None),
    ],
)
def test_cheap_operations_have_formulas(call: Callable[..., Any], flops: int | None) -> None:
    found = total(call, X, Y)
    assert flops is None or found.flops == flops


def test_a_trace_reads_the_diagonal() -> None:
    """Four elements of 4 bytes are read, and one is written."""
    found = total(torch.trace, X)
    assert (found.flops, found.bytes["dram"]) == (4, 4 * 4 + 4)


def test_checks_of_values_that_a_module_makes() -> None:
    """What decides by values runs on the CPU: a comparison of all, a truth value, an assertion."""

    def checked(x: Tensor, y: Tensor) -> Tensor:
        if not torch.allclose(x, y) or not torch.equal(x, y) or torch.isnan(x).any().item():
            raise ValueError("they differ")
        assert torch._is_all_true(torch.isfinite(x)).item()
        assert torch.is_nonzero(x.sum())
        torch._assert_async(x.sum() > 0)
        return x + y

    found = total(checked, X, Y)
    assert found.flops is not None
    # allclose 6, equal 1, isnan 1 per element, and the sum at the end.
    assert found.flops >= (6 + 1 + 1 + 1) * 24
