"""Sweeps of measurements: in workers, through faults, to the largest batch, with everything kept on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError
from rooflens.records import Case, Failure, Timing
from rooflens.report.sweep_notes import batch_notes
from rooflens.results.evidence import join

BUDGET = 0.1
MODEL = """
import os, signal, time
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        misbehave = {misbehave}
        what = misbehave.get(len(x))
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            time.sleep(1000)
        if what == "exit":
            os._exit(1)
        if what == "starve":
            torch.empty(1 << 50)
        if what == "unsupported":
            raise NotImplementedError("no kernel for this")
        if len(x) > {most}:
            raise torch.OutOfMemoryError("out of memory")
        return self.layer(x)

def build(batch):
    return Model(), torch.randn(batch, 8)
"""


@pytest.fixture
def model(tmp_path: Path) -> Any:
    def write(misbehave: dict[int, str] | None = None, most: int = 10**9) -> str:
        path = tmp_path / "model.py"
        path.write_text(MODEL.format(misbehave=misbehave or {}, most=most))
        return f"{path}:build"

    return write


def test_every_kind_of_fault_costs_its_own_batch_and_no_other(model: Any, tmp_path: Path) -> None:
    faults = {2: "kill", 3: "hang", 5: "exit", 6: "starve", 7: "unsupported"}
    kept = tmp_path / "kept.jsonl"
    found = rl.measure(model(faults), batch=[1, 2, 3, 4, 5, 6, 7, 8], device="cpu", budget=BUDGET, limit=8, save=kept)
    timed = [r.case.batch for r in found if r.timing is not None]
    assert timed == [1, 4, 8]
    kinds = {failure.case.batch: (failure.kind, failure.stage) for failure in found.failures}
    assert kinds == {
        2: ("crash", "forward"),
        3: ("timeout", "forward"),
        5: ("crash", "forward"),
        6: ("out of memory", "forward"),
        7: ("unsupported", "forward"),
    }
    read = rl.read(kept)
    assert read.records == found.records
    assert read.failures == found.failures


def test_what_was_measured_is_on_disk_before_the_next_batch_begins(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.jsonl"
    begun: list[int] = []

    def interrupt(_: float, what: str) -> None:
        if "batch 2" in what:
            begun.append(len(rl.read(kept).where(source="measure").cases))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rl.measure(model(), batch=[1, 2, 4], device="cpu", budget=BUDGET, save=kept, isolated=False, progress=interrupt)
    assert begun == [1]


def test_the_largest_batch_is_found_by_doubling_and_closing_in(model: Any) -> None:
    found = rl.measure(model(most=11), largest_batch=True, device="cpu", budget=BUDGET, isolated=False, estimate=True)
    # 1, 2, 4, 8 fit and 16 does not; then 12 does not, 10 and 11 do.
    measured = found.where(source="measure")
    assert [case.batch for case in measured.cases] == [1, 2, 4, 8, 10, 11]
    assert [failure.case.batch for failure in found.failures] == [16, 12]
    assert [case.batch for case in found.where(source="estimate").cases] == [1, 2, 4, 8, 10, 11]
    assert "the largest batch that fits is 11: 12 runs out of memory" in rl.table(found)


def test_another_failure_ends_the_search(model: Any) -> None:
    found = rl.measure(model({4: "unsupported"}), largest_batch=True, device="cpu", budget=BUDGET, isolated=False)
    assert [case.batch for case in found.cases] == [1, 2]
    assert [failure.kind for failure in found.failures] == ["unsupported"]


def test_a_largest_batch_needs_one_batch_to_begin_with() -> None:
    with pytest.raises(InvalidValue, match="from one batch on"):
        rl.measure("alexnet", batch=[1, 2], largest_batch=True, device="cpu")


def test_the_knee_is_where_throughput_stops_to_rise() -> None:
    # 100, 190, 200, 202 samples per second: 95 % of 202 is 191.9, which batch 4 is the first to reach.
    seconds = {1: 1 / 100, 2: 2 / 190, 4: 4 / 200, 8: 8 / 202}
    cases = {batch: Case(model="net", batch=batch) for batch in seconds}
    records = [
        rl.Record(
            case=cases[batch],
            source="measure",
            scope="model",
            phase="forward",
            timing=Timing(samples=(time,), origin="monotonic"),
        )
        for batch, time in seconds.items()
    ]
    failed = Failure(
        case=Case(model="net", batch=9), source="measure", stage="forward", kind="out of memory", message="too big"
    )
    assert list(batch_notes(join(rl.RecordSet(records)), [failed])) == [
        "the largest batch that fits is 8: 9 runs out of memory",
        "throughput reaches 95 % of its highest at batch 4",
    ]
    assert list(batch_notes(join(rl.RecordSet(records[:3])), [])) == []


def test_a_module_runs_here_and_cannot_be_sent() -> None:
    import torch

    with pytest.raises(InvalidValue, match="cannot be sent to a worker"):
        rl.measure(torch.nn.Linear(2, 2), inputs=torch.ones(1, 2), isolated=True, device="cpu")


def test_if_all_batches_fail_the_error_says_why(model: Any) -> None:
    with pytest.raises(ModelError, match=r"killed by SIGKILL.*\(crash, at stage forward\); all 2 batches failed"):
        rl.measure(model({1: "kill", 2: "kill"}), batch=[1, 2], device="cpu", budget=BUDGET)


def test_compiling_takes_its_own_seconds(model: Any) -> None:
    import torch

    found = rl.measure(
        torch.nn.Linear(4, 4), inputs=torch.ones(2, 4), compile=True, device="cpu", budget=BUDGET, estimate=True
    )
    (forward,) = [r for r in found if r.timing is not None]
    timing = forward.timing
    assert timing is not None
    assert timing.compiling is not None
    assert timing.cold is not None
    assert 0 < timing.compiling <= timing.cold
    assert forward.case.options == (("compile", True),)
    (evidence,) = join(found)  # the fused estimate stands beside it
    assert evidence.work is not None
    assert evidence.work.cases[0].options == (("compile", True), ("fusion", "pointwise"))


def test_cuda_graphs_need_a_card() -> None:
    with pytest.raises(InvalidValue, match="CUDA graphs need a CUDA device"):
        rl.measure("alexnet", cuda_graph=True, device="cpu")


def test_what_only_running_shows_to_make_no_sense_is_told_as_it_is(tmp_path: Path) -> None:
    untrainable = tmp_path / "untrainable.py"
    untrainable.write_text(
        "import torch\n\nclass Counts(torch.nn.Linear):\n    def forward(self, x):\n        return x.long()\n\n"
        "def build(batch):\n    return Counts(2, 2), torch.ones(batch, 2)\n"
    )
    with pytest.raises(ModelError, match=r"holds no floating tensor to train on.*\(error, at stage forward\)"):
        rl.measure(f"{untrainable}:build", batch=1, mode="train", device="cpu", budget=BUDGET)
