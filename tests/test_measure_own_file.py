"""A file of the user's own as the model: what its code does costs its own batch, in an estimate or a profile too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.cli.main import main
from rooflens.errors import InvalidValue, ModelError
from rooflens.records import Case, Record, Timing
from rooflens.sources.measure import failure

MODEL = """
import os, signal
import torch
from torch import nn
from torch._subclasses import FakeTensor

class Model(nn.Linear):
    def forward(self, x):
        if len(x) == 2 and (isinstance(x, FakeTensor) or torch.autograd._profiler_enabled()):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

def build(batch):
    return Model(4, 4), torch.randn(batch, 4)
"""


def test_a_crash_while_it_is_traced_or_profiled_costs_no_time_that_was_taken(tmp_path: Path) -> None:
    path, kept = tmp_path / "model.py", tmp_path / "kept.jsonl"
    path.write_text(MODEL)
    found = rl.measure(f"{path}:build", batch=[1, 2], device="cpu", budget=0.05, estimate=True, profile=True, save=kept)
    # Batch 2 dies twice: its estimate has nothing to show, its measurement all but the profile.
    assert [r.case.batch for r in found if r.source == "measure" and r.timing is not None] == [1, 2]
    assert {r.case.batch for r in found if r.source == "estimate"} == {1}
    assert {r.case.batch for r in found if r.source == "profile"} == {1}
    lost = [(each.source, each.case.batch, each.kind, each.stage) for each in found.failures]
    assert lost == [("estimate", 2, "crash", "trace"), ("measure", 2, "crash", "profile")]
    read = rl.read(kept)
    assert (read.records, read.failures) == (found.records, found.failures)


def test_a_profile_that_fails_leaves_the_times() -> None:
    class Shy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch._C._autograd._profiler_enabled():
                raise ValueError("I am watched")
            return x + 1

    found = rl.measure(Shy(), inputs=torch.ones(2), device="cpu", budget=0.02, profile=True)
    assert [record.phase for record in found if record.timing is not None] == ["forward"]
    assert [(each.stage, each.message) for each in found.failures] == [("profile", "Shy: ValueError: I am watched")]


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("could not create a primitive", "out of memory"),  # oneDNN, under a memory limit
        ("could not execute a primitive", "out of memory"),
        ("could not create a primitive descriptor for the LSTM forward propagation", "unsupported"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes", "out of memory"),
        ("shape '[3]' is invalid for input of size 4", "error"),
    ],
)
def test_what_libraries_say_of_memory_is_told_from_other_errors(says: str, kind: str) -> None:
    error = ModelError("net")
    error.__cause__ = RuntimeError(says)
    assert failure(Case(model="net"), error, "forward").kind == kind


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"budget": "3"}, "budget is '3'; give a number of seconds"),
        ({"budget": math.inf}, "cannot sample"),
        ({"limit": "60"}, "limit is '60'; give a number of seconds"),
        ({"limit": math.nan}, "a time limit of nan s leaves no time"),
        ({"gpus": 1.5}, "gpus is 1.5; it has to be a whole number of at least 1"),
        ({"gpus": "2"}, "gpus is '2'; it has to be a whole number of at least 1"),
        ({"roof": 3}, "roof is 3; give a name, a device file, or a Device"),
    ],
)
def test_what_is_no_number_and_no_device_is_said_before_anything_runs(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        rl.measure("alexnet", **({"device": "cpu"} | words))


@pytest.mark.parametrize("budget", [math.inf, math.nan, 0.5, "90"])
def test_a_calibration_has_an_end(budget: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="a calibration takes at least 1 s, and has an end"):
        rl.calibrate("cpu", budget=budget, output=tmp_path / "here.toml")


@pytest.mark.parametrize("names_a_record_file", [True, False])
def test_an_interrupt_shows_what_was_measured(
    names_a_record_file: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = Record(
        case=Case(model="net", batch=2),
        source="measure",
        scope="model",
        phase="forward",
        timing=Timing(samples=(0.25,), origin="monotonic"),
    )

    def interrupted(model: str, *, save: Path, **_: object) -> rl.RecordSet:
        rl.RecordSet([done]).save(save)
        raise KeyboardInterrupt

    monkeypatch.setattr("rooflens.measure", interrupted)
    table, kept = tmp_path / "run.csv", tmp_path / "run.jsonl"
    outputs = ["-o", str(table), *(["-o", str(kept)] if names_a_record_file else [])]
    with pytest.raises(SystemExit, match="1"):
        main(["measure", "net", "--device", "cpu", *outputs])
    shown = capsys.readouterr()
    assert "250.0 ms" in shown.out
    assert "interrupted: what follows is what was measured until then" in shown.err
    assert "0.25" in table.read_text()
    assert kept.exists() is names_a_record_file
