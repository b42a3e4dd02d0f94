"""Inputs of a step as the user made them: results of earlier operations, and dicts that are one argument."""

from __future__ import annotations

from functools import wraps

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError


def test_an_input_that_is_no_leaf_may_change_in_place() -> None:
    """5 rows meet 4 x 3 weights: 120 FLOP; backward has the gradients of weights and of the input, 120 each."""
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    inputs = torch.randn(5, 4, requires_grad=True).clone()
    done = rl.estimate(model, inputs=inputs, mode="train")
    assert (done.total("forward").matmul_flops, done.total("backward").matmul_flops) == (120, 240)
    assert inputs.grad_fn is not None
    assert (inputs < 0).any()


def test_an_input_that_is_no_leaf_is_measured_again_and_again() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    inputs = {"input": torch.randn(5, 4, requires_grad=True).clone()}
    assert rl.measure(model, inputs=inputs, mode="train", budget=0.01, isolated=False).total().measured_seconds


def test_a_leaf_stays_a_leaf() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    with pytest.raises(ModelError, match="a leaf Variable that requires grad"):
        rl.estimate(model, inputs=torch.randn(5, 4, requires_grad=True), mode="train")


class TakesDict(nn.Module):
    """One argument that is a dict."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["x"] + 1


def test_a_dict_that_is_one_argument_needs_a_tuple_around_it() -> None:
    x = torch.ones(3)
    with pytest.raises(InvalidValue, match=r"takes batch and not x; if the dict is one argument, give \(\{...\},\)"):
        rl.estimate(TakesDict(), inputs={"x": x})
    assert rl.estimate(TakesDict(), inputs=({"x": x},)).total().flops == 3


def test_a_dict_with_the_name_of_the_argument_is_told_the_same() -> None:
    x = torch.ones(3)
    for run in (rl.estimate, rl.measure):
        with pytest.raises(ModelError, match=r"if the dict is one argument, give \(\{...\},\)"):
            run(TakesDict(), inputs={"batch": x})


def test_a_decorator_may_take_other_names() -> None:
    def forward(self: nn.Module, **given: torch.Tensor) -> torch.Tensor:
        return given["x"] + 1

    renamed = type("Renamed", (nn.Module,), {"forward": wraps(TakesDict.forward)(forward)})
    assert rl.estimate(renamed(), inputs={"x": torch.ones(3)}).total().flops == 3


def test_a_hook_may_take_other_names() -> None:
    model = TakesDict()
    model.register_forward_pre_hook(lambda module, args, kwargs: ((kwargs,), {}), with_kwargs=True)
    assert rl.estimate(model, inputs={"x": torch.ones(3)}).total().flops == 3
