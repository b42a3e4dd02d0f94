"""Encoders, encoder-decoders, vision, speech and vision-language models of transformers, against closed forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import hf_models
from benchmarks.hf_fields import completed
from benchmarks.hf_models import small

import rooflens as rl
from rooflens.errors import InvalidValue, ModelError, UnknownModel
from rooflens.models import find
from rooflens.models.configuration import configuration
from rooflens.models.heads import families, head
from rooflens.models.transformers import Built
from rooflens.runs.options import Options

Write = Callable[..., str]
D, MLP, HEADS, HEAD, WORDS = 32, 48, 2, 16, 100


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Write a configuration, and return the name of its model."""

    def write(model_type: str, **fields: Any) -> str:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **fields}))
        return f"hf:{tmp_path / 'config.json'}"

    return write


def products(name: str, **options: Any) -> float:
    """The FLOP of products, all of which are counted."""
    step = rl.estimate(name, **options)
    assert step.coverage.uncounted == ()
    flops = step.total().matmul_flops
    assert flops is not None
    return flops


T5 = {
    "d_model": D, "d_kv": HEAD, "num_heads": HEADS, "d_ff": MLP, "num_layers": 2, "num_decoder_layers": 3,
    "vocab_size": WORDS,
}  # fmt: skip
SQUARE = D * D
"""Weights of a projection: 2 heads of 16 are the model's width."""


def attended(queries: int, keys: int) -> int:
    """Multiply-adds of all heads: scores, and their sum over values."""
    return 2 * queries * keys * D


def decoder_of_t5(new: int, seen: int, source: int, *, encoded_now: bool) -> int:
    """Multiply-adds of three layers; keys and values of the source are made once."""
    cross = 2 * new * SQUARE + attended(new, source) + (2 * source * SQUARE if encoded_now else 0)
    return 3 * (4 * new * SQUARE + attended(new, seen) + cross + 2 * new * D * MLP)


def test_an_encoder_runs_in_prefill_and_no_more_in_decode(written: Write) -> None:
    name, n, batch = written("t5", **T5), 16, 3
    encoder = 2 * (4 * n * SQUARE + attended(n, n) + 2 * n * D * MLP)
    whole = encoder + decoder_of_t5(n, n, n, encoded_now=True) + n * D * WORDS
    assert products(name, seq_len=n, batch=batch) == 2 * batch * whole
    assert products(name, seq_len=n, batch=batch, mode="prefill") == 2 * batch * whole  # it has no way to skip logits
    step = decoder_of_t5(1, n + 1, n, encoded_now=False) + D * WORDS
    assert products(name, seq_len=n, batch=batch, mode="decode") == 2 * batch * step


def test_the_cache_of_an_encoder_decoder_holds_what_it_wrote_and_the_source(written: Write) -> None:
    memory = rl.estimate(written("t5", **T5), seq_len=16, mode="decode").memory
    assert memory is not None
    assert memory.kv_cache == 3 * 2 * (17 + 16) * D * 4


def test_whisper_reads_half_a_minute_of_sound(written: Write) -> None:
    # 24 frames of 8 bins: two convolutions of width 3, the second one in steps of two.
    name = written(
        "whisper", d_model=D, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=MLP, decoder_ffn_dim=MLP, num_mel_bins=8, max_source_positions=12,
        max_target_positions=20, vocab_size=WORDS, pad_token_id=0, bos_token_id=0, eos_token_id=0,
        decoder_start_token_id=1,
    )  # fmt: skip
    source, n = 12, 10
    encoder = 2 * source * 3 * 8 * D + source * 3 * SQUARE
    encoder += 4 * source * SQUARE + attended(source, source) + 2 * source * D * MLP
    decoder = 4 * n * SQUARE + attended(n, n) + 2 * n * SQUARE + 2 * source * SQUARE + attended(n, source)
    decoder += 2 * n * D * MLP + n * D * WORDS
    assert products(name, seq_len=n, mode="prefill") == 2 * (encoder + decoder)
    step = 4 * SQUARE + attended(1, n + 1) + 2 * SQUARE + attended(1, source) + 2 * D * MLP + D * WORDS
    assert products(name, seq_len=n, mode="decode") == 2 * step


def vision(side: int, patch: int, layers: int = 1) -> int:
    """Multiply-adds of patches and layers, with a place for the class."""
    patches = (side // patch) ** 2
    tokens = patches + 1
    return patches * 3 * patch * patch * D + layers * (
        4 * tokens * SQUARE + attended(tokens, tokens) + 2 * tokens * D * MLP
    )


TOWER = {"hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": HEADS, "intermediate_size": MLP}


def test_an_image_classifier(written: Write) -> None:
    name = written("vit", **TOWER, image_size=32, patch_size=8, num_labels=10)
    forward = 2 * (vision(32, 8) + D * 10)
    assert products(name) == forward
    train = rl.estimate(name, batch=2, mode="train", optimizer="none")
    assert train.total("forward").matmul_flops == 2 * forward
    # The image needs no gradient, so patches have one product in backward and all else two.
    assert train.total("backward").matmul_flops == 2 * (2 * forward - 2 * 16 * 3 * 64 * D)
    with pytest.raises(InvalidValue, match="takes no sequences of tokens"):
        rl.estimate(name, seq_len=8)


TEXT = {
    "model_type": "llama", "hidden_size": D, "intermediate_size": MLP, "num_hidden_layers": 1,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": WORDS,
}  # fmt: skip


def text(tokens: int, seen: int, logits: int) -> int:
    return 4 * tokens * SQUARE + attended(tokens, seen) + 3 * tokens * D * MLP + logits * D * WORDS


def test_an_image_stands_among_the_tokens(written: Write) -> None:
    tower = {"model_type": "clip_vision_model", **TOWER, "image_size": 32, "patch_size": 8}
    name = written("llava", text_config=TEXT, vision_config=tower, image_token_index=7, vision_feature_layer=-1)
    image = vision(32, 8) + 16 * 2 * SQUARE  # a projector of two layers, without the class
    assert products(name, seq_len=40, mode="prefill") == 2 * (image + text(40, 40, logits=1))
    assert products(name, seq_len=40, batch=3) == 3 * 2 * (image + text(40, 40, logits=40))
    assert products(name, seq_len=40, mode="decode") == 2 * text(1, 41, logits=1)
    with pytest.raises(InvalidValue, match=r"an image takes 16 tokens .* at least 17, not 16"):
        rl.estimate(name, seq_len=16, mode="prefill")
    (case,) = rl.estimate(name).cases
    assert dict(case.options) == {"seq_len": 512}


def test_patches_of_an_image_have_a_grid(written: Write) -> None:
    tower = {
        "depth": 1, "hidden_size": D, "intermediate_size": MLP, "num_heads": HEADS, "patch_size": 4,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 16, "out_hidden_size": D,
        "fullatt_block_indexes": [0],
    }  # fmt: skip
    words = {
        **TEXT,
        "model_type": "qwen2_5_vl_text",
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
    }
    name = written("qwen2_5_vl", text_config=words, vision_config=tower, image_token_id=7, video_token_id=8)
    # 32 pixels are 8 x 8 patches; four of them become one of 16 tokens.
    patches = 64
    image = patches * 3 * 2 * 16 * D + 4 * patches * SQUARE + attended(patches, patches) + 3 * patches * D * MLP
    image += 16 * ((4 * D) ** 2 + 4 * D * D)
    assert products(name, seq_len=40, img_size=32, mode="prefill") == 2 * (image + text(40, 40, logits=1))
    assert products(name, seq_len=40, img_size=32, mode="decode") == 2 * text(1, 41, logits=1)


def test_the_loss_of_speech_is_ctc(written: Write) -> None:
    name = written(
        "wav2vec2", hidden_size=D, num_hidden_layers=1, num_attention_heads=2, intermediate_size=MLP, vocab_size=40,
        conv_dim=[D], conv_kernel=[400], conv_stride=[320], num_feat_extract_layers=1,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    step = rl.estimate(name, mode="train", optimizer="none")
    assert step.coverage.uncounted == ()
    frames = (160_000 - 400) // 320 + 1
    (loss,) = (r.call for r in step if r.call is not None and r.call.name == "_ctc_loss")
    assert loss.tensor("log_probs").shape == (frames, 1, 40)


def test_pairs_of_images_and_texts(written: Write) -> None:
    words = {"vocab_size": WORDS, "hidden_size": D, "intermediate_size": MLP, "num_hidden_layers": 1,
             "num_attention_heads": HEADS, "max_position_embeddings": 12}  # fmt: skip
    name = written(
        "clip", text_config=words, vision_config={**TOWER, "image_size": 32, "patch_size": 8}, projection_dim=8
    )
    n, batch = 12, 4
    caption = 4 * n * SQUARE + attended(n, n) + 2 * n * D * MLP
    pairs = batch * batch * 8
    assert products(name, batch=batch) == 2 * (batch * (caption + vision(32, 8) + 2 * D * 8) + pairs)


def test_a_configuration_names_its_class(written: Write) -> None:
    bert = {"hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": MLP}

    def built(**fields: Any) -> str:
        return head(configuration(written("bert", **bert, **fields))[1])[0].__name__

    assert built() == "BertForMaskedLM"
    assert built(architectures=["BertForQuestionAnswering"]) == "BertForQuestionAnswering"
    assert built(is_decoder=True) == "BertLMHeadModel"
    assert built(architectures=["os.system", "LlamaForCausalLM"]) == "BertForMaskedLM"


def test_an_encoder_writes_nothing(written: Write) -> None:
    name = written("roberta", hidden_size=D, num_hidden_layers=1, num_attention_heads=2, intermediate_size=MLP)
    with pytest.raises(InvalidValue, match="cache"):
        find(name, mode="decode")


def test_a_family_that_is_a_part_of_others() -> None:
    assert "blip_2_vision_model" not in families()
    with pytest.raises(UnknownModel, match="blip_2_vision_model"):
        rl.estimate("hf:blip_2_vision_model")


FAMILIES = (
    "albert",
    "distilbert",
    "deberta-v2",
    "modernbert",
    "xlm-roberta",
    "opt",
    "bloom",
    "gpt_neo",
    "phi",
    "stablelm",
    "granite",
    "olmo2",
    "cohere",
    "bart",
    "pegasus",
    "marian",
    "led",
    "swin",
    "convnext",
    "dinov2",
    "siglip",
    "segformer",
    "detr",
    "hubert",
    "wavlm",
    "audio-spectrogram-transformer",
    "paligemma",
    "internvl",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_counted(family: str, written: Write) -> None:
    from transformers import AutoConfig

    fields = json.loads(AutoConfig.for_model(family).to_json_string(use_diff=False))
    fields = {
        name: value for name, value in fields.items() if name not in ("transformers_version", "dtype", "model_type")
    }
    step = rl.estimate(written(family, **small(fields)), mode="train" if family in ("bart", "swin") else "inference")
    assert step.coverage.uncounted == ()
    assert not torch.backends.mkldnn.is_available() or step.parameters


def test_a_decoder_after_an_encoder_is_measured_as_estimated(written: Write) -> None:
    found = rl.measure(written("t5", **T5), seq_len=8, batch=2, mode="decode", device="cpu", budget=0.1, estimate=True)
    estimated, measured = (found.where(source=source).cases for source in ("estimate", "measure"))
    assert [(c.mode, c.options) for c in measured] == [(c.mode, c.options) for c in estimated]
    assert measured[0].mode == "decode"


def test_an_image_among_tokens_is_measured(written: Write) -> None:
    tower = {"model_type": "clip_vision_model", **TOWER, "image_size": 32, "patch_size": 8}
    name = written("llava", text_config=TEXT, vision_config=tower, image_token_index=7, vision_feature_layer=-1)
    found = rl.measure(name, seq_len=20, mode="prefill", device="cpu", budget=0.1)
    assert any(record.timing is not None for record in found)


@pytest.mark.parametrize(
    ("family", "fields", "shapes"),
    [
        # 256 patches of 3 x 16 x 16 numbers, 16 in each direction.
        (
            "siglip2_vision_model",
            {},
            {"pixel_values": (2, 256, 768), "spatial_shapes": (2, 2), "pixel_attention_mask": (2, 256)},
        ),
        # An image of 448 has 27 patches of 16 in each direction: 9 pooled ones of 3.
        ("gemma4_vision", {}, {"pixel_values": (2, 729, 768), "pixel_position_ids": (2, 729, 2)}),
        ("fuyu", {}, {"input_ids": (2, 512), "position_ids": (2, 512), "pixel_values": (2, 100, 2700)}),
        ("idefics", {}, {"pixel_values": (2, 1, 3, 224, 224), "image_attention_mask": (2, 512, 1)}),
        ("lxmert", {}, {"input_ids": (2, 512), "visual_feats": (2, 36, 2048), "visual_pos": (2, 36, 4)}),
        ("decision_transformer", {}, {"states": (2, 20, 17), "returns_to_go": (2, 20, 1), "timesteps": (2, 20)}),
        ("gemma3n_audio", {}, {"audio_mel": (2, 1000, 128), "audio_mel_mask": (2, 1000)}),
        # Four streams of each sequence, one after the other.
        ("musicgen", {}, {"input_ids": (8, 512)}),
        (
            "time_series_transformer",
            {"prediction_length": 24, "context_length": 48, "num_time_features": 2},
            # What is to come, and lags of up to 7 before what is known.
            {"past_values": (2, 55), "past_time_features": (2, 55, 2), "future_time_features": (2, 24, 2)},
        ),
    ],
)
def test_what_a_family_takes(family: str, fields: dict[str, Any], shapes: dict[str, Any], written: Write) -> None:
    blueprint = find(written(family, **fields))
    assert blueprint.example is not None
    given = blueprint.example(2).kwargs
    assert given is not None
    assert {name: tuple(given[name].shape) for name in shapes} == shapes


def test_series_of_any_length_are_a_list(written: Write) -> None:
    blueprint = find(written("timesfm", context_length=96))
    assert blueprint.example is not None
    given = blueprint.example(3).kwargs
    assert given is not None
    assert [tuple(series.shape) for series in given["past_values"]] == [(96,)] * 3


@pytest.mark.parametrize("family", ["gemma4", "gemma4_unified"])
def test_a_configuration_without_eyes_reads_words(family: str, written: Write) -> None:
    inner = {"hidden_size": D, "intermediate_size": MLP, "num_hidden_layers": 1, "num_attention_heads": HEADS,
             "num_key_value_heads": HEADS, "vocab_size": WORDS, "vocab_size_per_layer_input": WORDS}  # fmt: skip
    blueprint = find(written(family, text_config=inner))
    assert blueprint.example is not None
    assert not blueprint.images or "pixel_values" not in (blueprint.example(1).kwargs or {})


def test_a_size_that_may_be_nothing_is_no_error(written: Write) -> None:
    assert configuration(written("glm5_next_text", head_dim=0))[1].model_type == "glm5_next_text"
    with pytest.raises(ModelError, match="head_dim is 0; it has to be a whole number of at least 1"):
        configuration(written("llama", head_dim=0))


def test_the_page_has_the_results_of_the_sweep() -> None:
    rows = hf_models.read()
    page = hf_models.PAGE.read_text()
    assert hf_models.table(rows) in page
    assert hf_models.others(rows) in page
    assert hf_models.types(rows) == hf_models.TYPES.read_text()
    assert not [row for row in rows.values() if row.get("uncounted") or ("why" not in row and not row["modes"])]
    assert all(hf_models.reason(row) for row in rows.values() if "why" in row)


def test_errors_of_the_sweep_have_words() -> None:
    said = {
        "ImportError: X requires the natten library but it was": "needs the package natten, which is not here",
        "decode: x keeps no cache that rooflens knows": "its forward takes or fills no cache, so it has no decode",
        "TypeError: X.forward() missing 2 required positional arguments: 'a' and 'b'; if the dict is one argument": (
            "needs inputs that rooflens does not make: 'a' and 'b'"
        ),
        "time limit: more than 90 s of processor time": "takes minutes of processor time",
    }
    assert {why: hf_models.reason({"why": why}) for why in said} == said
    assert hf_models.reason({"modes": ["inference"]}) == ""


def test_fields_that_a_default_configuration_lacks_are_added_to_the_others() -> None:
    made = completed("qwen2_vl", {"vision_config": {"hidden_size": 3584, "depth": 32}, "text_config": {}})
    assert made == {"vision_config": {"hidden_size": 8192, "depth": 32}, "text_config": {}}
    assert completed("llama", {"hidden_size": 4096}) == {"hidden_size": 4096}


def test_numbers_that_json_has_no_word_for_are_read(written: Write) -> None:
    config = configuration(written("bamba", time_step_limit=[0.0, {"__float__": "Infinity"}]))[1]
    assert config.time_step_limit[1] == float("inf")
    with pytest.raises(ModelError, match="refuses the configuration"):
        configuration(written("bamba", time_step_limit=[0.0, {"__float__": "much"}]))


DIA: dict[str, Any] = {
    "delay_pattern": [0, 1, 2],
    "encoder_config": {
        "num_hidden_layers": 1,
        "hidden_size": D,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "vocab_size": 50,
        "max_position_embeddings": 64,
    },
    "decoder_config": {
        "num_hidden_layers": 1,
        "hidden_size": D,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "vocab_size": 60,
        "max_position_embeddings": 64,
        "cross_hidden_size": D,
        "cross_num_attention_heads": HEADS,
        "cross_num_key_value_heads": HEADS,
        "cross_head_dim": HEAD,
        "num_channels": 3,
    },
}
KYUTAI: dict[str, Any] = {
    "hidden_size": D,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD,
    "ffn_dim": MLP,
    "vocab_size": WORDS,
    "codebook_vocab_size": 20,
    "num_codebooks": 4,
    "sliding_window": 64,
    "max_position_embeddings": 64,
    "audio_bos_token_id": 1,
    "audio_pad_token_id": 2,
    "pad_token_id": 3,
}


def test_several_tokens_stand_at_a_position(written: Write) -> None:
    # Dia writes three streams of sound: own keys, those of 24 words of the encoder, a gated MLP, three heads.
    dia = written("dia", **DIA)
    step: dict[str, Any] = {"mode": "decode", "batch": 2, "seq_len": 24}
    layer = 4 * SQUARE + attended(1, 25) + 2 * SQUARE + attended(1, 24) + 3 * D * MLP
    assert products(dia, **step) == 2 * 2 * (layer + 3 * D * 60)
    assert rl.measure(dia, device="cpu", isolated=False, budget=0.01, **step).total().measured_seconds
    # Kyutai reads four streams of sound beside the words, and writes words: an MLP of a gate, up and down of half each.
    kyutai = written("kyutai_speech_to_text", **KYUTAI)
    layer = 4 * SQUARE + attended(1, 25) + D * MLP + MLP // 2 * D
    assert products(kyutai, **step) == 2 * 2 * (layer + D * WORDS)
    example: Any = find(kyutai, Options(seq_len=24), "decode").example
    given = example(2).kwargs["input_ids"]
    assert given.shape == (2, 1, 5)
    assert given.max() < 20  # each stream has so many tokens


def test_a_mixture_that_encodes_is_decoded(written: Write) -> None:
    # Values choose the experts of its encoder, which has run before. One layer has two experts, of which one is hit.
    fields: dict[str, Any] = {**T5, "num_layers": 2, "num_decoder_layers": 2, "num_experts": 2}
    sparse = {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    switch = written("switch_transformers", **fields, **sparse)
    layer = 4 * SQUARE + attended(1, 9) + 2 * SQUARE + attended(1, 8) + 2 * D * MLP
    found = products(switch, mode="decode", batch=1, seq_len=8)
    assert found == 2 * (2 * layer + 2 * D + D * WORDS)


def test_sound_is_padded_to_the_tokens_that_a_configuration_names(
    written: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written("gemma3n", audio_soft_tokens_per_image=188)
    monkeypatch.setattr(Built, "_tried", lambda self, ask: 62)  # vectors of an image, and of the sound
    assert find(name, Options(), "prefill").least_tokens == 1 + 62 + 188
