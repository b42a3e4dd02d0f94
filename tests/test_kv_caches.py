"""Caches of language models: what they hold, against closed forms and against what transformers really holds."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kv_caches import storages

import rooflens as rl
from rooflens.models.asked_caches import asked_cache
from rooflens.models.kv_caches import kv_cache
from rooflens.records import KvCache
from rooflens.report.case_json import promised_json
from rooflens.report.memory_table import memory
from rooflens.results import join
from rooflens.results.quantities import QUANTITIES
from rooflens.runs.options import Options

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
DEEPSEEK_V3 = {"model_type": "deepseek_v3", "first_k_dense_replace": 2}
GEMMA_4B = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "sliding_window": 1024,
    "max_position_embeddings": 131072,
}
TINY = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
TINY |= {"intermediate_size": 64, "vocab_size": 120, "max_position_embeddings": 4096, "pad_token_id": 0}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}


@pytest.fixture
def named(tmp_path: Path) -> Callable[..., str]:
    def write(**config: Any) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return f"hf:{path}"

    return write


def cache_of(model: str, seq_len: int, mode: str = "decode", **options: Any) -> KvCache:
    found = rl.estimate(model, seq_len=seq_len, mode=mode, **options)
    assert found.kv_cache is not None
    assert found.memory is not None
    assert found.memory.kv_cache is not None
    assert found.memory.kv_cache <= found.kv_cache.held
    return found.kv_cache


def test_grouped_heads_keep_131072_bytes_of_a_token(named: Any) -> None:
    cache = cache_of(named(**LLAMA_8B, num_hidden_layers=1), 100, batch=3, dtype="bf16")
    # A layer of Llama 3 8B: keys and values of 8 heads of 128, in 16 bits. 32 layers: 131,072 B.
    assert cache.per_token == 2 * 8 * 128 * 2 == 131_072 / 32
    assert cache.held == cache.used == 3 * 101 * 4096
    assert (cache.tokens, cache.batch) == (101, 3)


def test_latents_keep_70272_bytes_of_a_token(named: Any) -> None:
    cache = cache_of(named(**DEEPSEEK_V3, num_hidden_layers=1), 100, dtype="bf16")
    # DeepSeek V3: a latent of 512 and a rotated key of 64, for all heads together; 61 layers.
    assert 61 * cache.per_token == 61 * (512 + 64) * 2 == 70_272
    assert cache.held == 101 * (512 + 64) * 2


def test_windows_hold_no_more_than_the_window(named: Any) -> None:
    cache = cache_of(named(**GEMMA_4B, num_hidden_layers=6), 131_072, dtype="bf16")
    token = 2 * 4 * 256 * 2
    # Five layers see 1,024 tokens, of which they keep 1,023 for the next step; the sixth sees all.
    assert cache.held == (5 * 1024 + 131_073) * token
    assert cache.used == (5 * 1023 + 131_073) * token
    assert cache.per_token == token
    # Gemma 3 4B has 34 layers, of which each sixth sees all: 2.8 GB.
    assert (29 * 1024 + 5 * 131_073) * token == 2_806_009_856


@pytest.mark.parametrize("seq_len", [6, 7, 8, 9])
def test_a_window_that_is_not_full_grows(named: Any, seq_len: int) -> None:
    model = named(model_type="mistral", **TINY, sliding_window=8)
    token, seen = 4 * 2 * 2 * 16 * 4, seq_len + 1
    cache = cache_of(model, seq_len)
    assert (cache.held, cache.used) == (min(seen, 8) * token, min(seen, 7) * token)
    assert cache.per_token == (token if seen < 7 else 0)


def test_what_prefill_leaves_behind_is_larger_than_what_is_used(named: Any) -> None:
    model = named(model_type="gemma3_text", **TINY | {"num_hidden_layers": 12}, sliding_window=8)
    prefill, decode = cache_of(model, 1024, "prefill"), cache_of(model, 1024)
    token = 2 * 2 * 16 * 4
    # Ten windows are views of all 1,024 tokens until the first step of decoding, and 2 layers see all.
    assert (prefill.held, prefill.used) == (12 * 1024 * token, (10 * 7 + 2 * 1024) * token)
    assert (decode.held, decode.used) == (10 * 8 * token + 2 * 1025 * token, 10 * 7 * token + 2 * 1025 * token)
    assert decode.held == 545_280


def test_states_do_not_grow(named: Any) -> None:
    model = named(model_type="mamba", hidden_size=64, state_size=8, num_hidden_layers=3, vocab_size=120)
    for seq_len in (2, 50):
        cache = cache_of(model, seq_len, batch=2)
        # The inner width is twice the hidden one: 4 inputs of the convolution and 8 numbers of state for each channel.
        assert cache.held == cache.used == 2 * 3 * 128 * (4 + 8) * 4
        assert cache.per_token == 0


def test_shared_layers_hold_nothing_of_their_own(named: Any) -> None:
    types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    layers = {"num_hidden_layers": 5, "layer_types": types, "num_kv_shared_layers": 2, "sliding_window": 8}
    widths = {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 120, "laurel_rank": 8}
    cache = cache_of(named(model_type="gemma3n_text", **TINY | layers, **widths), 20)
    # The last two layers read what the windows and the full layer before them keep.
    assert cache.held == (2 * 8 + 21) * 2 * 2 * 16 * 4


def test_numbers_of_the_cache_are_in_json_tables_and_explanations(named: Any) -> None:
    found = rl.estimate(named(model_type="mistral", **TINY, sliding_window=8), seq_len=20, mode="prefill")
    token = 2 * 2 * 16 * 4
    assert QUANTITIES["kv_cache"].read(join(found)[0], None).value == 80 * token
    (case,) = promised_json(found)
    told = case["kv_cache"]
    assert (told["tokens"], told["held"], told["used"], told["per_token"]) == (20, 80 * token, 28 * token, 0)
    assert [part["name"] for part in told["parts"]] == ["keys", "values"]
    columns = {column.header for column in memory(found).columns}
    assert {"cache holds", "cache in use", "cache per token"} <= columns
    text = rl.explain(found, path="").text
    assert "4 x 1x2x7x16:fp32; 4 x 2,560 B = 10,240 B, in use 3,584 B" in text
    (other,) = promised_json(rl.estimate(torch.nn.Linear(1, 1), inputs=torch.ones(1, 1)))
    assert other["kv_cache"] is None


FAMILIES: dict[str, dict[str, Any]] = {
    "bamba": {
        "attn_layer_indices": [1, 3],
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
    },
    "deepseek_v32": {
        **LATENT,
        "head_dim": None,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "moe_intermediate_size": 32,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "index_head_dim": 16,
        "index_n_heads": 2,
        "index_topk": 4,
    },
    "gemma3_text": {"sliding_window": 8},
    "llama4_text": {
        "attention_chunk_size": 8,
        "num_local_experts": 2,
        "intermediate_size_mlp": 64,
        "layer_types": ["chunked_attention", "full_attention"] * 2,
    },
    "deepseek_v3": {
        **LATENT,
        "head_dim": None,
        "n_routed_experts": 4,
        "moe_intermediate_size": 32,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
    },
    "rwkv": {"attention_hidden_size": 64},
    "xlstm": {"num_heads": 4, "num_blocks": 4, "head_dim": None, "qk_dim_factor": 1.0},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 1},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_is_what_transformers_holds_after_real_steps(named: Any, family: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {key: value for key, value in (TINY | FAMILIES[family]).items() if value is not None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields)).eval()
    accepted = inspect.signature(type(model).forward).parameters
    name = next(name for name in ("cache", "state") if name in accepted)

    def run(tokens: torch.Tensor, begin: int, cache: Any) -> Any:
        given = {"input_ids": tokens, "use_cache": True} | ({} if cache is None else {name: cache})
        if "position_ids" in accepted:
            given["position_ids"] = torch.arange(begin, begin + tokens.shape[1]).expand(tokens.shape)
        with torch.no_grad():
            return model(**given)[name]

    for seq_len, batch in ((5, 3), (21, 1)):
        tokens = torch.randint(1, 100, (batch, seq_len + 1))
        cache = run(tokens[:, : seq_len - 2], 0, None)
        for at in range(seq_len - 2, seq_len + 1):
            cache = run(tokens[:, at : at + 1], at, cache)
        ours = cache_of(named(model_type=family, **fields), seq_len, batch=batch)
        assert ours.held == sum(storages(cache).values()), (seq_len, batch)


@pytest.mark.parametrize(
    ("options", "own", "used"),
    [
        ({"kv_cache": "static", "kv_cache_len": 9}, 9 * 32, 5 * 32),
        ({"kv_dtype": "int8"}, 5 * (8 + 2 * 4), 5 * (8 + 2 * 4)),  # a head of 8 is a group with two numbers of 4 bytes
    ],
)
def test_what_a_decoder_keeps_of_its_encoder_does_not_grow(options: dict[str, Any], own: int, used: int) -> None:
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    sizes = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 32, "vocab_size": 50}
    config = AutoConfig.for_model("t5", **sizes, decoder_start_token_id=0)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    heads = 2 * 2 * 4 * 2  # keys and values of two layers, heads, and sequences
    for make, held, filled in (
        (None, 5 * 32, 5 * 32),
        (asked_cache("t5", type(model), config, Options(**options), 6), own, used),
    ):
        given: dict[str, Any] = {"input_ids": torch.ones(2, 7, dtype=torch.long)}
        cache = None if make is None else make()
        with torch.no_grad():
            for tokens in (3, 1, 1):
                words = torch.ones(2, tokens, dtype=torch.long)
                out = model(**given, decoder_input_ids=words, cache=cache, use_cache=True)
                given, cache = {"encoder_outputs": (out.encoder_last_hidden_state,)}, out.cache
        told = kv_cache(cache, 2, 5)
        assert (told.held, told.used) == (heads * (held + 7 * 32), heads * (filled + 7 * 32))
        assert told.per_token == heads / 2 * filled / 5
        assert [part.name for part in told.parts if not part.per_token][-2:] == ["encoder keys", "encoder values"]


def test_an_encoder_decoder_keeps_both(named: Callable[..., str]) -> None:
    sizes = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 32, "vocab_size": 50}
    cache = cache_of(named(model_type="t5", **sizes, decoder_start_token_id=0), 10, batch=2)
    # The encoder reads as many tokens as the decoder has written: keys and values of 10, and 11 of its own.
    assert cache.held == 2 * 2 * 2 * 4 * 8 * (10 + 11) * 4
    assert cache.per_token == 2 * 2 * 4 * 8 * 4


RECURRENT = {
    "model_type": "recurrent_gemma", "hidden_size": 32, "lru_width": 32, "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 60, "conv1d_width": 4,
}  # fmt: skip


@pytest.mark.parametrize("window", [8, 64])
def test_states_that_lie_in_modules_are_part_of_the_cache(window: int, tmp_path: Path) -> None:
    """Two of three layers are recurrent: a state in fp32, and inputs of a convolution, of which a step drops one."""
    path, batch, tokens = tmp_path / "config.json", 2, 20
    path.write_text(json.dumps(RECURRENT | {"attention_window_size": window}))
    found = rl.estimate(f"hf:{path}", mode="decode", batch=batch, seq_len=tokens).kv_cache
    assert found is not None
    states, inputs = 2 * batch * 32 * 4, 2 * batch * 32 * 4 * 4
    seen = min(tokens + 1, window - 1)
    keys = 2 * batch * seen * 16 * 4
    by_name = {part.name: part.tensors * part.used for part in found.parts}
    assert by_name["recurrent_states"] == states
    assert by_name["conv1d_state"] == inputs * 3 // 4
    assert by_name["keys"] + by_name["values"] == keys
    assert {part.name for part in found.parts if part.per_token} == ({"keys", "values"} if window > tokens else set())


def test_a_model_that_keeps_states_in_its_modules_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(RECURRENT | {"attention_window_size": 64}))
    found = rl.measure(f"hf:{path}", mode="decode", seq_len=8, device="cpu", budget=0.05)
    assert any(record.timing is not None for record in found)
