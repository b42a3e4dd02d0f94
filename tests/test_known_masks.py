"""Masks that are made from places which rooflens gives itself are as known as those that are made from shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl

pytest.importorskip("transformers")

BATCH, TOKENS, WINDOW, HEADS, WIDTH = 2, 16, 6, 4, 16
TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": WIDTH,
    "intermediate_size": 128,
    "sliding_window": WINDOW,
    "vocab_size": 100,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA_3: dict[str, Any] = {
    "model_type": "gemma3",
    "text_config": TEXT,
    "vision_config": VISION,
    "mm_tokens_per_image": 4,
    "image_token_index": 99,
}


@pytest.mark.parametrize("mode", ["prefill", "inference"])
def test_windows_of_a_model_that_sees_images_are_known(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GEMMA_3))
    records = rl.estimate(f"hf:{path}", batch=BATCH, seq_len=TOKENS, mode=mode, dtype="bf16")
    attention = [r for r in records if r.scope == "op" and r.name == "attention" and "language_model" in r.path]
    flops = sum(r.bound_work.flops["matmul.bf16"] * r.calls for r in attention if r.bound_work is not None)
    # Windows of 6: 1, 2 ... 6 keys for the first 6 queries, 6 for the other 10. The causal layer: 16 x 17 / 2.
    pairs = 2 * (21 + 60) + 136
    assert flops == BATCH * HEADS * 2 * (WIDTH + WIDTH) * pairs
    assert not any("pattern is not known" in note for note in records.notes)


T5: dict[str, Any] = {"model_type": "t5", "d_model": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_ff": 64}


@pytest.mark.parametrize(("mode", "place"), [("prefill", "encoder"), ("decode", "decoder")])
def test_a_bias_of_positions_is_read_as_its_table(tmp_path: Path, mode: str, place: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(T5 | {"vocab_size": 99}))
    records = rl.estimate(f"hf:{path}", batch=BATCH, seq_len=64, mode=mode, dtype="bf16")
    attention = [r for r in records if r.name == "attention" and r.path.startswith(place) and "SelfAtt" in r.path]
    row = BATCH * HEADS * WIDTH * 2
    # Queries, keys, values and result of 64 tokens; in decode a query, a result, and 65 keys and values.
    moved, pairs = (4 * 64 * row, 64 * 64) if mode == "prefill" else (2 * row + 2 * 65 * row, 65)
    table = 32 * HEADS * 2
    assert len(attention) == 2
    for one in attention:
        assert one.bound_work is not None
        assert one.written is not None
        assert one.bound_work.bytes["dram"] == moved + table
        assert one.written.bytes["dram"] == moved + HEADS * pairs * 2
        assert one.bound_work.flops == one.written.flops


@pytest.mark.parametrize("mode", ["prefill", "inference"])
def test_a_decoder_with_a_bias_of_positions_is_causal(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(T5 | {"vocab_size": 99}))
    records = rl.estimate(f"hf:{path}", batch=BATCH, seq_len=TOKENS, mode=mode, dtype="bf16")
    floors = {r.path: r.floor for r in records if r.name == "attention" and r.floor is not None}
    of_all = {path: floor for path, floor in floors.items() if not path.startswith("decoder") or "EncDec" in path}
    causal = [floor for path, floor in floors.items() if path not in of_all]
    assert len(causal) == 2
    for floor in causal:  # 16 x 17 / 2 = 136 of 256 pairs
        assert floor.work.flops["matmul.bf16"] == BATCH * HEADS * 2 * (WIDTH + WIDTH) * 136
        assert floor.cause == "masked pairs"
    assert {floor.cause for floor in of_all.values()} == ({"expansion"} if mode == "prefill" else set())
