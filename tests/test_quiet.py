"""What transformers and torch log while a step is traced."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import torch

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.models.blueprint import Blueprint
from rooflens.models.construction import build
from rooflens.models.step import sum_of_outputs

LOG = logging.getLogger("transformers.models.some")
HINTS = (
    "`causal_conv1d_fn` is falling back to its reference PyTorch implementation because `x` is not installed.",
    "CUDA-fused xIELU not available (No module named 'xielu') - falling back to a Python version.\nFor CUDA xIELU, ...",
    "The fast path is not available because one of `(selective_state_update)` is None.",
)


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What the handler of transformers writes."""
    log, text = logging.getLogger("transformers"), io.StringIO()
    handler = logging.StreamHandler(text)
    log.addHandler(handler)
    yield text
    log.removeHandler(handler)


class Talking(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for hint in HINTS:
            LOG.warning(hint)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for hint in HINTS:
            LOG.warning(hint)
        LOG.warning("the last layer is forced to full attention")
        LOG.error(HINTS[0])
        return x * 2


def test_hints_of_kernels_mean_nothing_for_a_trace(said: io.StringIO) -> None:
    rl.estimate(build(Blueprint(name="talking", build=Talking, loss=sum_of_outputs), "meta"), inputs=torch.ones(3))
    assert said.getvalue().splitlines() == ["the last layer is forced to full attention", HINTS[0]]
    LOG.warning(HINTS[2])
    assert said.getvalue().splitlines()[-1] == HINTS[2]


def test_a_failing_trace_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError):
        rl.estimate(torch.nn.Linear(3, 4), inputs=torch.ones(2, 5))
    assert capfd.readouterr().err == ""
