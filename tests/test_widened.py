"""Products of values that were cast from 16 bits to fp32 need what those in 16 bits do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rooflens as rl
from rooflens.records import Record

ROWS, INNER, COLUMNS = 8, 16, 24


class Widened(torch.nn.Module):
    """Scores in fp32 of values in 16 bits, which are changed in between if `scaled`."""

    def __init__(self, *, scaled: bool) -> None:
        super().__init__()
        self.scaled = scaled

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        wide = left.float() * 0.1 if self.scaled else left.float()
        return wide @ right.float().transpose(-1, -2)


def estimated(dtype: torch.dtype, *, scaled: bool = False) -> Record:
    sizes = torch.empty(2, ROWS, INNER, dtype=dtype), torch.empty(2, COLUMNS, INNER, dtype=dtype)
    (product,) = (r for r in rl.estimate(Widened(scaled=scaled), inputs=sizes) if r.name == "bmm")
    return product


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16")])
def test_a_cast_gives_a_product_nothing(dtype: torch.dtype, name: str) -> None:
    product = estimated(dtype)
    assert product.work is not None
    assert product.bound_work is not None
    assert product.work.flops == {"matmul.fp32": 2 * 2 * ROWS * INNER * COLUMNS}
    assert product.bound_work.flops == {f"matmul.{name}": 2 * 2 * ROWS * INNER * COLUMNS}
    # Operands in 2 B each, results in 4.
    assert product.bound_work.bytes["dram"] == 2 * (2 * (ROWS + COLUMNS) * INNER + 4 * ROWS * COLUMNS)


def test_values_that_are_changed_in_fp32_stay_there() -> None:
    product = estimated(torch.bfloat16, scaled=True)
    assert product.bound_work == product.work
    assert estimated(torch.float32).floor is None


def on(device: rl.Device, dtype: torch.dtype) -> tuple[set[str], float | None]:
    """The units of the product's bound, and its bytes, on a device."""
    sizes = torch.empty(2, ROWS, INNER, dtype=dtype), torch.empty(2, COLUMNS, INNER, dtype=dtype)
    records = rl.estimate(Widened(scaled=False), inputs=sizes, device=device)
    (work,) = (r.bound_work for r in records if r.name == "bmm")
    assert records.total().seconds is not None
    assert work is not None
    return set(work.flops), work.bytes["dram"]


def test_a_device_without_a_faster_unit_for_16_bits_multiplies_in_fp32() -> None:
    moved = 2 * (2 * (ROWS + COLUMNS) * INNER + 4 * ROWS * COLUMNS)
    # A T4 has units for fp16 and none for bf16; values in 16 bits are read as they are on both.
    t4 = rl.device("t4")
    assert on(t4, torch.bfloat16) == ({"matmul.fp32"}, moved)
    assert on(t4, torch.float16) == ({"matmul.fp16"}, moved)
    slow = [replace(c, rate=1e9) if c.resource == "matmul.fp16" else c for c in t4.ceilings]
    assert on(replace(t4, name="slow in fp16", ceilings=tuple(slow)), torch.float16) == ({"matmul.fp32"}, moved)


def test_scores_of_gpt_j_are_computed_from_16_bits(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "gptj", "attn_implementation": "eager", "n_embd": 64, "n_layer": 1, "n_head": 4}
    config |= {"rotary_dim": 8, "vocab_size": 100, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for mode, pairs in (("prefill", 16 * 17 // 2), ("decode", 17)):
        records = rl.estimate(f"hf:{tmp_path}/config.json", mode=mode, batch=2, seq_len=16, dtype="bf16")
        products = [r for r in records if r.name == "bmm" and r.bound_work is not None]
        assert {name for r in products if r.bound_work for name in r.bound_work.flops} == {"matmul.bf16"}
        assert sum(r.bound_work.matmul_flops for r in products if r.bound_work) == 2 * 4 * 2 * (16 + 16) * pairs
