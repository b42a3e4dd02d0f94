"""A model in a file of the user's own: only a worker reads it, and what it does there costs its own batches."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl
from rooflens import host_limits
from rooflens.cli.main import main
from rooflens.errors import InvalidValue, ModelError, RooflensError, UnknownModel, as_told
from rooflens.records import Case
from rooflens.running.cells import _checked
from rooflens.running.jobs import Refused

BUILD = """
import os, sys, torch
from pathlib import Path
from torch import nn

with Path(__file__).with_name("readers").open("a") as log:
    log.write(f"{os.getpid()}\\n")
os.chdir("/")

def build(batch=2):
    if batch == 3:
        os._exit(3)
    if batch == 4:
        os.fork()
    if batch == 5:
        for _ in range(1000):
            print(10000 * "x")
    if batch == 6:
        raise ValueError("six")
    return nn.Linear(4, 4), torch.randn(batch, 4)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(BUILD)
    return path


def readers(own: Path) -> set[int]:
    """The processes that read the file."""
    return {int(line) for line in own.with_name("readers").read_text().split()}


def test_what_a_file_does_costs_its_own_batches_of_an_estimate(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    found = rl.estimate("own.py:build", batch=[2, 3, 4, 5, 6], limit=60)
    # A linear layer of 4 x 4: 2 x batch x 16 FLOP of products.
    assert {case.batch: found.where(case=case).total().matmul_flops for case in found.cases} == {2: 64, 4: 128, 5: 160}
    lost, raised = found.failures
    assert (lost.case.batch, lost.kind, lost.stage) == (3, "crash", "trace")
    assert lost.message == "own.py:build: the worker process ended by itself with code 3 before it gave an answer"
    assert (raised.case.batch, raised.kind) == (6, "error")
    assert raised.message.endswith("own.py:build raised ValueError: six (own.py, line 19)")
    assert os.getpid() not in readers(own)


@pytest.mark.parametrize(("batches", "code"), [("2,3", 3), ("2,6", 3), ("2,5", 0)])
def test_cases_that_failed_are_in_the_exit_code(own: Path, batches: str, code: int) -> None:
    with pytest.raises(SystemExit) as end:
        main(["estimate", f"{own}:build", "-b", batches])
    assert end.value.code == code


CALLS: dict[str, Callable[[str], Any]] = {
    "largest batch": lambda name: rl.largest_batch(name, device="t4", reserve=15.5e9).batch,
    "measure": lambda name: rl.measure(name, device="cpu", budget=0.1).cases[0].batch,
}


@pytest.mark.parametrize("call", CALLS)
def test_only_a_worker_reads_the_file(call: str, own: Path) -> None:
    assert CALLS[call](f"{own}:build")
    assert os.getpid() not in readers(own)


def test_a_file_that_does_not_end_is_killed_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import time\nwhile True:\n    time.sleep(1)\n")
    with pytest.raises(ModelError, match=r"the time limit of 0\.1 s was over; it was killed \(timeout, while the"):
        rl.explain(f"{tmp_path / 'hang.py'}:build", path="", limit=0.1)


def test_a_cell_of_a_study_reads_no_file_here(own: Path) -> None:
    run = _checked(Case(model=own.name + ":build", batch=4), own.parent)
    assert (run.model, run.batch) == (f"{own}:build", 4)
    assert not own.with_name("readers").exists()


def test_an_error_that_travelled_has_its_class_message_and_notes() -> None:
    error = UnknownModel("model", "resnt", ["resnet"], "; look")
    error.add_note("a remedy")
    told = Refused.of(error).error
    assert type(told) is UnknownModel
    assert str(told) == "unknown model 'resnt'; did you mean resnet?; look"
    assert told.__notes__ == ["a remedy"]
    assert isinstance(as_told("MissingDependency", "needs onnx"), RooflensError)
    assert str(as_told("MissingDependency", "needs onnx")) == "needs onnx"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"limit": 0}, "a time limit of 0 s leaves no time"),
        ({"limit": "60"}, "limit is '60'; give a number of seconds"),
        ({"batch": 0}, "batch 0 cannot be run"),
        ({"dims": {"a": 1}}, "are sizes that an ONNX file leaves open"),
    ],
)
def test_what_cannot_be_asked_for_is_said_before_the_file_is_read(
    more: dict[str, Any], message: str, own: Path
) -> None:
    with pytest.raises(InvalidValue, match=re.escape(message)):
        rl.estimate(f"{own}:build", **more)
    assert not own.with_name("readers").exists()


def test_workers_side_by_side_share_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: endless)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit[0]))
    monkeypatch.setattr(host_limits, "available_memory", lambda: 10**9)
    monkeypatch.setattr(host_limits, "fields_of", lambda _: {"VmData": "2 kB"})
    for beside in (1, 3):
        host_limits.bound_memory(beside)
    assert limits == [900_002_048, 300_002_048]
