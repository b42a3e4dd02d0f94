"""A cell that is measured alone and the same cell after others agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rooflens as rl

SIZES = {"hidden_size": 768, "intermediate_size": 768, "num_attention_heads": 4, "vocab_size": 1000}
BATCH = 256
OTHERS = range(1, 13)


def test_a_cell_after_twelve_others_in_its_process_takes_the_memory_that_it_takes_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1, **SIZES}))

    def grown(*batches: int) -> int:
        found = rl.measure(f"hf:{path}", batch=batches, seq_len=1, device="cpu", budget=0.01)
        assert len(found.cases) == len(batches)
        memory = rl.RecordSet(record for record in found if record.case.batch == BATCH).memory
        assert memory is not None
        assert memory.monitor is not None
        assert memory.before is not None
        return memory.monitor - memory.before

    # Weights are four projections and three of the MLP, of 768 x 768 in fp32, and two of the vocabulary: 22.7 MB.
    # What twelve models left behind would be 272 MB. The first cell of a process loads libraries, tens of megabytes.
    assert abs(grown(*OTHERS, BATCH) - grown(BATCH)) < 100e6


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
