"""Caches that a run asks for: of a fixed length, and quantised."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError
from rooflens.models import build, eager, find, make_example, make_step
from rooflens.models.kv_caches import cache_tensors
from rooflens.runs.options import Options

TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
TINY |= {"intermediate_size": 64, "vocab_size": 120, "max_position_embeddings": 4096}
GEMMA = {"model_type": "gemma3_text", **TINY, "sliding_window": 8}
GEMMA |= {"layer_types": ["sliding_attention", "full_attention"]}
NUMBERS = 2 * 2 * 16
"""Keys and values of a token in a layer."""


@pytest.fixture
def named(tmp_path: Path) -> Callable[..., str]:
    def write(**config: Any) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return f"hf:{path}"

    return write


def step_of(model: str, mode: str, **options: Any) -> Any:
    asked = Options(seq_len=20, **options)
    blueprint = find(model, asked, mode)
    example = make_example(blueprint, 2, "cpu")
    return make_step(model, build(blueprint, "cpu"), example, dtype="fp32", mode=mode, loss=blueprint.loss)


def test_a_static_cache_holds_its_length_and_uses_what_is_filled(named: Callable[..., str]) -> None:
    found = rl.estimate(named(**GEMMA), seq_len=20, batch=2, mode="decode", kv_cache="static", kv_cache_len=100)
    assert found.kv_cache is not None
    # The first layer holds its window of 8, the second 100 tokens, of which 21 are there after the step.
    assert found.kv_cache.held == 2 * (8 + 100) * NUMBERS * 4
    assert found.kv_cache.used == 2 * (8 + 21) * NUMBERS * 4
    assert found.kv_cache.per_token == NUMBERS * 4
    assert found.memory is not None
    assert found.memory.kv_cache == found.kv_cache.held
    assert dict(found.cases[0].options) == {"seq_len": 20, "kv_cache": "static", "kv_cache_len": 100}


@pytest.mark.parametrize(("mode", "masked"), [("prefill", False), ("decode", True)])
def test_a_prompt_that_fills_a_static_cache_has_no_mask(
    named: Callable[..., str], monkeypatch: pytest.MonkeyPatch, mode: str, masked: bool
) -> None:
    model = named(model_type="llama", **TINY)
    options: dict[str, Any] = {"kv_cache": "static", "kv_cache_len": 50}
    ran: list[tuple[bool, int]] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def seen(query: Any, key: Any, value: Any, **given: Any) -> Any:
        ran.append((given["attn_mask"] is not None, key.shape[-2]))
        return attend(query, key, value, **given)

    run = eager(step_of(model, mode, **options), "cpu")
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", seen)
    run.once(lambda: None)
    monkeypatch.undo()
    calls = [r.call for r in rl.estimate(model, batch=2, seq_len=20, mode=mode, **options) if r.name == "attention"]
    assert [(c.get("mask") is not None, c.tensor("key").shape[-2]) for c in calls if c is not None] == ran
    assert ran == [(masked, 50 if masked else 20)] * 2


def test_a_static_cache_has_room_for_the_step_if_no_length_is_given(named: Callable[..., str]) -> None:
    model = named(model_type="llama", **TINY)
    for mode, tokens in (("prefill", 20), ("decode", 21)):
        found = rl.estimate(model, seq_len=20, mode=mode, kv_cache="static")
        assert found.kv_cache is not None
        assert found.kv_cache.held == found.kv_cache.used == 2 * tokens * NUMBERS * 4


@pytest.mark.parametrize(
    ("kv_dtype", "group", "bits"),
    [
        ("fp8", None, 8),  # its scales are two numbers per layer
        ("int8", None, 8 + 2 * 16 / 16),  # a head of 16 is a group: scale and least value of 16 bits for 16 numbers
        ("int8", 4, 8 + 2 * 16 / 4),
        ("int4", 8, 4 + 2 * 16 / 8),
    ],
)
def test_a_quantised_cache_holds_codes_and_scales(
    named: Callable[..., str], kv_dtype: str, group: int | None, bits: float
) -> None:
    options: dict[str, Any] = {"kv_dtype": kv_dtype, "kv_group_size": group, "seq_len": 20, "dtype": "bf16"}
    found = rl.estimate(named(**GEMMA), mode="decode", **options)
    assert found.kv_cache is not None
    scales = 2 * 2 * 4 if kv_dtype == "fp8" else 0
    assert found.kv_cache.held == (8 + 21) * NUMBERS * bits / 8 + scales
    assert found.kv_cache.per_token == NUMBERS * bits / 8
    static = rl.estimate(named(**GEMMA), mode="decode", kv_cache="static", kv_cache_len=50, **options)
    assert static.kv_cache is not None
    assert static.kv_cache.held == (8 + 50) * NUMBERS * bits / 8 + scales


def test_groups_of_64_by_default_and_latents_too(named: Callable[..., str]) -> None:
    wide = {"model_type": "llama", **TINY, "head_dim": 128, "num_hidden_layers": 1}
    llama = rl.estimate(named(**wide), seq_len=9, mode="decode", dtype="bf16", kv_dtype="int4")
    assert llama.kv_cache is not None
    assert llama.kv_cache.per_token == 2 * 2 * (128 / 2 + 128 / 64 * 2 * 2)
    latent = {"kv_lora_rank": 32, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
    small = {"model_type": "deepseek_v3", **TINY, **latent, "head_dim": 8, "num_hidden_layers": 1}
    deepseek = rl.estimate(named(**small), seq_len=9, mode="decode", dtype="bf16", kv_dtype="int8")
    assert deepseek.kv_cache is not None
    assert deepseek.kv_cache.per_token == (32 + 4) + (8 + 4)


@pytest.mark.parametrize("kv_dtype", ["fp8", "int8", "int4"])
def test_the_bound_reads_codes_and_scales_once(named: Callable[..., str], kv_dtype: str) -> None:
    model = named(model_type="llama", **TINY | {"num_hidden_layers": 1})
    asked: dict[str, Any] = {"seq_len": 1000, "mode": "decode", "dtype": "bf16", "device": "h100-sxm"}

    def moved(**options: Any) -> float:
        records = [record for record in rl.estimate(model, **asked, **options) if record.scope == "op"]
        return sum(
            record.bound_work.bytes["dram"] * record.calls for record in records if record.bound_work is not None
        )

    bits = {"fp8": 8, "int8": 8 + 2, "int4": 4 + 2}[kv_dtype]
    saved = moved() - moved(kv_dtype=kv_dtype)
    assert saved == pytest.approx(1000 * NUMBERS * (16 - bits) / 8, rel=0.02)


@pytest.mark.parametrize(("kv_dtype", "step"), [("int8", 1 / 255), ("int4", 1 / 15)])
def test_codes_stand_for_numbers_to_half_a_step(kv_dtype: str, step: float) -> None:
    numbers = torch.randn(2, 3, 5, 32)
    codes, scales = torch.ops.rooflens.quantize_cache(numbers, kv_dtype, 8)
    again = torch.ops.rooflens.dequantize_cache(codes, scales, kv_dtype, numbers.dtype)
    grouped = numbers.unflatten(-1, (-1, 8))
    most = (grouped.amax(-1) - grouped.amin(-1)) * step / 2
    assert bool(((again - numbers).unflatten(-1, (-1, 8)).abs() <= most[..., None] * 1.001).all())


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (GEMMA, {}),
        (GEMMA, {"kv_cache": "static", "kv_cache_len": 24}),
        (GEMMA, {"kv_dtype": "fp8"}),
        (GEMMA, {"kv_dtype": "int8"}),
        (GEMMA, {"kv_dtype": "int4", "kv_cache": "static"}),
        ({"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 120}, {}),
        ({"model_type": "rwkv", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 120}, {}),
        (
            {
                "model_type": "t5",
                "d_model": 32,
                "d_kv": 8,
                "num_heads": 4,
                "vocab_size": 50,
                "num_layers": 2,
                "d_ff": 64,
            },
            {"kv_cache": "static"},
        ),
    ],
)
def test_a_cache_is_put_back_after_every_step(
    named: Callable[..., str], config: dict[str, Any], options: dict[str, Any]
) -> None:
    model = named(**config)
    run = eager(step_of(model, "decode", **options), "cpu")
    shapes = [tensor.shape for tensor in run.state()]
    for _ in range(6):  # more steps than a static cache has room for
        run.once(lambda: None)
        assert [tensor.shape for tensor in run.state()] == shapes
    if options.get("kv_cache") == "static":
        estimated = rl.estimate(model, batch=2, seq_len=20, mode="decode", **options).kv_cache
        assert estimated is not None
        assert sum(tensor.untyped_storage().nbytes() for tensor in run.state()) == estimated.held


def test_a_cache_that_grows_is_not_held_twice(named: Callable[..., str]) -> None:
    run = eager(step_of(named(model_type="llama", **TINY), "decode"), "cpu")
    first = [weakref.ref(tensor.untyped_storage()) for tensor in run.state()]
    run.once(lambda: None)
    assert [storage() for storage in first] == [None] * len(first)
    # Two sequences of 20 tokens, and room for the one that a step adds.
    assert {tensor.shape[-2] for tensor in run.state()} == {20}
    assert {tensor.untyped_storage().nbytes() // tensor[:, :, :1].nbytes for tensor in run.state()} == {21}


def test_a_cache_that_is_measured_lies_dense_before_each_step(named: Callable[..., str]) -> None:
    for config in ({"model_type": "llama", **TINY}, GEMMA):
        run = eager(step_of(named(**config), "decode"), "cpu", dense=True)
        for _ in range(2):
            run.once(lambda: None)
            assert all(tensor.is_contiguous() for tensor in run.state())


def test_fp8_is_stored_as_in_the_cache_of_transformers(named: Callable[..., str]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, QuantizedCache

    config = AutoConfig.for_model("llama", **TINY)
    model = AutoModelForCausalLM.from_config(config).eval()
    cache = QuantizedCache("fp8", config)
    with torch.no_grad():
        for tokens in (19, 1, 1):
            model(input_ids=torch.randint(0, 100, (2, tokens)), cache=cache, use_cache=True)
    found = rl.estimate(named(model_type="llama", **TINY), seq_len=20, batch=2, mode="decode", kv_dtype="fp8")
    assert found.kv_cache is not None
    assert found.kv_cache.held == sum(tensor.untyped_storage().nbytes() for tensor in cache_tensors(cache))


def test_decode_is_measured_beyond_a_window_and_with_asked_caches(named: Callable[..., str]) -> None:
    found = rl.measure(
        named(**GEMMA), seq_len=20, mode="decode", device="cpu", budget=0.01, kv_cache="static", kv_dtype="int8"
    )
    assert not found.failures
    assert found.total().measured_seconds is not None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "train", "kv_dtype": "int8"}, "about the cache of a language model, which mode 'train'"),
        ({"mode": "inference", "kv_cache": "static"}, "which mode 'inference' does not go on with"),
        ({"mode": "decode", "kv_cache_len": 50}, "the length of a static cache"),
        ({"mode": "decode", "kv_cache": "static", "kv_cache_len": 20}, "no room for the 21 tokens"),
        ({"mode": "decode", "kv_group_size": 8}, "kv_dtype is None"),
        ({"mode": "decode", "kv_dtype": "fp8", "kv_group_size": 8}, "kv_dtype is fp8"),
        ({"mode": "decode", "kv_dtype": "int2"}, "known: fp8, int8, int4"),
        ({"mode": "decode", "kv_dtype": "int8", "kv_group_size": 5}, "kv_group_size may be 1, 2, 4, 8, 16"),
    ],
)
def test_what_makes_no_sense_is_refused(named: Callable[..., str], options: dict[str, Any], why: str) -> None:
    with pytest.raises((InvalidValue, ModelError), match=why):
        rl.estimate(named(**GEMMA), seq_len=20, **options)


def test_families_without_such_a_cache_are_refused(named: Callable[..., str]) -> None:
    mamba = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 120}
    with pytest.raises(InvalidValue, match="keeps none"):
        rl.estimate(named(**mamba), seq_len=20, mode="decode", kv_dtype="int8")
    with pytest.raises(InvalidValue, match="runs mamba with no cache of a fixed length"):
        rl.estimate(named(**mamba), seq_len=20, mode="decode", kv_cache="static")
    with pytest.raises(InvalidValue, match="which mode 'inference'"):
        rl.estimate(torch.nn.Linear(1, 1), inputs=torch.ones(1, 1), kv_dtype="int8")


@pytest.mark.parametrize(
    "asked",
    [
        {"kv_dtype": "fp8", "weights": "fp8"},
        {"kv_dtype": "int8"},
        {"kv_dtype": "int4", "weights": "int4"},
        {"weights": "nf4"},
    ],
)
def test_widening_takes_no_time_beside_what_reads_the_codes(tmp_path: Path, asked: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 128}
    path.write_text(json.dumps({"model_type": "llama", "vocab_size": 128, **sizes}))
    found = rl.estimate(f"hf:{path}", batch=4, seq_len=3000, mode="decode", dtype="bf16", device="h200-sxm", **asked)
    total = found.total()
    assert total.bound_by == "dram"
    assert total.whole_bound is not None
    assert total.seconds == pytest.approx(total.whole_bound.seconds, rel=1e-9)  # every operation waits for memory alone
