"""Prefill of a chunk after tokens that the cache has: pairs with all of them, and the cache read once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.results import QUANTITIES, join

pytest.importorskip("transformers")

BATCH, CACHED, CHUNK, LAYERS, WIDTH, INNER, WORDS, BF16 = 2, 24, 8, 2, 64, 128, 100, 2
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": INNER,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
}


def saved(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return f"hf:{path}"


def chunk(folder: Path, config: dict[str, Any] = LLAMA, **options: Any) -> rl.RecordSet:
    asked: dict[str, Any] = {"mode": "prefill", "batch": BATCH, "seq_len": CHUNK, "cached_tokens": CACHED}
    return rl.estimate(saved(folder, config), **asked | {"dtype": "bf16"} | options)


def flops(records: rl.RecordSet) -> float:
    """Matrix FLOP of attention that every implementation needs."""
    inside = [r for r in records if r.scope == "op" and r.name in ("attention", "bmm") and "self_attn" in r.path]
    return sum(r.bound_work.matmul_flops * r.calls for r in inside if r.bound_work is not None)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("cache", [{}, {"kv_cache": "static", "kv_cache_len": 50}])
def test_each_token_sees_what_is_cached_and_those_before_it(
    tmp_path: Path, attention: str, cache: dict[str, Any]
) -> None:
    records = chunk(tmp_path, LLAMA | {"attn_implementation": attention}, **cache)
    pairs = CHUNK * CACHED + CHUNK * (CHUNK + 1) / 2
    assert flops(records) == pytest.approx(LAYERS * BATCH * 4 * 2 * (16 + 16) * pairs)
    products = 2 * WIDTH * WIDTH + 2 * WIDTH * 32 + 3 * WIDTH * INNER
    logits = 2 * BATCH * WIDTH * WORDS
    rest = records.total().floor.matmul_flops
    assert rest is not None
    assert rest - flops(records) == 2 * BATCH * CHUNK * LAYERS * products + logits


def test_the_cache_is_read_once_and_a_chunk_appended(tmp_path: Path) -> None:
    records = chunk(tmp_path)
    inside = [r for r in records if r.scope == "op" and r.name in ("attention", "cat") and "self_attn" in r.path]
    moved = sum(r.bound_work.bytes["dram"] * r.calls for r in inside if r.bound_work is not None)
    token = 2 * 2 * 16 * BF16
    cached, new, values = CACHED * token, CHUNK * token, 2 * CHUNK * WIDTH * BF16
    # Keys and values are read in attention; new ones are read and written before it.
    assert moved == LAYERS * BATCH * (cached + 3 * new + values)
    cache = records.kv_cache
    assert cache is not None
    assert (cache.tokens, cache.used) == (CACHED + CHUNK, LAYERS * BATCH * (cached + new))


def test_a_window_cuts_what_is_cached(tmp_path: Path) -> None:
    # A window of 6: each of the 8 tokens sees itself and 5 before it, of the cache or of the chunk.
    records = chunk(tmp_path, LLAMA | {"model_type": "mistral", "sliding_window": 6})
    assert flops(records) == pytest.approx(LAYERS * BATCH * 4 * 2 * (16 + 16) * CHUNK * 6)


def test_rates_are_of_the_chunk_and_positions_of_all(tmp_path: Path) -> None:
    records = chunk(tmp_path, device="t4", dtype="fp16", seq_len=41)
    (item,) = join(records)
    rate = QUANTITIES["prompt_tokens_per_second"].read(item, time="bound").value
    assert rate == pytest.approx(BATCH * 41 / (records.total().seconds or 0))
    assert any("a sequence has 65 tokens" in note for note in records.notes)


def test_it_runs(tmp_path: Path) -> None:
    options: dict[str, Any] = {"mode": "prefill", "seq_len": CHUNK, "cached_tokens": CACHED}
    records = rl.measure(saved(tmp_path, LLAMA), **options, device="cpu", budget=0.05, estimate=False)
    (case,) = records.cases
    assert dict(case.options) == {"seq_len": CHUNK, "cached_tokens": CACHED}
    assert records.total("forward").measured_seconds


def test_other_modes_and_encoders_have_no_such_tokens(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="cached_tokens=24 is about tokens that prefill finds in its cache"):
        chunk(tmp_path, mode="decode")
    t5 = {"model_type": "t5", "d_model": 64, "num_layers": 1, "num_heads": 4, "d_kv": 16, "d_ff": 64, "vocab_size": 99}
    with pytest.raises(InvalidValue, match="reads its prompt in an encoder"):
        chunk(tmp_path, t5)
