"""The catalogue of well-known models: parameters by closed forms, one per family, and names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl
from rooflens.errors import UnknownModel
from rooflens.known_models import KnownModel, known_model, known_models
from rooflens.models import build, find, workload
from rooflens.models.torchvision import names as torchvision_names
from rooflens.runs.run import Request
from rooflens.sources.command import harmless

Config = Mapping[str, Any]
MODELS = {model.name: model for model in known_models()}


def embeddings(c: Config) -> int:
    """Embedding and head; a tied head is the embedding."""
    return int(c["vocab_size"] * c["hidden_size"] * (1 if c["tie_word_embeddings"] else 2))


def grouped(c: Config, *, bias: bool = False) -> int:
    """Query, key, value and output projections; `bias` on the first three."""
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, kv = head * c["num_attention_heads"], head * c["num_key_value_heads"]
    return int(2 * c["hidden_size"] * (q + kv) + (q + 2 * kv if bias else 0))


def decoder(c: Config, layer: int) -> int:
    return int(embeddings(c) + c["num_hidden_layers"] * layer + c["hidden_size"])


def llama(c: Config, *, bias: bool = False, norms: int = 2, heads: int = 0) -> int:
    """Llama, Mistral, Qwen, Phi-3, Gemma: gated MLP, RMS norms, and norms of a head's width on queries and keys."""
    d = c["hidden_size"]
    return decoder(c, grouped(c, bias=bias) + 3 * d * c["intermediate_size"] + norms * d + heads)


def experts(c: Config, count: int, width: int, heads: int = 0) -> int:
    """Mixtral and Qwen's mixtures: a router and gated experts in every layer."""
    d = c["hidden_size"]
    return decoder(c, grouped(c) + count * (d + 3 * d * width) + 2 * d + heads)


def qwen3_moe(c: Config) -> int:
    return experts(c, c["num_experts"], c["moe_intermediate_size"], heads=2 * c["head_dim"])


def gpt_oss(c: Config) -> int:
    d, width, q = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"] * c["head_dim"]
    expert = d * 2 * width + 2 * width + width * d + d
    sinks = c["num_attention_heads"]
    attention = grouped(c, bias=True) + d + sinks
    assert q == 4096
    return decoder(c, attention + c["num_local_experts"] * (expert + d + 1) + 2 * d)


def deepseek(c: Config) -> int:
    """Latent attention, dense layers first, then routed and shared experts."""
    d, heads, latent, rope = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    query = c["qk_nope_head_dim"] + rope
    rank = c["q_lora_rank"]
    attention = d * heads * query if rank is None else d * rank + rank + rank * heads * query
    attention += d * (latent + rope) + latent
    attention += latent * heads * (c["qk_nope_head_dim"] + c["v_head_dim"]) + heads * c["v_head_dim"] * d
    routed, dense = c["n_routed_experts"], c["first_k_dense_replace"]
    mixture = 3 * d * c["moe_intermediate_size"] * (routed + c["n_shared_experts"]) + routed * d
    layers = c["num_hidden_layers"]
    mlps = dense * 3 * d * c["intermediate_size"] + (layers - dense) * mixture
    return int(embeddings(c) + layers * (attention + 2 * d) + mlps + d)


def llama4(c: Config) -> int:
    return llama4_text(c["text_config"]) + llama4_vision(c)


def llama4_text(t: Config) -> int:
    """A mixture with one shared expert in each layer, or each second one."""
    d, layers = t["hidden_size"], t["num_hidden_layers"]
    mixtures = layers // t["interleave_moe_layer_step"]
    expert = 3 * d * t["intermediate_size"]
    mlps = mixtures * ((t["num_local_experts"] + 1) * expert + t["num_local_experts"] * d)
    mlps += (layers - mixtures) * 3 * d * t["intermediate_size_mlp"]
    return int(embeddings(t) + layers * (grouped(t) + 2 * d) + mlps + d)


def llama4_vision(c: Config) -> int:
    """A tower, its adapter, and a projection to the width of the text."""
    v, d = c["vision_config"], c["text_config"]["hidden_size"]
    w, patch = v["hidden_size"], v["patch_size"]
    patches = (v["image_size"] // patch) ** 2
    tower = 3 * patch * patch * w + w + (patches + 1) * w + 2 * 2 * w  # class, positions, norms before and after
    tower += v["num_hidden_layers"] * (4 * w * w + 4 * w + two_layers(w, v["intermediate_size"]) + 4 * w)
    shuffled = v["intermediate_size"]  # 4 patches of 1,408 become one
    adapter = shuffled * v["projector_input_dim"] + v["projector_input_dim"] * v["projector_output_dim"]
    return int(tower + adapter + v["vision_output_dim"] * d)


def two_layers(d: int, width: int) -> int:
    """An MLP of two linear layers with biases."""
    return 2 * d * width + width + d


def gpt2(c: Config) -> int:
    d = c["n_embd"]
    layer = d * 3 * d + 3 * d + d * d + d + two_layers(d, 4 * d) + 4 * d
    return int((c["vocab_size"] + c["n_positions"]) * d + c["n_layer"] * layer + 2 * d)


def gpt_neox(c: Config) -> int:
    d = c["hidden_size"]
    layer = d * 3 * d + 3 * d + d * d + d + two_layers(d, c["intermediate_size"]) + 4 * d
    return decoder(c, layer) + int(d)  # the last norm has a bias too


def phi(c: Config) -> int:
    d = c["hidden_size"]
    layer = 4 * d * d + 4 * d + two_layers(d, c["intermediate_size"]) + 2 * d  # one norm before both branches
    return decoder(c, layer) + int(d + c["vocab_size"])  # the last norm and the head have biases


def falcon(c: Config) -> int:
    """No biases but in norms; 7B has one key and value head and one norm a layer, 40B has 8 and two."""
    d = c["hidden_size"]
    head = d // c["num_attention_heads"]
    kv = c.get("num_kv_heads", 1)
    norms = 2 if c["new_decoder_architecture"] else 1
    layer = d * (d + 2 * kv * head) + d * d + 8 * d * d + norms * 2 * d
    return int(c["vocab_size"] * d + c["num_hidden_layers"] * layer + 2 * d)


def mamba(c: Config) -> int:
    d, state, kernel = c["hidden_size"], c["state_size"], c["conv_kernel"]
    inner, rank = c["expand"] * d, -(-d // 16)
    layer = d * 2 * inner + inner * kernel + inner  # both halves, and a convolution with a bias
    layer += inner * (rank + 2 * state) + rank * inner + inner  # B, C and the time step
    layer += inner * state + inner + inner * d + d  # A, D, the way out and a norm
    return decoder(c, layer)


def mamba2(c: Config) -> int:
    d, heads = c["hidden_size"], c["num_heads"]
    inner, groups = c["expand"] * d, 2 * c["n_groups"] * c["state_size"]
    layer = d * (2 * inner + groups + heads) + (inner + groups) * (c["conv_kernel"] + 1)
    layer += 3 * heads + inner + inner * d + d  # A, D and the step's bias; a gated norm, the way out, a norm
    return decoder(c, layer)


def encoder_layer(d: int, width: int) -> int:
    """Attention and an MLP with biases, and two norms."""
    return 4 * d * d + 4 * d + two_layers(d, width) + 4 * d


def bert(c: Config) -> int:
    """Three embeddings with a norm, layers, and the head: a square layer, a norm, and a bias per word."""
    d = c["hidden_size"]
    inputs = (c["vocab_size"] + c["max_position_embeddings"] + c["type_vocab_size"]) * d + 2 * d
    head = d * d + d + 2 * d + c["vocab_size"]
    return int(inputs + c["num_hidden_layers"] * encoder_layer(d, c["intermediate_size"]) + head)


def t5(c: Config) -> int:
    """No biases; relative positions in the first layer of each stack; head and both embeddings are one."""
    d, inner = c["d_model"], c["num_heads"] * c["d_kv"]
    encoder = c["num_layers"] * (4 * d * inner + 2 * d * c["d_ff"] + 2 * d)
    decoding = c["num_decoder_layers"] * (8 * d * inner + 2 * d * c["d_ff"] + 3 * d)
    return int(c["vocab_size"] * d + encoder + decoding + 2 * 32 * c["num_heads"] + 2 * d)


def whisper(c: Config) -> int:
    """Keys have no biases; positions of the encoder are fixed sines that the checkpoint holds."""
    d = c["d_model"]
    attention = 4 * d * d + 3 * d
    mlp = two_layers(d, c["encoder_ffn_dim"])
    encoder = c["num_mel_bins"] * 3 * d + d + 3 * d * d + d + c["max_source_positions"] * d
    encoder += c["encoder_layers"] * (attention + mlp + 4 * d) + 2 * d
    decoding = (c["vocab_size"] + c["max_target_positions"]) * d
    return int(encoder + decoding + c["decoder_layers"] * (2 * attention + mlp + 6 * d) + 2 * d)


def clip(c: Config) -> int:
    t, v = c["text_config"], c["vision_config"]
    d, w = t["hidden_size"], v["hidden_size"]
    text = (t["vocab_size"] + t["max_position_embeddings"]) * d + 2 * d
    text += t["num_hidden_layers"] * encoder_layer(d, t["intermediate_size"])
    patches = (v["image_size"] // v["patch_size"]) ** 2
    vision = 3 * v["patch_size"] ** 2 * w + w + (patches + 1) * w + 4 * w
    vision += v["num_hidden_layers"] * encoder_layer(w, v["intermediate_size"])
    return int(text + vision + (d + w) * c["projection_dim"] + 1)  # the temperature


def vit(c: Config) -> int:
    d = c["hidden_size"]
    patches = (c["image_size"] // c["patch_size"]) ** 2
    inputs = 3 * c["patch_size"] ** 2 * d + d + d + (patches + 1) * d
    head = (d + 1) * c["num_labels"]
    return int(inputs + c["num_hidden_layers"] * encoder_layer(d, c["intermediate_size"]) + 2 * d + head)


def gemma3(c: Config) -> int:
    """The text model, SigLIP without its pooling, and a projection with a norm."""
    t, v = c["text_config"], c["vision_config"]
    w = v["hidden_size"]
    vision = 3 * v["patch_size"] ** 2 * w + w + (v["image_size"] // v["patch_size"]) ** 2 * w + 2 * w
    vision += v["num_hidden_layers"] * encoder_layer(w, v["intermediate_size"])
    return llama(t, norms=4, heads=2 * t["head_dim"]) + int(vision + w * t["hidden_size"] + w)


def qwen2_5_vl(c: Config) -> int:
    """Gated MLPs with biases and RMS norms in the tower; four patches are merged into one token."""
    t, v = c["text_config"] | {"tie_word_embeddings": c["tie_word_embeddings"]}, c["vision_config"]
    w, width, merged = v["hidden_size"], v["intermediate_size"], 4 * v["hidden_size"]
    layer = 4 * w * w + 4 * w + 3 * w * width + 2 * width + w + 2 * w
    vision = 3 * 2 * v["patch_size"] ** 2 * w + v["depth"] * layer
    vision += w + merged * merged + merged + (merged + 1) * v["out_hidden_size"]
    return llama(t, bias=True) + int(vision)


def qwen3_vl(c: Config, text: Callable[[Config], int]) -> int:
    """Learnt positions, and a merger at the end and after each of three layers."""
    t, v = c["text_config"] | {"tie_word_embeddings": c["tie_word_embeddings"]}, c["vision_config"]
    w, merged = v["hidden_size"], 4 * v["hidden_size"]
    merger = merged * merged + merged + (merged + 1) * v["out_hidden_size"]
    vision = 3 * 2 * v["patch_size"] ** 2 * w + w + v["num_position_embeddings"] * w
    vision += v["depth"] * encoder_layer(w, v["intermediate_size"]) + merger + 2 * w
    vision += len(v["deepstack_visual_indexes"]) * (merger + 2 * merged)
    return text(t) + int(vision)


def qwen3(c: Config) -> int:
    return llama(c, heads=2 * c["head_dim"])


FORMS: dict[str, Callable[[Config], int]] = {
    "llama": llama,
    "mistral": llama,
    "phi3": llama,
    "qwen2": lambda c: llama(c, bias=True),
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": lambda c: qwen3_vl(c, qwen3),
    "qwen3_vl_moe": lambda c: qwen3_vl(c, qwen3_moe),
    "mixtral": lambda c: experts(c, c["num_local_experts"], c["intermediate_size"]),
    "llama4": llama4,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "gemma2": lambda c: llama(c, norms=4),
    "gemma3_text": lambda c: llama(c, norms=4, heads=2 * c["head_dim"]),
    "gemma3": gemma3,
    "gpt_oss": gpt_oss,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "phi": phi,
    "falcon": falcon,
    "mamba": mamba,
    "mamba2": mamba2,
    "bert": bert,
    "roberta": bert,
    "t5": t5,
    "whisper": whisper,
    "clip": clip,
    "vit": vit,
}


def test_a_folder_that_is_no_model_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.json").write_text('{"model_type": "gpt2"}')
    for name in ("empty", "./empty"):
        with pytest.raises(UnknownModel, match=r"it is a folder without config\.json"):
            rl.estimate(name)
    with pytest.raises(UnknownModel, match=r"a slash before it: \./full"):
        rl.estimate("full")


def test_every_family_has_a_closed_form() -> None:
    assert {model.family for model in MODELS.values()} == set(FORMS)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_published_parameters_are_those_of_the_closed_form(model: KnownModel) -> None:
    assert model.parameters == FORMS[model.family](model.config)


def test_what_checkpoints_hold_beyond_the_model() -> None:
    # The hub's totals. BERT's have a pooler of 768 x 768 + 768 and a head for next sentences of 2 x 768 + 2; routers of
    # V3 have a bias that is no parameter here: 58 layers of 256.
    assert MODELS["bert-base-uncased"].parameters + 768 * 768 + 768 + 2 * 768 + 2 == 110_106_428
    assert MODELS["bert-large-uncased"].parameters + 1024 * 1024 + 1024 + 2 * 1024 + 2 == 336_226_108
    assert MODELS["deepseek-v3"].parameters + 58 * 256 == 671_026_419_200


SMALLEST = {model.family: model.name for model in sorted(MODELS.values(), key=lambda m: -m.parameters)}


@pytest.mark.parametrize("name", SMALLEST.values())
def test_the_model_that_is_built_has_them(name: str) -> None:
    module = build(find(name), "meta")
    built = sum(p.numel() for p in module.parameters())
    if name == "llama-4-scout":  # its class with images cannot be run, so the language model stands for it
        built += llama4_vision(MODELS[name].config)
    assert built == MODELS[name].parameters


# Bytes of keys and values per token in 16 bits, as published: Llama 3 8B 128 KiB, DeepSeek V3 70,272 (its report).
CACHES = {
    "llama-2-7b": 524_288,
    "llama-3-8b": 131_072,
    "llama-3-70b": 327_680,
    "qwen2.5-7b": 57_344,
    "mixtral-8x7b": 131_072,
    "gpt2": 36_864,
    "falcon-7b": 8_192,
    "deepseek-v3": 70_272,
    "deepseek-v2-lite": 31_104,
}


@pytest.mark.parametrize("name", CACHES)
def test_cache_bytes_per_token(name: str, tmp_path: Path) -> None:
    layers = {"gpt2": "n_layer"}.get(name, "num_hidden_layers")
    config = MODELS[name].config
    cut = {**config, layers: 2, "vocab_size": 64, "first_k_dense_replace": 1}
    (tmp_path / "config.json").write_text(json.dumps(cut))
    # 64 tokens of each tensor fill blocks of 512 B.
    memory = rl.estimate(f"hf:{tmp_path}/config.json", seq_len=64, mode="prefill", dtype="bf16").memory
    assert memory is not None
    assert memory.kv_cache == 64 * 2 * CACHES[name] / config[layers]


SPELLINGS = ["llama-3.1-8b", "Llama_3.1_8B", "meta-llama/Llama-3.1-8B", "META-LLAMA/llama-3.1-8b-instruct"]


@pytest.mark.parametrize("prefix", ["", "hf:"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_spelling(spelling: str, prefix: str) -> None:
    model = known_model(prefix + spelling)
    assert model is not None
    assert model.name == "llama-3.1-8b"


def test_other_names() -> None:
    assert known_model("meta-llama/Llama-3-8B") is MODELS["llama-3-8b"]  # on the hub as Meta-Llama-3-8B
    assert known_model("someone/llama-3.1-8b") is None  # may be of another shape
    assert known_model("llama-3.1-9b") is None


def test_no_name_is_of_two_models() -> None:
    for key in (lambda m: m.name, lambda m: m.hub[0].lower()):
        assert not [name for name, n in Counter(map(key, known_models())).items() if n > 1]
    for model in known_models():
        for name in (model.name, *model.hub, *(hub.rpartition("/")[2] for hub in model.hub)):
            assert known_model(name) is model, name
    assert not [name for name in torchvision_names() if known_model(name)]


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"),
        ("hf:qwen2.5-0.5B-instruct", "qwen2.5-0.5b"),
        ("gpt-2", "gpt2"),
        ("hf:gpt2", "hf:gpt2"),  # a family
    ],
)
def test_a_case_is_of_the_model_and_not_of_a_spelling(name: str, recorded: str) -> None:
    (run,) = workload(Request(model=name)).runs
    assert run.case().model == recorded


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("llama-3-9b", "llama-3-8b"),
        ("meta-llama/Llama-3.1-9B", "meta-llama/llama-3.1-8b"),
        ("gtp2", "gpt2"),
        ("hf:Qwen/Qwen2.5-8B", "qwen/qwen2.5-7b"),
        ("whisper-tini", "whisper-tiny"),
    ],
)
def test_a_misspelt_name_suggests(name: str, near: str) -> None:
    with pytest.raises(UnknownModel, match=rf"did you mean .*{near}.*\?.* \(") as caught:
        rl.estimate(name)
    assert "config.json" in str(caught.value)


def test_listing() -> None:
    assert rl.models() == known_models()
    assert [model.name for model in rl.models("meta-llama", "3", "70B")] == ["llama-3-70b", "llama-3.1-70b"]
    with pytest.raises(UnknownModel, match=r"unknown model 'llama 71b'.*no name in this list has all of these words"):
        rl.models("llama", "71b")


def test_a_recorded_command_keeps_the_name_on_the_hub() -> None:
    line = ("rooflens", "measure", "meta-llama/Llama-3.1-8B", "-b", "1")
    assert harmless(line) == line
    assert harmless(("rooflens", "measure", "/home/ann/llama-3.1-8b")) == ("rooflens", "measure", "***")
