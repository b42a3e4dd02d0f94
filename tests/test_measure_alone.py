"""A cell that is measured alone and the same cell after fifty others agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflens as rl

MODEL = """
import torch

def build(batch):
    return torch.nn.Linear(1024, 1024), torch.randn(batch, 1024)
"""
BATCH = 256
OTHERS = range(1, 51)


def test_a_cell_after_fifty_others_takes_the_memory_that_it_takes_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    model = f"{path}:build"
    alone = rl.measure(model, batch=BATCH, device="cpu", budget=0.05)
    swept = rl.measure(model, batch=[*OTHERS, BATCH], device="cpu", budget=0.02)
    assert len(swept.cases) == len(OTHERS) + 1
    again = rl.RecordSet(record for record in swept if record.case.batch == BATCH)
    # Four megabytes of weights, two of input and output each: what fifty models before left behind would be hundreds.
    grown = [m.monitor - m.before for m in (alone.memory, again.memory) if m and m.monitor and m.before]
    assert len(grown) == 2
    assert abs(grown[1] - grown[0]) < 30e6


@pytest.mark.gpu
def test_what_an_earlier_cell_left_in_the_process_is_no_need_of_a_later_one(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x, 2) if len(x) == 1 else x @ x

def build(batch):
    return Model(), torch.randn(batch, 4, 64, 64)
""")
    records = rl.measure(f"{path}:build", batch=[2, 1], device="cuda", budget=0.1)
    with_product, pooled = (records.where(batch=batch).memory for batch in (2, 1))
    assert with_product is not None
    assert pooled is not None
    # The workspace of a product is megabytes. Pooling has 65.5 kB of input and a quarter of that as output.
    assert with_product.peak is not None
    assert with_product.peak > 4_000_000
    assert pooled.peak is not None
    assert pooled.peak < 1_000_000
