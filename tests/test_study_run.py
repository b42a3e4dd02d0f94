"""Studies that are really run: estimates in this process and in workers, measurements, files that were recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts import killed_here
from tests.study_samples import written

import rooflens as rl
from rooflens.api.studies import run_study, study_records, study_status, study_verdicts
from rooflens.cli import main
from rooflens.errors import InvalidValue, StudyFileError
from rooflens.machine import Machine
from rooflens.progress import Progress
from rooflens.records import Device, RecordFile
from rooflens.results import join
from rooflens.running import cells
from rooflens.running.cells import Estimates
from rooflens.running.estimating import estimable, estimated, estimated_here
from rooflens.running.studies import open_study, run_cells
from rooflens.runs.run import Request, Run
from rooflens.study import CellNews, Status, StudyFolder
from rooflens.study.status_text import status_text

MODEL = """\
import os, time
import torch


class Sleeps(torch.nn.Module):
    def forward(self, x):
        time.sleep(60)
        return x


class Dies(torch.nn.Module):
    def forward(self, x):
        os._exit(7)


def build(batch=1):
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)), torch.zeros(batch, 64)


def sleeps():
    return Sleeps(), torch.zeros(1, 4)


def dies():
    return Dies(), torch.zeros(1, 4)


def fails():
    raise ValueError("no such thing")
"""
ESTIMATES = """\
title = "Tiny"
models = ["tiny.py:build"]
batches = [1, 8]
modes = ["inference", "train"]
devices = ["t4", "a100-sxm4-40gb", "p100-pcie-16gb"]
"""


def study(folder: Path, text: str = ESTIMATES) -> Path:
    (folder / "tiny.py").write_text(MODEL)
    return written(folder, text)


def same(found: rl.RecordSet, right: rl.RecordSet, model: str) -> bool:
    """Whether records are the same, where the one set calls the model by its path."""
    named = [replace(record, case=replace(record.case, model=model)) for record in right]
    return list(found) == named


@pytest.mark.parametrize("jobs", [0, 2])
def test_the_records_of_a_cell_are_those_of_an_estimate(tmp_path: Path, jobs: int) -> None:
    steps: list[CellNews] = []
    status = run_study(study(tmp_path), tmp_path / "out", jobs=jobs, progress=steps.append)
    assert status.complete
    assert sum(step.what == "done" for step in steps) == 12
    for cell, contents in StudyFolder.open(tmp_path / "out").contents().cells:
        case = cell.case
        run = Run(model=str(tmp_path / "tiny.py:build"), batch=case.batch, mode=case.mode)
        right = estimated([estimable(Request.of_run(run))], [rl.device(str(case.device))])  # here, where it is fast
        assert same(rl.RecordSet(contents.records), right, "tiny.py:build")
        assert contents.devices == right.devices
        assert contents.environment is not None
    assert len(study_records(tmp_path / "out").cases) == 12


def test_a_step_is_traced_once_for_all_devices(tmp_path: Path) -> None:
    folder, _ = StudyFolder.begin(tmp_path / "out", study(tmp_path))
    calls: list[tuple[int | None, int]] = []

    def counted(run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordFile:
        calls.append((run.batch, len(devices)))
        return estimated_here(run, devices, progress)

    estimates = Estimates(folder.home, folder.cells, counted)
    files = [estimates(cell, lambda share, text: None) for cell in folder.cells]
    assert calls == [(1, 3), (8, 3), (1, 3), (8, 3)]  # of two modes
    assert all(file.records for file in files)


@pytest.mark.parametrize("devices", [("t4", "k80", "a100-sxm4-40gb"), ("t4",)])
@pytest.mark.parametrize("jobs", [0, 1])
def test_cells_of_a_device_without_the_dtype_are_skipped_with_the_reason(
    tmp_path: Path, devices: tuple[str, ...], jobs: int
) -> None:
    # Neither a T4 nor a K80 has bf16 products.
    text = f'title = "T"\nmodels = ["tiny.py:build"]\ndtypes = ["bf16"]\ndevices = {json.dumps(devices)}\n'
    status = run_study(study(tmp_path, text), tmp_path / "out", jobs=jobs)
    skipped = {str(cell.case.device): status.failures[cell.key] for cell in status.cells("skipped")}
    assert status.complete
    assert [cell.case.device for cell in status.cells("done")] == list(devices[2:])
    assert len(skipped) == len(devices[:2])
    assert all(failure.reason == "no bf16" for failure in skipped.values())
    assert all(f"device {name!r} has no ceiling for 'matmul.bf16'" in skipped[name].message for name in skipped)
    assert f"skipped:\n  estimate tiny.py:build bf16 inference on {next(iter(skipped))}: no bf16" in status_text(status)
    folder = StudyFolder.open(tmp_path / "out")
    assert not any(folder.wants(cell, retry=False) for cell in folder.cells)
    assert sum(folder.wants(cell, retry=True) for cell in folder.cells) == len(skipped)


def test_a_cell_that_hangs_crashes_or_fails_costs_itself(tmp_path: Path) -> None:
    names = ["tiny.py:sleeps", "tiny.py:dies", "tiny.py:fails", "tiny.py:build", "none.py:build"]
    text = f'title = "T"\nmodels = {json.dumps(names)}\n[estimate]\nlimit = 8\n'
    status = run_study(study(tmp_path, text), tmp_path / "out")
    assert [cell.case.model for cell in status.cells("done")] == ["tiny.py:build"]
    kinds = {cell.case.model: status.failures[cell.key].kind for cell in status.cells("failed")}
    assert kinds == {
        "tiny.py:sleeps": "timeout", "tiny.py:dies": "crash", "tiny.py:fails": "error", "none.py:build": "error",
    }  # fmt: skip


def test_cells_are_measured_on_this_machine(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = ["tiny.py:build", "tiny.py:dies"]\nsources = ["measure"]\n'
    text += 'devices = ["cpu", "h100-sxm"]\n[measure]\nbudget = 0.1\n[options]\nchannels_last = false\n'
    status = run_study(study(tmp_path, text), tmp_path / "out")
    assert (status.count("done"), status.count("failed"), status.count("left")) == (1, 1, 2)
    assert status.left_by_device() == {"h100-sxm5-80gb": 2}
    records = study_records(tmp_path / "out")
    (case,) = records.cases
    assert (case.model, case.batch, case.dtype) == ("tiny.py:build", 1, "fp32")
    assert records.total().measured_seconds is not None
    (failure,) = records.failures
    assert (failure.kind, failure.case.model) == ("crash", "tiny.py:dies")


def test_a_machine_that_the_catalogue_does_not_know_has_estimates_without_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Machine(where="cpu", title="Toy CPU", cards=(), known=None, stored=tmp_path / "none.toml", device=None)
    monkeypatch.setattr(cells, "this_machine", lambda *_: unknown)
    text = 'title = "T"\nmodels = ["alexnet"]\ndevices = ["cpu", "t4"]\n'
    status = run_study(written(tmp_path, text), tmp_path / "out", jobs=0)
    assert (status.count("done"), status.count("failed")) == (2, 0)
    estimates = {item.case.device: item.total() for item in join(study_records(tmp_path / "out"))}
    assert {device: total and total.seconds is not None for device, total in estimates.items()} == {
        None: False,
        "tesla-t4": True,
    }
    here, there = estimates[None], estimates["tesla-t4"]
    assert here is not None
    assert there is not None
    assert here.flops == there.flops


def test_what_makes_no_sense_here_is_a_failure(tmp_path: Path) -> None:
    text = 'title = "T"\nmodels = ["tiny.py:build"]\nsources = ["measure"]\ndevices = ["cpu"]\ndtypes = ["tf32"]\n'
    status = run_study(study(tmp_path, text), tmp_path / "out")
    assert [failure.message for failure in status.failures.values()] == ["a CPU has no TF32; measure fp32 or bf16"]


def test_files_that_were_recorded_are_read(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    rl.estimate(str(Path(study(tmp_path)).parent / "tiny.py:build")).save(tmp_path / "old" / "estimate.jsonl")
    (tmp_path / "old" / "broken.csv").write_text("what is this?\n")
    shutil.copy(next((Path(__file__).parent / "data" / "ncu").glob("*.csv")), tmp_path / "old" / "counted.csv")
    text = 'title = "T"\n[[recorded]]\nfiles = ["old/estimate.jsonl", "old/broken.csv"]\n'
    text += '[[recorded]]\nfiles = "old/counted.csv"\nmodel = "resnet18"\nbatch = 4\ndtype = "tf32"\ndevice = "t4"\n'
    status = run_study(written(tmp_path, text), tmp_path / "out")
    assert [cell.file for cell in status.cells("failed")] == ["old/broken.csv"]
    records = study_records(tmp_path / "out")
    assert [case for case in records.cases if case.model == "resnet18"] == [
        rl.Case(model="resnet18", batch=4, dtype="tf32", device="tesla-t4")
    ]
    assert set(records.sources) == {"estimate", "counters"}


def test_parts_of_a_study_by_their_keys(tmp_path: Path) -> None:
    folder, change = open_study(study(tmp_path), tmp_path / "out")
    assert change is None
    keys = [cell.key for cell in folder.cells]
    assert run_cells(str(tmp_path / "out"), keys[:3], jobs=0) == {
        "done": 3,
        "skipped": 0,
        "failed": 0,
        "running": 0,
        "left": 0,
    }
    assert study_status(tmp_path / "out").count("done") == 3
    assert run_cells(tmp_path / "out", keys[2:5], jobs=0)["done"] == 3
    with pytest.raises(InvalidValue, match="has no cell 'no'"):
        run_cells(tmp_path / "out", ["no"])


def test_some_sources_and_devices(tmp_path: Path) -> None:
    path = study(tmp_path, ESTIMATES + 'sources = ["estimate", "measure"]\n')
    status = run_study(path, tmp_path / "out", jobs=0, sources=["estimate"], devices=["T4"])
    assert {(cell.source, cell.case.device) for cell in status.cells("done")} == {("estimate", "tesla-t4")}
    assert status.count("done") == 4
    with pytest.raises(InvalidValue, match="the study has no device 't44'; it has: a100-sxm4-40gb"):
        run_study(path, tmp_path / "out", devices=["t44"])
    with pytest.raises(InvalidValue, match="the study has no source 'replay'; it has: estimate, measure"):
        run_study(path, tmp_path / "out", sources=["replay"])


def test_a_model_that_nobody_knows_is_told_before_anything_runs(tmp_path: Path) -> None:
    path = written(tmp_path, 'title = "T"\nmodels = [\n  "alexnet",\n  "resnet81",\n]\n')
    with pytest.raises(StudyFileError, match=r"study.toml, line 4: models: unknown model 'resnet81'; did you mean"):
        run_study(path, tmp_path / "out")
    assert list((tmp_path / "out" / "cells").iterdir()) == []


def test_a_hypothesis_is_judged(tmp_path: Path) -> None:
    text = ESTIMATES + '[[hypothesis]]\ntext = "An A100 is faster than a T4"\nquantity = "time"\n'
    text += 'left = {device = "a100-sxm4-40gb"}\nrelation = "<"\nright = {device = "t4"}\n'
    run_study(study(tmp_path, text), tmp_path / "out", jobs=0)
    (verdict,) = study_verdicts(tmp_path / "out")  # so small a model waits for the host on both, so bands overlap
    assert (verdict.outcome, verdict.basis, len(verdict.pairs)) == ("not decidable", "estimated", 4)


def test_a_study_that_is_killed(tmp_path: Path) -> None:
    # The whole of it, 200 cells and 25 kills, is scripts/killed_here.py.
    found = killed_here.trial(tmp_path, batches=1, models=1, kills=2, seed=1, jobs=1)
    assert found.said == ()
    assert len(found.done) == 2


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_failure_names_files_as_the_study_does(tmp_path: Path, jobs: int) -> None:
    text = 'title = "T"\nmodels = ["tiny.py:fails"]\nsources = ["estimate", "measure"]\n[measure]\ndevices = "cpu"\n'
    path = study(tmp_path, text)
    failures = run_study(path, tmp_path / "out", jobs=jobs).failures.values()
    assert [failure.kind for failure in failures] == ["error", "error"]
    assert all("tiny.py" in failure.message and str(tmp_path) not in failure.message for failure in failures)


class TestCommand:
    @pytest.fixture
    def run(self, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
        def called(*words: object) -> tuple[int, str, str]:
            with pytest.raises(SystemExit) as end:
                main([str(word) for word in ("study", *words)])
            out, err = capsys.readouterr()
            assert isinstance(end.value.code, int)
            return end.value.code, out, err

        return called

    def test_run_status_resume(self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        code, out, err = run("run", study(tmp_path), "--device", "tesla-t4")
        assert code == 0
        assert out.startswith("12 cells: 4 done, 0 failed, 0 running, 8 left\n")
        assert " 1/12  done" in err
        assert err.splitlines()[-1] == "records are in out/study"
        code, out, err = run("resume", "out/study", "--device", "a100-sxm4-40gb")
        assert (code, out.splitlines()[0]) == (0, "12 cells: 8 done, 0 failed, 0 running, 4 left")
        code, out, err = run("status", "out/study", "--format", "json")
        assert (code, json.loads(out)["left"], err) == (0, 4, "")

    def test_exit_code_of_failures(self, run: Any, tmp_path: Path) -> None:
        text = 'title = "T"\nmodels = ["tiny.py:fails"]\n'
        code, out, err = run("run", study(tmp_path, text), "-d", tmp_path / "out")
        assert code == 3
        assert "1/1  failed" in err
        assert "  estimate tiny.py:fails fp32 inference: error at start:" in out
        assert run("status", tmp_path / "out")[0] == 3
        written(tmp_path, text.replace("fails", "build"))
        code, out, err = run("run", tmp_path / "study.toml", "-d", tmp_path / "out")
        assert code == 0
        assert "asks for 1 more cell and no longer asks for 1 cell" in err

    def test_errors(self, run: Any, tmp_path: Path) -> None:
        code, out, err = run("run", study(tmp_path, ESTIMATES.replace("models", "modelz")))
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {tmp_path}/study.toml, line 2: modelz is not known here (did you mean")
        code, out, err = run("status", tmp_path)
        assert code == 1
        assert "holds no study" in err

    def test_sources_are_those_of_studies(self) -> None:
        from rooflens.cli.study import SOURCES
        from rooflens.study import SOURCES as OURS

        assert SOURCES == OURS


def test_status_is_what_a_run_returns(tmp_path: Path) -> None:
    found = run_study(study(tmp_path), tmp_path / "out", jobs=0)
    assert isinstance(found, Status)
    assert found.states == study_status(tmp_path / "out").states
