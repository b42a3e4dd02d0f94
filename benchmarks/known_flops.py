"""Matrix FLOP and cache bytes of the well-known models by closed forms, one per family, beside those of an estimate.

    python benchmarks/known_flops.py [NAME]...

Each is of a decoding step of one sequence with 640 tokens in its cache, which is more than some windows; models that do
not generate are run as a whole. The forms are written from the papers and configurations, independent of how rooflens
counts. Writes benchmarks/results/known_flops.json, and exits with 1 if a number differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rooflens as rl
from rooflens.known_models import KnownModel, known_models

RESULTS = Path(__file__).parent / "results" / "known_flops.json"
TOKENS = 640
WORDS = 64
"""Tokens of models that read them once."""
BF16 = 2
Form = Callable[[Any], float]


def head(c: Any) -> Any:
    """Width of a head."""
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def keys(c: Any) -> Iterator[int]:
    """The keys that the new token of a decoding step sees in each layer: all, or those of its window."""
    kinds = getattr(c, "layer_types", None) or ["full_attention"] * c.num_hidden_layers
    window = getattr(c, "sliding_window", None)
    for kind in kinds:
        yield min(TOKENS + 1, window) if kind == "sliding_attention" and window else TOKENS + 1


def projections(c: Any) -> Any:
    """Query, key, value and output."""
    return 2 * c.hidden_size * head(c) * (c.num_attention_heads + c.num_key_value_heads)


def attended(c: Any) -> Any:
    """Scores and sums of the values, of all layers."""
    return sum(2 * c.num_attention_heads * head(c) * n for n in keys(c))


def decoder(c: Any, layer: int) -> Any:
    """Layers, attention, and the head."""
    return c.num_hidden_layers * layer + attended(c) + c.hidden_size * c.vocab_size


def gated(c: Any) -> Any:
    return decoder(c, projections(c) + 3 * c.hidden_size * c.intermediate_size)


def experts(c: Any, count: int, width: int) -> Any:
    """A router, and as many gated experts as a token has."""
    d = c.hidden_size
    return decoder(c, projections(c) + d * count + c.num_experts_per_tok * 3 * d * width)


def plain(c: Any) -> Any:
    """Attention of full width, and an MLP of two matrices."""
    d = c.hidden_size
    inner = getattr(c, "intermediate_size", None) or getattr(c, "n_inner", None) or 4 * d
    return c.num_hidden_layers * (4 * d * d + 2 * d * inner + 2 * d * (TOKENS + 1)) + d * c.vocab_size


def falcon(c: Any) -> Any:
    d = c.hidden_size
    kv = c.num_kv_heads if c.new_decoder_architecture else 1
    layer = d * (d + 2 * kv * (d // c.num_attention_heads)) + d * d + 8 * d * d
    return c.num_hidden_layers * (layer + 2 * d * (TOKENS + 1)) + d * c.vocab_size


def latent(c: Any) -> Any:
    """Latents of all tokens are expanded to keys and values of every head."""
    d, heads, query = c.hidden_size, c.num_attention_heads, c.qk_nope_head_dim + c.qk_rope_head_dim
    rank, narrow = c.q_lora_rank, c.kv_lora_rank
    layer = d * heads * query if rank is None else d * rank + rank * heads * query
    layer += d * (narrow + c.qk_rope_head_dim) + heads * c.v_head_dim * d
    layer += (TOKENS + 1) * heads * (narrow * (c.qk_nope_head_dim + c.v_head_dim) + query + c.v_head_dim)
    expert, dense = 3 * d * c.moe_intermediate_size, c.first_k_dense_replace
    mixture = d * c.n_routed_experts + (c.num_experts_per_tok + c.n_shared_experts) * expert
    mlps = dense * 3 * d * c.intermediate_size + (c.num_hidden_layers - dense) * mixture
    return c.num_hidden_layers * layer + mlps + d * c.vocab_size


def llama4(c: Any) -> Any:
    """transformers computes every expert for every token."""
    d, mixtures = c.hidden_size, len(c.moe_layers)
    expert = 3 * d * c.intermediate_size
    mlps = mixtures * (d * c.num_local_experts + (c.num_local_experts + 1) * expert)
    mlps += (c.num_hidden_layers - mixtures) * 3 * d * c.intermediate_size_mlp
    return decoder(c, projections(c)) + mlps


def mamba(c: Any) -> Any:
    """In, B, C and the time step, and out; the state with C; a convolution with two results, of which one is used."""
    d, inner = c.hidden_size, c.intermediate_size
    layer = d * 2 * inner + inner * (c.time_step_rank + 2 * c.state_size) + c.time_step_rank * inner + inner * d
    layer += inner * c.state_size + 2 * c.conv_kernel * inner
    return c.num_hidden_layers * layer + d * c.vocab_size


def mamba2(c: Any) -> Any:
    d, inner = c.hidden_size, int(c.expand * c.hidden_size)
    wide = inner + 2 * c.n_groups * c.state_size
    layer = d * (inner + wide + c.num_heads) + inner * d + inner * c.state_size + 2 * c.conv_kernel * wide
    return c.num_hidden_layers * layer + d * c.vocab_size


def bert(c: Any) -> Any:
    d = c.hidden_size
    layer = 4 * d * d + 2 * d * c.intermediate_size + 2 * d * WORDS
    return WORDS * (c.num_hidden_layers * layer + d * d + d * c.vocab_size)


def t5(c: Any) -> Any:
    """A step of the decoder, which asks as many tokens of the encoder; their keys and values are in the cache."""
    d, inner = c.d_model, c.num_heads * c.d_kv
    own, asked = 4 * d * inner + 2 * inner * (TOKENS + 1), 2 * d * inner + 2 * inner * TOKENS
    return c.num_decoder_layers * (own + asked + 2 * d * c.d_ff) + d * c.vocab_size


def whisper(c: Any) -> Any:
    d = c.d_model
    own, asked = 4 * d * d + 2 * d * (HEARD + 1), 2 * d * d + 2 * d * c.max_source_positions
    return c.decoder_layers * (own + asked + 2 * d * c.decoder_ffn_dim) + d * c.vocab_size


HEARD = 128
"""Tokens that the decoder of whisper has written, of at most 448."""


def encoder(tokens: int, layers: int, d: int, inner: int) -> Any:
    return tokens * layers * (4 * d * d + 2 * d * inner + 2 * d * tokens)


def tower(c: Any) -> tuple[int, int]:
    """Multiply-adds of an encoder of patches, and its width."""
    d, patches = c.hidden_size, (c.image_size // c.patch_size) ** 2
    layers = encoder(patches + 1, c.num_hidden_layers, d, c.intermediate_size)
    return patches * 3 * c.patch_size**2 * d + layers, d


def vit(c: Any) -> Any:
    layers, d = tower(c)
    return layers + d * c.num_labels


def clip(c: Any) -> Any:
    t = c.text_config
    vision, w = tower(c.vision_config)
    text = encoder(WORDS, t.num_hidden_layers, t.hidden_size, t.intermediate_size)
    return vision + text + (t.hidden_size + w) * c.projection_dim + c.projection_dim  # one likeness


MULTIPLY_ADDS: dict[str, Form] = {
    **dict.fromkeys(("llama", "mistral", "phi3", "qwen2", "qwen3", "gemma2", "gemma3_text"), gated),
    **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "gemma3"), lambda c: gated(c.text_config)),
    "mixtral": lambda c: experts(c, c.num_local_experts, c.intermediate_size),
    "gpt_oss": lambda c: experts(c, c.num_local_experts, c.intermediate_size),
    "qwen3_moe": lambda c: experts(c, c.num_experts, c.moe_intermediate_size),
    "qwen3_vl_moe": lambda c: experts(c.text_config, c.text_config.num_experts, c.text_config.moe_intermediate_size),
    "llama4": lambda c: llama4(c.text_config),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), latent),
    **dict.fromkeys(("gpt2", "gpt_neox", "phi"), plain),
    "falcon": falcon,
    "mamba": mamba,
    "mamba2": mamba2,
    **dict.fromkeys(("bert", "roberta"), bert),
    "t5": t5,
    "whisper": whisper,
    "clip": clip,
    "vit": vit,
}
"""Of a step, by family."""


def kept(c: Any) -> Any:
    """Keys and values of grouped heads, in bytes at the end of the step; a window keeps one less than it sees."""
    window = getattr(c, "sliding_window", None)
    each = (n - (n < TOKENS + 1 or n == window) for n in keys(c))
    heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    return sum(2 * heads * head(c) * n * BF16 for n in each)


def kept_by_falcon(c: Any) -> Any:
    """One head of 7B; the 8 of 40B are repeated for all others before transformers keeps them."""
    kept_heads = c.num_attention_heads if c.new_decoder_architecture else 1
    return c.num_hidden_layers * 2 * kept_heads * (c.hidden_size // c.num_attention_heads) * (TOKENS + 1) * BF16


def kept_latents(c: Any) -> Any:
    return c.num_hidden_layers * (c.kv_lora_rank + c.qk_rope_head_dim) * (TOKENS + 1) * BF16


def states(c: Any) -> Any:
    """A state in fp32 and the last inputs of the convolution in bf16; no token adds to them."""
    inner = c.intermediate_size if c.model_type == "mamba" else int(c.expand * c.hidden_size)
    wide = inner if c.model_type == "mamba" else inner + 2 * c.n_groups * c.state_size
    return c.num_hidden_layers * (4 * inner * c.state_size + BF16 * wide * c.conv_kernel)


def both_kept(layers: int, width: int, own: int, asked: int) -> Any:
    return layers * 2 * width * (own + asked) * BF16


CACHES: dict[str, Form] = {
    **dict.fromkeys(
        ("llama", "mistral", "phi3", "qwen2", "qwen3", "gemma2", "gemma3_text", "mixtral", "gpt_oss", "qwen3_moe"), kept
    ),
    **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "gemma3", "llama4"), lambda c: kept(c.text_config)),
    **dict.fromkeys(("gpt2", "gpt_neox", "phi"), kept),
    "falcon": kept_by_falcon,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), kept_latents),
    **dict.fromkeys(("mamba", "mamba2"), states),
    "t5": lambda c: both_kept(c.num_decoder_layers, c.num_heads * c.d_kv, TOKENS + 1, TOKENS),
    "whisper": lambda c: both_kept(c.decoder_layers, c.d_model, HEARD + 1, c.max_source_positions),
}
"""Bytes that a cache keeps in 16 bits, by family; the others generate nothing."""


def configuration(model: KnownModel) -> Any:
    from transformers import AutoConfig

    fields = dict(model.config)
    return AutoConfig.for_model(fields.pop("model_type"), **fields)


def estimated(model: KnownModel, name: str | None = None) -> rl.RecordSet:
    """The step of a model, or of one of its family by the name of a configuration."""
    if model.family not in CACHES:
        return rl.estimate(name or model.name, dtype="bf16", seq_len=None if model.family == "vit" else WORDS)
    tokens = HEARD if model.family == "whisper" else TOKENS
    return rl.estimate(name or model.name, mode="decode", dtype="bf16", seq_len=tokens)


def compared(model: KnownModel, config: Any = None, name: str | None = None) -> dict[str, Any]:
    """Both numbers, as an estimate has them and by closed form."""
    config, found = config or configuration(model), estimated(model, name)
    cache = found.kv_cache
    return {
        "name": model.name,
        "matmul_flops": found.total().matmul_flops,
        "flops_by_form": 2 * MULTIPLY_ADDS[model.family](config),
        "cache": None if cache is None else cache.used,
        "cache_by_form": CACHES[model.family](config) if model.family in CACHES else None,
    }


def equal(row: dict[str, Any]) -> bool:
    return bool(row["matmul_flops"] == row["flops_by_form"] and row["cache"] == row["cache_by_form"])


def main() -> int:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {row["name"]: row for row in known}
    for model in known_models():
        if model.name in sys.argv[1:] or (len(sys.argv) == 1 and model.name not in rows):
            rows[model.name] = compared(model)
            print("equal" if equal(rows[model.name]) else "DIFFERENT", json.dumps(rows[model.name]), flush=True)
            lines = ",\n".join(json.dumps(rows[name]) for name in sorted(rows))
            RESULTS.write_text(f"[\n{lines}\n]\n")
    return int(not all(map(equal, rows.values())))


if __name__ == "__main__":
    sys.exit(main())
