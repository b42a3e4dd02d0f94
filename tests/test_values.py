"""Work that follows from values: a function in a file counts as its module and inputs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data import values_decide

import rooflens as rl
from rooflens.costs import cost
from rooflens.models import workload
from rooflens.records import Call
from rooflens.runs.run import Request
from rooflens.trace import trace

FILE = Path(values_decide.__file__)
MATMUL = {
    "refine": (1 + 8) * 2 * 10 * 64 * 64,  # one layer before, and one for each of 8 steps
    "packed": (7 + 3 + 2) * 2 * 4 * 16 * (32 + 16),  # 12 vectors meet four gates
    "grid": 2 * (4 * 6 + 2 * 8) * 16 * 16,
    "above": 2 * 2 * 8 * 4,  # of 0, 1, 2, 3, 4 two are above 2.5
}


def calls_of(asked: Request) -> list[Call]:
    """What the trace of a request sees, without the worker in which a file of the user's own is read."""
    work = workload(asked)
    return [operation.call for operation in trace(work.untouched_steps()(work.runs[0])).operations]


def matmul_flops(calls: list[Call]) -> float:
    return sum(cost(call).work.matmul_flops for call in calls)


@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize("name", MATMUL)
def test_a_function_in_a_file_counts_as_its_module_and_inputs(name: str, mode: str) -> None:
    module, inputs = getattr(values_decide, name)()
    from_file = calls_of(Request(model=f"{FILE}:{name}", mode=mode))
    assert from_file == calls_of(Request(model=module, inputs=inputs, dtype="fp32", mode=mode))
    if mode == "inference":
        assert matmul_flops(from_file) == MATMUL[name]


def test_a_batch_has_the_values_of_its_own_inputs() -> None:
    """Of 0 to 7 five are above 2.5."""
    assert matmul_flops(calls_of(Request(model=f"{FILE}:above", batch=8))) == 5 * 2 * 8 * 4


def test_an_estimate_of_a_file_keeps_values() -> None:
    records = rl.estimate(f"{FILE}:refine")
    assert records.total().matmul_flops == MATMUL["refine"]
    assert any("run on the CPU with values" in note for note in records.notes)


def test_inputs_that_a_function_makes_keep_their_values() -> None:
    def inputs(batch: int | None) -> Any:
        return {"x": torch.zeros(10, 64), "steps": torch.tensor(3)}

    assert rl.estimate(values_decide.Refine(), inputs=inputs).total().matmul_flops == (1 + 3) * 2 * 10 * 64 * 64
