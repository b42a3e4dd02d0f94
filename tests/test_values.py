"""Work that follows from values: a function in a file counts as its module and inputs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data import values_decide

import rooflens as rl

FILE = Path(values_decide.__file__)
MATMUL = {
    "refine": (1 + 8) * 2 * 10 * 64 * 64,  # one layer before, and one for each of 8 steps
    "packed": (7 + 3 + 2) * 2 * 4 * 16 * (32 + 16),  # 12 vectors meet four gates
    "grid": 2 * (4 * 6 + 2 * 8) * 16 * 16,
    "above": 2 * 2 * 8 * 4,  # of 0, 1, 2, 3, 4 two are above 2.5
}


@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize("name", MATMUL)
def test_a_function_in_a_file_counts_as_its_module_and_inputs(name: str, mode: str) -> None:
    module, inputs = getattr(values_decide, name)()
    from_file = rl.estimate(f"{FILE}:{name}", mode=mode)
    handed = rl.estimate(module, inputs=inputs, mode=mode, dtype="fp32")
    assert from_file.total("forward").matmul_flops == MATMUL[name]
    assert [(r.name, r.calls, r.work) for r in from_file] == [(r.name, r.calls, r.work) for r in handed]
    assert from_file.memory == handed.memory


def test_a_batch_has_the_values_of_its_own_inputs() -> None:
    """Of 0 to 7 five are above 2.5."""
    assert rl.estimate(f"{FILE}:above", batch=8).total().matmul_flops == 5 * 2 * 8 * 4


def test_inputs_that_a_function_makes_keep_their_values() -> None:
    def inputs(batch: int | None) -> Any:
        return {"x": torch.zeros(10, 64), "steps": torch.tensor(3)}

    assert rl.estimate(values_decide.Refine(), inputs=inputs).total().matmul_flops == (1 + 3) * 2 * 10 * 64 * 64
