"""The floor of prefill and decode: weights once, the valid part of the cache once, new values appended in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl

pytest.importorskip("transformers")

BATCH, TOKENS, WIDTH, INNER, WORDS, LAYERS, BF16 = 2, 16, 64, 128, 100, 2, 2
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": INNER,
    "vocab_size": WORDS,
    "max_position_embeddings": 4096,
}


def decode(folder: Path, config: dict[str, Any], **options: Any) -> rl.RecordSet:
    path = folder / f"{config['model_type']}.json"
    path.write_text(json.dumps(config))
    settings: dict[str, Any] = {"mode": "decode", "batch": BATCH, "seq_len": TOKENS, "dtype": "bf16"} | options
    return rl.estimate(f"hf:{path}", **settings)


def needed(records: rl.RecordSet, *names: str) -> float:
    """Bytes that every implementation needs of some operations, or of all."""
    chosen = [r for r in records if r.scope == "op" and (not names or r.name in names)]
    return sum(work.bytes["dram"] * r.calls for r in chosen if (work := r.bound_work) is not None)


def product(inputs: int, outputs: int) -> int:
    """A token of each sequence in, one out, and the weight."""
    return BF16 * (BATCH * (inputs + outputs) + inputs * outputs)


def llama_bytes(heads: int, width: int, kept: list[int]) -> int:
    """Every product once; per layer the cache of so many tokens read, a new key and value appended and read."""
    weights = product(WIDTH, WIDTH) * 2 + product(WIDTH, heads * width) * 2 + product(WIDTH, INNER) * 3
    token = 2 * BATCH * heads * width * BF16
    layers = sum(weights + tokens * token + 3 * token + 2 * BATCH * WIDTH * BF16 for tokens in kept)
    embedding = BATCH * (8 + 2 * WIDTH * BF16)  # the number of a word, and its vector read and written
    return layers + embedding + product(WIDTH, WORDS)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("heads", [4, 2, 1])
def test_weights_once_and_the_cache_once_however_attention_is_written(
    tmp_path: Path, attention: str, heads: int
) -> None:
    config = LLAMA | {"num_key_value_heads": heads, "attn_implementation": attention}
    records = decode(tmp_path, config)
    assert needed(records) == llama_bytes(heads, 16, [TOKENS] * LAYERS)
    assert records.total().surplus["cache copies"].bytes > 0


def test_the_code_appends_by_copying_the_cache(tmp_path: Path) -> None:
    # Keys and values of each layer are read and written with one token more; a new token alone is needed.
    surplus = decode(tmp_path, LLAMA).total().surplus["cache copies"]
    token = BATCH * 2 * 16 * BF16
    assert surplus.bytes == 2 * LAYERS * 2 * TOKENS * token
    # The same in fp32 moves twice as much.
    assert decode(tmp_path, LLAMA, dtype="fp32").total().surplus["cache copies"].bytes == 2 * surplus.bytes


def test_a_sliding_window_is_read_and_nothing_before_it(tmp_path: Path) -> None:
    # A window of 8 with the new token: 7 of the 16 tokens are kept.
    config = LLAMA | {"model_type": "mistral", "sliding_window": 8, "head_dim": 16}
    assert needed(decode(tmp_path, config)) == llama_bytes(2, 16, [7, 7])


def test_layers_that_alternate_read_their_own_windows(tmp_path: Path) -> None:
    config = LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8, "num_hidden_layers": 4}
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    records = decode(tmp_path, config | {"layer_types": kinds})
    read = needed(records, "attention")
    token, query = 2 * BATCH * 2 * 16 * BF16, 2 * BATCH * WIDTH * BF16
    assert read == sum((kept + 1) * token + query for kept in (7, 7, 7, TOKENS))


def test_a_cache_of_seven_billion_on_an_a100(tmp_path: Path) -> None:
    # ../shared/faults/decode_floor.py with 2 of 32 layers. In fp16, batch 64, 1152 tokens: weights but for the table of
    # words, of which 64 rows are read, and the cache.
    config = LLAMA | {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000}
    records = decode(
        tmp_path,
        config | {"intermediate_size": 11008},
        batch=64,
        seq_len=1152,
        dtype="fp16",
        device="a100-sxm4-80gb",
    )
    weights = 2 * (LAYERS * (4 * 4096 * 4096 + 3 * 4096 * 11008) + 4096 * 32000)
    cache = 2 * LAYERS * 64 * 1152 * 4096 * 2
    once = (weights + cache) / 2.039e12
    assert once <= (records.total().seconds or 0) <= 1.02 * once


def test_explain_prints_the_formula_of_the_floor(tmp_path: Path) -> None:
    records = decode(tmp_path, LLAMA | {"attn_implementation": "eager"}, device="a100-sxm4-80gb")
    text = " ".join(rl.explain(records, path="model.layers.0.self_attn").text.split())
    token = BATCH * 2 * 16 * BF16
    assert f"new values are read and written, {2 * token} B." in text
    assert f"The valid part of the cache is read once in a step: {TOKENS * token:,} B of it here" in text
    assert "(cache copies)" in text


def test_prefill_makes_no_pass_for_what_is_element_wise(tmp_path: Path) -> None:
    plain, eager = (
        decode(tmp_path, LLAMA | {"attn_implementation": kind}, mode="prefill") for kind in ("sdpa", "eager")
    )
    assert needed(plain, "mul", "add", "pow", "mean", "rsqrt", "silu", "cos", "_to_copy", "cat") == 0
    assert plain.total().surplus.keys() == {"element-wise passes"}
    # Attention by hand makes a matrix of 16 x 16 weights per head; one kernel does not.
    assert needed(eager, "bmm") == needed(plain, "attention")


# Latents of 32, a shared rotary key of 8; 4 heads of 16 + 8 for keys and 16 for values; 17 tokens with the new one.
LATENT: dict[str, Any] = LLAMA | {
    "model_type": "deepseek_v2",
    "num_key_value_heads": 4,
    "num_hidden_layers": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}


def flops(records: rl.RecordSet, *names: str, path: str = "") -> tuple[float, float]:
    """Matrix FLOP of some operations in a module as written, and as every implementation needs them."""
    chosen = [r for r in records if r.scope == "op" and r.name in names and r.path.endswith(path)]
    works = [(r.written, r.bound_work, r.calls) for r in chosen]
    return (
        sum(written.matmul_flops * calls for written, _, calls in works if written),
        sum(least.matmul_flops * calls for _, least, calls in works if least),
    )


@pytest.mark.parametrize(
    ("family", "attention"), [("deepseek_v2", "sdpa"), ("deepseek_v3", "sdpa"), ("deepseek_v2", "eager")]
)
def test_the_projection_of_latents_is_absorbed_into_a_new_token(tmp_path: Path, family: str, attention: str) -> None:
    records = decode(tmp_path, LATENT | {"model_type": family, "attn_implementation": attention})
    rows, pairs = BATCH * 4, BATCH * 4 * 17  # new tokens times heads, and each of these with every token
    # Expanding every token: 34 latents of 32 to 4 x (16 + 16). Absorbed: each query 16 x 32, each result 32 x 16.
    assert flops(records, "mm", path="kv_b_proj") == (2 * 34 * 32 * 4 * 32, 2 * rows * 32 * (16 + 16))
    # Scores and results at 24 and 16 a head; on latents at 32 + 8 and 32.
    attended = ("attention",) if attention == "sdpa" else ("bmm",)
    assert flops(records, *attended, path="self_attn") == (2 * pairs * (24 + 16), 2 * pairs * (40 + 32))
    # Latents and rotary keys are read once, by attention, with queries and results; of the projection the weight.
    latents, new = BATCH * TOKENS * (32 + 8) * BF16, BATCH * 8 * BF16
    assert needed(records, *attended) == latents + new + rows * (24 + 16) * BF16
    (projected,) = [r for r in records if r.path.endswith("kv_b_proj")]
    assert projected.bound_work is not None
    assert projected.bound_work.bytes["dram"] == 32 * 128 * BF16


def test_what_is_less_work_decides(tmp_path: Path) -> None:
    # Heads one wide, and two tokens. Expanded, a head's keys take 2 x 32 to make and 2 x (1 + 8) to use; absorbed, its
    # query takes 32 and its scores 2 x (32 + 8): expanding is less.
    narrow = {"qk_nope_head_dim": 1, "v_head_dim": 1}
    records = decode(tmp_path, LATENT | narrow, seq_len=1)
    assert flops(records, "mm", path="kv_b_proj") == (2 * 4 * 32 * 8,) * 2
    assert flops(records, "attention") == (2 * BATCH * 4 * 2 * (9 + 1),) * 2


def test_prefill_expands_its_latents(tmp_path: Path) -> None:
    # In prefill there are as many queries as tokens: absorbing saves nothing of the projection and adds to attention.
    records = decode(tmp_path, LATENT, mode="prefill")
    written, least = flops(records, "mm", path="kv_b_proj")
    assert written == least == 2 * 32 * 32 * 128
    written, least = flops(records, "attention")
    assert written == least


EXPERTS: dict[str, Any] = LLAMA | {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 1,
    "head_dim": 16,
    "moe_intermediate_size": 32,
    "num_experts": 16,
    "num_experts_per_tok": 2,
}


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_experts_are_read_that_a_fair_router_is_expected_to_hit(tmp_path: Path, batch: int) -> None:
    # 2 of 16 for each token. One token hits 2; four hit 16 (1 - (7/8)^4) = 6.621; 64 nearly all.
    hit = 16 * (1 - (1 - 2 / 16) ** batch)
    records = decode(tmp_path, EXPERTS, batch=batch)
    rows = 2 * batch
    up, down = 64 * 2 * 32 * BF16, 32 * 64 * BF16  # weights of one expert: gate and up together, and down
    values = (rows * (2 * 32 + 32 + 64) + batch * 64) * BF16 + 2 * 16 * 4  # in and out of both, where groups end
    assert needed(records, "_grouped_mm") == pytest.approx(values + hit * (up + down), abs=2)
    assert any("fair router" in note for record in records for note in record.notes)
    # Tokens are put in the order of their experts and back; one kernel chooses and multiplies them (vLLM, SGLang).
    assert needed(records, "index") == 0
    assert needed(records, "embedding") == 2 * batch * 64 * BF16 + 8 * batch


def test_copies_of_experts_for_each_token_are_not_needed(tmp_path: Path) -> None:
    # A copy of an expert's weights for each of 8 rows is read from 16 and written; products need 6.621 experts.
    records = decode(tmp_path, EXPERTS | {"experts_implementation": "batched_mm"}, batch=4)
    copies = [r for r in records if r.name == "index" and r.path.endswith("experts")]
    assert sum(r.written.bytes["dram"] for r in copies if r.written) == 2 * 8 * (64 * 64 + 64 * 32) * BF16 + 2 * 8 * 8
    assert sum(r.bound_work.bytes["dram"] for r in copies if r.bound_work) == 0
    products = [r for r in records if r.name == "bmm" and r.path.endswith("experts")]
    weights, values = (64 * 64 + 64 * 32) * BF16, 8 * (64 + 64 + 32 + 64) * BF16
    read = 16 * (1 - (7 / 8) ** 4) * weights + values
    # Values that are repeated for the two experts of a token may be read in their small form.
    assert read - 4 * 64 * BF16 - 2 <= sum(r.bound_work.bytes["dram"] for r in products if r.bound_work) <= read


def test_explain_tells_how_many_experts_are_hit(tmp_path: Path) -> None:
    text = " ".join(rl.explain(decode(tmp_path, EXPERTS, batch=4), path="model.layers.0.mlp.experts").text.split())
    assert "4 tokens are sent to 2 of 16 experts each: 16 x (1 - (1 - 2 / 16)^4) = 6.621 are expected to be hit" in text


def attended(records: rl.RecordSet) -> tuple[float, float]:
    """Matrix FLOP of attention as written, and as every implementation needs them."""
    return flops(records, "attention", "bmm", path="self_attn")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("config", "pairs"),
    [
        # 16 tokens, each with itself and those before it: 16 x 17 / 2. sdpa is told so by its argument, not by a mask.
        ({"model_type": "llama"}, 136),
        # A window of 8: 1, 2 ... 8 keys for the first 8 queries, 8 for the other 8.
        ({"model_type": "mistral", "sliding_window": 8, "head_dim": 16}, 36 + 64),
        # A window that is longer than the sequence is a causal mask.
        ({"model_type": "mistral", "sliding_window": 64, "head_dim": 16}, 136),
    ],
)
def test_prefill_counts_the_pairs_inside_of_window_and_mask(
    tmp_path: Path, config: dict[str, Any], pairs: int, attention: str
) -> None:
    records = decode(tmp_path, LLAMA | config | {"attn_implementation": attention}, mode="prefill")
    each = LAYERS * BATCH * 4 * 2 * (16 + 16)  # layers, sequences, heads, FLOP for a pair
    written, least = attended(records)
    assert least == pytest.approx(each * pairs)
    assert written in (each * TOKENS * TOKENS, each * pairs)
    assert records.total().matmul_flops == decode(tmp_path, LLAMA | config, mode="prefill").total().matmul_flops


def test_chunks_are_known_where_nothing_is_padded(tmp_path: Path) -> None:
    # Llama 4: chunks of 8, so 2 x 8 x 9 / 2 pairs of 16 tokens; in every fourth layer all 136 that are causal.
    config = LLAMA | {"model_type": "llama4_text", "num_hidden_layers": 4, "head_dim": 16, "attention_chunk_size": 8}
    records = decode(tmp_path, config | {"intermediate_size_mlp": 64, "num_local_experts": 4}, mode="prefill")
    pairs = 3 * 72 + 136
    assert attended(records)[1] == pytest.approx(BATCH * 4 * 2 * (16 + 16) * pairs)


def test_a_mask_that_sees_both_ways_is_not_halved(tmp_path: Path) -> None:
    config = LLAMA | {"is_causal": False, "attn_implementation": "eager"}
    records = decode(tmp_path, config, mode="prefill")
    written, least = attended(records)
    assert written == least == LAYERS * BATCH * 4 * 2 * (16 + 16) * TOKENS * TOKENS


def test_decode_reads_the_valid_part_of_a_cache_of_fixed_length(tmp_path: Path) -> None:
    # Room for 64 tokens: the new one sees 17 places, with itself, and 16 of them are read.
    fixed = decode(tmp_path, LLAMA, kv_cache="static", kv_cache_len=64)
    assert needed(fixed) == llama_bytes(2, 16, [TOKENS] * LAYERS)
    assert attended(fixed)[1] == pytest.approx(LAYERS * BATCH * 4 * 2 * (16 + 16) * 17)


def test_a_cache_of_repeated_heads_is_read_in_its_small_form(tmp_path: Path) -> None:
    # Falcon repeats its 2 heads of keys to the 8 of queries before it keeps them; other engines keep 2.
    config = LLAMA | {"model_type": "falcon", "num_attention_heads": 8, "num_kv_heads": 2, "num_hidden_layers": 1}
    records = decode(tmp_path, config | {"new_decoder_architecture": True, "bias": False, "parallel_attn": True})
    assert records.memory is not None
    token = 2 * BATCH * 2 * 8 * BF16  # keys and values of 2 heads, 8 wide
    assert records.memory.kv_cache == 4 * (TOKENS + 1) * token
    assert needed(records, "attention") == (TOKENS + 1) * token + 2 * BATCH * WIDTH * BF16
    # The new key and value of two heads are read and appended.
    assert sum(r.bound_work.bytes["dram"] * r.calls for r in records if r.name == "cat" and r.bound_work) == 2 * token


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_an_indexer_chooses_the_tokens_that_are_read(tmp_path: Path, attention: str) -> None:
    # GLM MoE DSA: of 17 tokens 4 are chosen for each new one, and only their latents are needed.
    chooser = {
        "model_type": "glm_moe_dsa",
        "q_lora_rank": 32,
        "index_topk": 4,
        "index_n_heads": 2,
        "index_head_dim": 16,
    }
    records = decode(tmp_path, LATENT | chooser | {"attn_implementation": attention})
    pairs = BATCH * 4 * 4
    names = ("attention",) if attention == "sdpa" else ("bmm",)
    assert flops(records, *names, path="self_attn")[1] == pytest.approx(2 * pairs * (40 + 32))
    token = (32 + 8) * BF16  # a latent and a rotary key
    values = BATCH * 4 * (24 + 16) * BF16
    inside = [r for r in records if r.path.endswith("self_attn") and r.name in names]
    read = sum(work.bytes["dram"] * r.calls for r in inside if (work := r.bound_work) is not None)
    # Four tokens, one of which may be the new one, as it was appended.
    assert BATCH * 3 * token <= read - values <= BATCH * 5 * token


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_sinks_beside_the_scores_hide_no_attention(tmp_path: Path, mode: str) -> None:
    # gpt-oss joins a column to the scores, takes the maximum of each row off them, and cuts the column off again.
    config = EXPERTS | {"model_type": "gpt_oss", "num_hidden_layers": 2, "num_key_value_heads": 2, "sliding_window": 8}
    config |= {"layer_types": ["sliding_attention", "full_attention"], "num_local_experts": 16}
    records = decode(tmp_path, config, mode=mode, seq_len=16)
    # Keys that the queries see: in prefill 1 to 16, of which the window lets 8 through.
    pairs, keys = (136 + 8 * 8 + 36, 2 * 16) if mode == "prefill" else (17 + 8, 17 + 8)
    queries = 16 if mode == "prefill" else 1
    assert flops(records, "bmm", path="self_attn")[1] == BATCH * pairs * 4 * 2 * 2 * 16
    # Queries and results of 4 heads in both layers, keys and values of 2 heads.
    assert needed(records, "bmm") == BATCH * 2 * 16 * BF16 * (2 * 4 * queries + 2 * keys)


def test_alibi_in_the_scores_hides_no_attention(tmp_path: Path) -> None:
    config = {"model_type": "bloom", "hidden_size": 64, "n_layer": 1, "n_head": 4, "vocab_size": WORDS}
    records = decode(tmp_path, config, mode="prefill", seq_len=16)
    moved = needed(records, "bmm") + needed(records, "baddbmm")
    assert BATCH * 16 * 64 * 4 * BF16 <= moved < 1.1 * BATCH * 16 * 64 * 4 * BF16  # and what ALiBi adds to a key


@pytest.mark.parametrize(
    "config",
    [
        # Both see 1 to 16 keys. Falcon adds ALiBi to a mask for sdpa; mpt to scores, and fills in the mask after it.
        {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "alibi": True}
        | {"multi_query": False, "parallel_attn": False, "new_decoder_architecture": False},
        {"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 1, "max_seq_len": 64},
    ],
)
def test_what_is_added_to_a_causal_mask_hides_as_much(tmp_path: Path, config: dict[str, Any]) -> None:
    records = decode(tmp_path, config | {"vocab_size": WORDS}, mode="prefill")
    written, least = flops(records, "attention", "bmm")
    assert written == BATCH * 4 * 16 * 16 * 2 * 2 * 16
    assert least == pytest.approx(BATCH * 4 * 136 * 2 * 2 * 16)
    # Queries, keys, values and result; of Falcon's ALiBi a number for each head and key, and no matrix.
    slopes = BATCH * 4 * 16 * BF16 if config["model_type"] == "falcon" else 0
    assert needed(records, "attention", "bmm") == 4 * BATCH * 16 * 64 * BF16 + slopes
    assert not any("pattern is not known" in note for note in records.notes)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    ("form", "pairs", "bias"),
    [
        ("learned", 136, True),  # a bias of each pair is read, and hides nothing: the mask beside it does
        ("filled", 136, False),
        ("shown again", 256, True),  # pairs of an input are joined to the causal ones: all may be seen
        ("given", 256, True),  # of an input of the user's nothing is known
    ],
)
def test_only_masks_of_places_hide_pairs_and_need_no_reading(form: str, pairs: int, bias: bool, eager: bool) -> None:
    torch = pytest.importorskip("torch")
    masking = pytest.importorskip("transformers.masking_utils")

    class Attention(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, values: Any, given: Any) -> Any:
            sizes = {"batch_size": 1, "q_length": 16, "kv_length": 16, "allow_is_causal_skip": False, "device": "cpu"}
            make = masking.AttentionMaskInterface()["sdpa"]
            causal = make(mask_function=masking.causal_mask_function, **sizes)
            mask = {
                "learned": lambda: torch.where(causal, 0.0, -1e9) + given,
                "filled": lambda: torch.zeros(1, 1, 16, 16).masked_fill(~causal, -1e9),
                "shown again": lambda: torch.where(causal | (given > 0), 0.0, -1e9),
                "given": lambda: given,
            }[form]()
            if eager:
                return torch.softmax(values @ values.mT + mask, -1) @ values
            return torch.nn.functional.scaled_dot_product_attention(values, values, values, attn_mask=mask)

    records = rl.estimate(Attention(), inputs=(torch.zeros(1, 1, 16, 8), torch.zeros(1, 1, 16, 16)), mode="inference")
    assert flops(records, "attention", "bmm")[1] == pytest.approx(pairs * 2 * 2 * 8)
    if not eager:
        assert needed(records, "attention") == (2 * 16 * 8 + 256 * bias) * 4


def test_experts_in_a_loop_are_those_that_random_tokens_hit(tmp_path: Path) -> None:
    # The loop decides by values, so the step is run with random ones: each of 8 choices hits one of 16 experts.
    records = decode(tmp_path, EXPERTS | {"experts_implementation": "eager"}, batch=4)
    products = [r for r in records if r.name == "mm" and r.path.endswith("experts")]
    weights = sum(r.call.weight_reads * r.calls for r in products if r.call)
    assert weights % ((64 * 64 + 64 * 32) * BF16) == 0
    assert 2 <= weights // ((64 * 64 + 64 * 32) * BF16) <= 8


def test_cross_attention_reads_its_cache_and_appends_nothing(tmp_path: Path) -> None:
    sides = ("layers", "attention_heads", "ffn_dim")
    config: dict[str, Any] = {
        f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in zip(sides, (1, 4, 64), strict=True)
    }
    config |= {"model_type": "bart", "d_model": WIDTH, "vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1}
    ends = dict.fromkeys(("eos_token_id", "decoder_start_token_id", "forced_eos_token_id"), 2)
    records = decode(tmp_path, config | ends)
    token, query = 2 * BATCH * WIDTH * BF16, 2 * BATCH * WIDTH * BF16
    (cross,) = [r for r in records if r.path.endswith("encoder_attn") and r.name == "attention"]
    assert cross.bound_work is not None
    assert cross.bound_work.bytes["dram"] == TOKENS * token + query
    appended = [r for r in records if r.name == "cat" and r.floor is not None and r.floor.cause == "cache copies"]
    assert {r.path.rpartition(".")[2] for r in appended} == {"self_attn"}
