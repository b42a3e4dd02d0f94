"""The estimate beside a measurement is made first: what it refuses costs none. A missing rate refuses nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.cli.main import main
from rooflens.errors import ModelError

WORDS = ("measure", "squeezenet1_1", "--img-size", "32", "--device", "cpu", "--budget", "0.1", "--dtype", "bf16")


def test_a_model_that_cannot_be_estimated_is_told_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from rooflens.sources import measure

    class Refused(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    monkeypatch.setattr(measure, "records", lambda *_: pytest.fail("the model was run"))
    with pytest.raises(ModelError, match="ValueError") as caught:
        rl.measure(Refused(4, 4), inputs=torch.ones(2, 4), device="cpu", estimate=True)
    assert "estimate=False" in caught.value.__notes__[0]


def test_the_command_measures_without_a_rate_and_says_why_there_is_no_bound(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*WORDS, "--roof", "v100-sxm2-16gb"])
    shown = capsys.readouterr().out
    assert "measured" in shown
    assert "no bf16: device" in shown
    with pytest.raises(SystemExit, match="0"):
        main([*WORDS, "--roof", "v100-sxm2-16gb", "--no-estimate"])
    assert "no bf16" not in capsys.readouterr().out
