"""On every model of the counting benchmark rooflens is the closed form, and the page shows the recorded results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks import counting
from benchmarks.counting_models import MODELS, Model
from benchmarks.counting_page import exact, page
from torch import nn

import rooflens as rl

PAGE = Path(__file__).parents[1] / "docs" / "benchmark-counting.md"
WITH_VALUES = ("experts",)  # its router decides by values


def built(model: Model) -> nn.Module:
    if model.name in WITH_VALUES:
        return model.build()
    with torch.device("meta"):
        return model.build()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_counts_are_the_closed_form(model: Model) -> None:
    module, inputs = built(model), model.inputs()
    step = rl.estimate(module, inputs=inputs, mode="train", optimizer="none")
    assert step.total("forward").macs == model.macs.forward
    assert step.total("backward").macs == model.macs.backward
    assert step.coverage.uncounted == ()
    if not model.training:
        assert rl.estimate(module, inputs=inputs).total("forward").macs == model.macs.forward


def test_the_models_are_many_and_their_names_differ() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS) >= 20


def test_every_cell_is_recorded_and_rooflens_is_exact() -> None:
    cells = json.loads(counting.RESULTS.read_text())["cells"]
    assert [counting.key_of(cell) for cell in cells] == counting.wanted()
    ours = [cell for cell in cells if cell["tool"] == "rooflens" and cell["phase"] != "whole"]
    assert len(ours) == 2 * len(MODELS)
    assert all(map(exact, ours))


def test_rooflens_is_a_hundred_times_faster_and_three_times_smaller_than_running_the_model() -> None:
    cells = json.loads(counting.RESULTS.read_text())["cells"]
    ours, theirs = ({c["tool"]: c for c in cells if c["phase"] == "whole"}[name] for name in ("rooflens", "torchinfo"))
    assert theirs["seconds"] / ours["seconds"] >= 100
    assert theirs["mb"] / ours["mb"] >= 3


def test_the_page_is_fresh() -> None:
    made = page(json.loads(counting.RESULTS.read_text()))
    assert PAGE.read_text() == made, "run benchmarks/counting.py --write docs/benchmark-counting.md"
