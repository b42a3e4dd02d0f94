"""The estimate beside a measurement is made first: what it refuses costs no measurement."""

from __future__ import annotations

import pytest

import rooflens as rl
from rooflens.cli.main import main
from rooflens.errors import MissingCeiling

WORDS = ("measure", "squeezenet1_1", "--img-size", "32", "--device", "cpu", "--budget", "0.1", "--dtype", "bf16")


def test_a_missing_ceiling_is_told_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from rooflens.sources import measure

    monkeypatch.setattr(measure, "records", lambda *_: pytest.fail("the model was run"))
    with pytest.raises(MissingCeiling, match=r"matmul\.bf16") as caught:
        rl.measure("squeezenet1_1", device="cpu", roof="v100-sxm2-16gb", dtype="bf16", estimate=True)
    assert "estimate=False" in caught.value.__notes__[0]


def test_the_command_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        main([*WORDS, "--roof", "v100-sxm2-16gb"])
    assert "leave it out with estimate=False (--no-estimate)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main([*WORDS, "--roof", "v100-sxm2-16gb", "--no-estimate"])
    assert "measured" in capsys.readouterr().out
