"""Prefill and decode of decoder-only language models, against closed forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, MLP, VOCABULARY = 2, 64, 4, 2, 16, 128, 100
# Products with weights, per token: q and o, k and v, the three of the gated MLP.
WEIGHTS = 2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * MLP


@pytest.fixture
def llama(tmp_path: Path) -> str:
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCABULARY,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return f"hf:{path}"


def forward(tokens: int, keys: int, logits: int, batch: int) -> int:
    """FLOP of `tokens` new tokens that attend to `keys` positions, with logits of some of them."""
    attention = 2 * tokens * keys * HEADS * HEAD
    return 2 * batch * (LAYERS * (tokens * WEIGHTS + attention) + logits * WIDTH * VOCABULARY)


def test_inference_gives_the_logits_of_every_token(llama: str) -> None:
    est = rl.estimate(llama, seq_len=24, batch=3)
    assert est.total().matmul_flops == forward(24, 24, logits=24, batch=3)
    assert dict(est.cases[0].options) == {"seq_len": 24}


def test_prefill_gives_the_last_tokens_logits_and_fills_the_cache(llama: str) -> None:
    est = rl.estimate(llama, seq_len=24, batch=3, mode="prefill")
    assert est.total().matmul_flops == forward(24, 24, logits=1, batch=3)
    assert est.memory is not None
    # Per layer keys and values of 3 * 2 * 24 * 16 * 4 B = 9,216 B: 18 blocks of 512 B exactly.
    assert est.memory.kv_cache == LAYERS * 2 * 9216


def test_decode_adds_one_token_to_the_cache(llama: str) -> None:
    est = rl.estimate(llama, seq_len=24, batch=3, mode="decode")
    assert est.total().matmul_flops == forward(1, 25, logits=1, batch=3)
    # The prompt was run before the step: nothing of it is in the records.
    attention = [r for r in est if r.kind == "attention"]
    assert sum(r.calls for r in attention) == LAYERS
    assert est.memory is not None
    # Both caches are alive while one layer's is made longer: 25 tokens take 3 * 2 * 25 * 16 * 4 = 9,600 B, 19 blocks.
    assert est.memory.kv_cache is not None
    assert est.memory.kv_cache >= LAYERS * 2 * 9216


def test_decode_reads_weights_and_cache(llama: str) -> None:
    est = rl.estimate(llama, seq_len=512, batch=1, mode="decode", dtype="bf16")
    (attention,) = {r.work.bytes["dram"] for r in est if r.kind == "attention" and r.work is not None}
    # Keys and values of 513 tokens for 2 heads of 16, a query and an output of 4 heads.
    assert attention == 2 * 513 * 2 * 16 * 2 + 2 * 4 * 16 * 2


def test_training_a_language_model(llama: str) -> None:
    est = rl.estimate(llama, seq_len=24, batch=3, mode="train")
    assert est.total("forward").matmul_flops == forward(24, 24, logits=24, batch=3)
    # Every product has two gradients: the embedding before the first is a look-up, whose output needs one too.
    assert est.total("backward").matmul_flops == 2 * forward(24, 24, logits=24, batch=3)


def test_a_405_billion_parameter_model_is_counted_without_its_weights(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 16384,
        "intermediate_size": 53248,
        "num_hidden_layers": 126,
        "num_attention_heads": 128,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    est = rl.estimate(f"hf:{tmp_path / 'config.json'}", seq_len=8192, mode="prefill", dtype="bf16")
    width, tokens = 16384, 8192
    weights = 2 * width * width + 2 * width * 1024 + 3 * width * 53248
    products = 126 * (2 * tokens * weights + 4 * tokens**2 * width) + 2 * width * 128256
    assert est.total().matmul_flops == products
    # Embedding and head, 126 layers with two norms each, and a last norm.
    assert est.parameters == 2 * width * 128256 + 126 * (weights + 2 * width) + width == 405_853_388_800
    assert est.coverage.uncounted == ()


@pytest.mark.parametrize("mode", ["inference", "prefill", "decode", "train"])
def test_every_mode_can_be_measured(llama: str, mode: str) -> None:
    found = rl.measure(llama, seq_len=16, batch=2, mode=mode, device="cpu", budget=0.1, estimate=True)
    estimated, measured = (found.where(source=source).cases for source in ("estimate", "measure"))
    assert [c.mode for c in measured] == [mode]
    assert [c.options for c in estimated] == [c.options for c in measured]


def test_the_cache_is_as_long_in_every_sample(llama: str) -> None:
    from rooflens.models import build, eager, find, make_example, make_step
    from rooflens.runs.options import Options

    blueprint = find(llama, Options(seq_len=16), mode="decode")
    example = make_example(blueprint, 1, "cpu")
    step = make_step(llama, build(blueprint, "cpu"), example, dtype="fp32", mode="decode", loss=blueprint.loss)
    lengths: list[int] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def spying(query: torch.Tensor, key: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        lengths.append(key.shape[-2])
        return attention(query, key, *args, **kwargs)  # type: ignore[arg-type]

    run = eager(step, "cpu").once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", spying)
        for _ in range(3):
            run(lambda: None)
    assert lengths == [17] * 3 * LAYERS


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_other_models_have_no_cache(mode: str) -> None:
    with pytest.raises(InvalidValue, match="needs a language model"):
        rl.estimate("resnet18", mode=mode)
    with pytest.raises(InvalidValue, match="needs a language model"):
        rl.estimate(torch.nn.Linear(1, 1), inputs=torch.ones(1, 1), mode=mode)


def test_a_model_that_fills_no_cache_is_counted_all_the_same(tmp_path: Path) -> None:
    small = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 50,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "bert", **small}))
    est = rl.estimate(f"hf:{path}", seq_len=8)
    # q, k, v and output, the MLP, and the head's square layer and vocabulary for 8 tokens;
    # 8 x 8 pairs of 2 x 16.
    weights = 4 * 16 * 16 + 2 * 16 * 32 + 16 * 16 + 16 * 50
    assert est.total().matmul_flops == 2 * 8 * weights + 2 * 8 * 8 * 2 * 16
    with pytest.raises((InvalidValue, ModelError), match="cache"):
        rl.estimate(f"hf:{path}", seq_len=8, mode="decode")
