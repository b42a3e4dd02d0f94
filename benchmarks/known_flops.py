"""Matrix FLOP and cache bytes of the well-known models by closed forms, one per family, beside those of an estimate.

    python benchmarks/known_flops.py [NAME]...

Each is of a decoding step of one sequence with 640 tokens in its cache, which is more than some windows, and of prefill
of as many; models that do not generate are run as a whole. The forms are written from the papers and configurations,
independent of how rooflens counts. Writes benchmarks/results/known_flops.json, and exits with 1 if a number differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rooflens as rl
from rooflens.known_models import KnownModel, known_models

RESULTS = Path(__file__).parent / "results" / "known_flops.json"
TOKENS = 640
WORDS = 64
"""Tokens of models that read them once."""
BF16 = 2


class Reading(NamedTuple):
    """Tokens that a step reads, and those that each of them may see."""

    new: int
    seen: int


DECODE, PREFILL = Reading(1, TOKENS + 1), Reading(TOKENS, TOKENS)
Form = Callable[[Any, Reading], float]
Bytes = Callable[[Any], float]


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


def attended(c: Any, r: Reading) -> Any:
    """Scores and sums of the values, of all layers; those of a prompt under a mask are counted in full."""
    seen = keys(c) if r.new == 1 else [r.seen] * c.num_hidden_layers
    return r.new * sum(2 * c.num_attention_heads * head(c) * n for n in seen)


def decoder(c: Any, r: Reading, layer: int) -> Any:
    """Layers, attention, and the head for the last token."""
    return r.new * c.num_hidden_layers * layer + attended(c, r) + c.hidden_size * c.vocab_size


def gated(c: Any, r: Reading) -> Any:
    return decoder(c, r, projections(c) + 3 * c.hidden_size * c.intermediate_size)


def experts(c: Any, r: Reading, count: int, width: int) -> Any:
    """A router, and as many gated experts as a token has."""
    d = c.hidden_size
    return decoder(c, r, projections(c) + d * count + c.num_experts_per_tok * 3 * d * width)


def mixture(c: Any) -> tuple[int, int]:
    return c.num_experts, c.moe_intermediate_size


def plain(c: Any, r: Reading) -> Any:
    """Attention of full width, and an MLP of two matrices."""
    d = c.hidden_size
    inner = getattr(c, "intermediate_size", None) or getattr(c, "n_inner", None) or 4 * d
    return r.new * c.num_hidden_layers * (4 * d * d + 2 * d * inner + 2 * d * r.seen) + d * c.vocab_size


def falcon(c: Any, r: Reading) -> Any:
    d = c.hidden_size
    kv = c.num_kv_heads if c.new_decoder_architecture else 1
    layer = d * (d + 2 * kv * (d // c.num_attention_heads)) + d * d + 8 * d * d
    return r.new * c.num_hidden_layers * (layer + 2 * d * r.seen) + d * c.vocab_size


def latent(c: Any, r: Reading) -> Any:
    """Latents of all tokens are expanded to keys and values of every head."""
    d, heads, query = c.hidden_size, c.num_attention_heads, c.qk_nope_head_dim + c.qk_rope_head_dim
    rank, narrow = c.q_lora_rank, c.kv_lora_rank
    layer = d * heads * query if rank is None else d * rank + rank * heads * query
    layer += d * (narrow + c.qk_rope_head_dim) + heads * c.v_head_dim * d
    layer += r.seen * heads * (query + c.v_head_dim)
    expanded = r.seen * heads * narrow * (c.qk_nope_head_dim + c.v_head_dim)
    expert, dense = 3 * d * c.moe_intermediate_size, c.first_k_dense_replace
    mixture = d * c.n_routed_experts + (c.num_experts_per_tok + c.n_shared_experts) * expert
    mlps = dense * 3 * d * c.intermediate_size + (c.num_hidden_layers - dense) * mixture
    return c.num_hidden_layers * (r.new * layer + expanded) + r.new * mlps + d * c.vocab_size


def llama4(c: Any, r: Reading) -> Any:
    """transformers computes every expert for every token."""
    d, mixtures = c.hidden_size, len(c.moe_layers)
    expert = 3 * d * c.intermediate_size
    mlps = mixtures * (d * c.num_local_experts + (c.num_local_experts + 1) * expert)
    mlps += (c.num_hidden_layers - mixtures) * 3 * d * c.intermediate_size_mlp
    return decoder(c, r, projections(c)) + r.new * mlps


def convolved(c: Any, r: Reading) -> int:
    """Results of a short convolution: one token gives two, of which one is used; a prompt gives the ends' too."""
    return 2 if r.new == 1 else r.new + int(c.conv_kernel) - 1


def mamba(c: Any, r: Reading) -> Any:
    """In, B, C and the time step, and out; the state with C; a convolution."""
    d, inner = c.hidden_size, c.intermediate_size
    layer = d * 2 * inner + inner * (c.time_step_rank + 2 * c.state_size) + c.time_step_rank * inner + inner * d
    layer += inner * c.state_size
    return c.num_hidden_layers * (r.new * layer + convolved(c, r) * c.conv_kernel * inner) + d * c.vocab_size


def mamba2(c: Any, r: Reading) -> Any:
    """A prompt is cut into chunks: C meets B, and that meets x, within each; states of chunks are made, meet those of
    all others, and meet C. A single token is C and the state.
    """
    d, inner = c.hidden_size, int(c.expand * c.hidden_size)
    wide, state = inner + 2 * c.n_groups * c.state_size, inner * c.state_size
    layer = r.new * (d * (inner + wide + c.num_heads) + inner * d) + convolved(c, r) * c.conv_kernel * wide
    if r.new == 1:
        layer += state
    else:
        chunks = -(-r.new // c.chunk_size)
        padded = chunks * c.chunk_size
        layer += padded * c.chunk_size * (c.num_heads * c.state_size + inner) + 2 * padded * state
        layer += (chunks + 1) ** 2 * state
    return c.num_hidden_layers * layer + d * c.vocab_size


def bert(c: Any, _: Reading) -> Any:
    d = c.hidden_size
    layer = 4 * d * d + 2 * d * c.intermediate_size + 2 * d * WORDS
    return WORDS * (c.num_hidden_layers * layer + d * d + d * c.vocab_size)


def t5(c: Any, r: Reading) -> Any:
    """The decoder, which asks as many tokens of the encoder; their keys and values are in its cache.

    In prefill the encoder reads its tokens, and the decoder as many, with logits for all.
    """
    d, inner = c.d_model, c.num_heads * c.d_kv
    own, asked = 4 * d * inner + 2 * inner * r.seen, 2 * d * inner + 2 * inner * TOKENS
    decoded = r.new * (c.num_decoder_layers * (own + asked + 2 * d * c.d_ff) + d * c.vocab_size)
    if r.new == 1:
        return decoded
    read = c.num_layers * (4 * d * inner + 2 * inner * TOKENS + 2 * d * c.d_ff) + c.num_decoder_layers * 2 * d * inner
    return decoded + TOKENS * read


def whisper(c: Any, r: Reading) -> Any:
    """The decoder; in prefill the encoder hears all of its positions first, behind two convolutions."""
    d, heard = c.d_model, c.max_source_positions
    new, seen = (1, HEARD + 1) if r.new == 1 else (HEARD, HEARD)
    own, asked = 4 * d * d + 2 * d * seen, 2 * d * d + 2 * d * heard
    decoded = new * (c.decoder_layers * (own + asked + 2 * d * c.decoder_ffn_dim) + d * c.vocab_size)
    if r.new == 1:
        return decoded
    front = 2 * heard * 3 * c.num_mel_bins * d + heard * 3 * d * d + c.decoder_layers * heard * 2 * d * d
    return decoded + front + encoder(heard, c.encoder_layers, d, c.encoder_ffn_dim)


HEARD = 128
"""Tokens that the decoder of whisper has written, of at most 448."""


def encoder(tokens: int, layers: int, d: int, inner: int) -> Any:
    return tokens * layers * (4 * d * d + 2 * d * inner + 2 * d * tokens)


def tower(c: Any) -> tuple[int, int]:
    """Multiply-adds of an encoder of patches, and its width."""
    d, patches = c.hidden_size, (c.image_size // c.patch_size) ** 2
    layers = encoder(patches + 1, c.num_hidden_layers, d, c.intermediate_size)
    return patches * 3 * c.patch_size**2 * d + layers, d


def seeing(c: Any, r: Reading, text: float, image: Callable[[Any], float]) -> float:
    """A text model whose prompt has an image."""
    return text + (image(c) if r.new > 1 else 0)


IMAGE = 448
"""Its height and width for Qwen's models, which take any."""


def qwen2_5_vl_tower(c: Any) -> Any:
    """Two frames of patches; all but a few layers see windows; four neighbours become one token."""
    v, n = c.vision_config, (IMAGE // c.vision_config.patch_size) ** 2
    d, whole, window = v.hidden_size, len(v.fullatt_block_indexes), (v.window_size // v.patch_size) ** 2
    seen = whole * n + (v.depth - whole) * window
    layers = v.depth * (4 * d * d + 3 * d * v.intermediate_size) + 2 * d * seen
    return n * (2 * 3 * v.patch_size**2 * d + layers) + n // 4 * 4 * d * (4 * d + v.out_hidden_size)


def qwen3_vl_tower(c: Any) -> Any:
    """The same without windows, and some layers have tokens of their own made of four neighbours."""
    v, n = c.vision_config, (IMAGE // c.vision_config.patch_size) ** 2
    d, mergers = v.hidden_size, 1 + len(v.deepstack_visual_indexes)
    patches = n * 2 * 3 * v.patch_size**2 * d
    return (
        patches + encoder(n, v.depth, d, v.intermediate_size) + mergers * n // 4 * 4 * d * (4 * d + v.out_hidden_size)
    )


def gemma3_tower(c: Any) -> Any:
    v, n = c.vision_config, (c.vision_config.image_size // c.vision_config.patch_size) ** 2
    d = v.hidden_size
    patches = n * 3 * v.patch_size**2 * d
    layers = encoder(n, v.num_hidden_layers, d, v.intermediate_size)
    return patches + layers + c.mm_tokens_per_image * d * c.text_config.hidden_size


def vit(c: Any, _: Reading) -> Any:
    layers, d = tower(c)
    return layers + d * c.num_labels


def clip(c: Any, _: Reading) -> Any:
    t = c.text_config
    vision, w = tower(c.vision_config)
    text = encoder(WORDS, t.num_hidden_layers, t.hidden_size, t.intermediate_size)
    return vision + text + (t.hidden_size + w) * c.projection_dim + c.projection_dim  # one likeness


MULTIPLY_ADDS: dict[str, Form] = {
    **dict.fromkeys(("llama", "mistral", "phi3", "qwen2", "qwen3", "gemma2", "gemma3_text"), gated),
    "qwen2_5_vl": lambda c, r: seeing(c, r, gated(c.text_config, r), qwen2_5_vl_tower),
    "qwen3_vl": lambda c, r: seeing(c, r, gated(c.text_config, r), qwen3_vl_tower),
    "gemma3": lambda c, r: seeing(c, r, gated(c.text_config, r), gemma3_tower),
    "mixtral": lambda c, r: experts(c, r, c.num_local_experts, c.intermediate_size),
    "gpt_oss": lambda c, r: experts(c, r, c.num_local_experts, c.intermediate_size),
    "qwen3_moe": lambda c, r: experts(c, r, c.num_experts, c.moe_intermediate_size),
    "qwen3_vl_moe": lambda c, r: seeing(c, r, experts(c.text_config, r, *mixture(c.text_config)), qwen3_vl_tower),
    "llama4": lambda c, r: llama4(c.text_config, r),
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


CACHES: dict[str, Bytes] = {
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


def estimated(model: KnownModel, name: str | None = None, mode: str = "decode") -> rl.RecordSet:
    """The step of a model, or of one of its family by the name of a configuration."""
    if model.family not in CACHES:
        return rl.estimate(name or model.name, dtype="bf16", seq_len=None if model.family == "vit" else WORDS)
    tokens = HEARD if model.family == "whisper" else TOKENS
    return rl.estimate(name or model.name, mode=mode, dtype="bf16", seq_len=tokens)


def compared(model: KnownModel, config: Any = None, name: str | None = None) -> dict[str, Any]:
    """Both numbers, as an estimate has them and by closed form."""
    config, found, form = config or configuration(model), estimated(model, name), MULTIPLY_ADDS[model.family]
    row = {"name": model.name, "matmul_flops": found.total().matmul_flops, "flops_by_form": 2 * form(config, DECODE)}
    if model.family not in CACHES:
        return row | {"cache": None, "cache_by_form": None, "prefill": None, "prefill_by_form": None}
    assert found.kv_cache is not None
    row |= {"cache": found.kv_cache.used, "cache_by_form": CACHES[model.family](config)}
    prefill = estimated(model, name, "prefill").total().matmul_flops
    return row | {"prefill": prefill, "prefill_by_form": 2 * form(config, PREFILL)}


PAIRS = (("matmul_flops", "flops_by_form"), ("cache", "cache_by_form"), ("prefill", "prefill_by_form"))


def equal(row: dict[str, Any]) -> bool:
    return all(row[counted] == row[by_form] for counted, by_form in PAIRS)


def main() -> int:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {row["name"]: row for row in known}
    for model in known_models():
        if model.name in sys.argv[1:] or (len(sys.argv) == 1 and "prefill" not in rows.get(model.name, {})):
            rows[model.name] = compared(model)
            print("equal" if equal(rows[model.name]) else "DIFFERENT", json.dumps(rows[model.name]), flush=True)
            lines = ",\n".join(json.dumps(rows[name]) for name in sorted(rows))
            RESULTS.write_text(f"[\n{lines}\n]\n")
    return int(not all(map(equal, rows.values())))


if __name__ == "__main__":
    sys.exit(main())
