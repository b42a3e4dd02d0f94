"""Fields that the default configurations of transformers lack or contradict, so that no model can be made of them.

Values are those of published checkpoints where there are some, and otherwise what the other fields ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
SERIES: dict[str, Any] = {"prediction_length": 24, "context_length": 48, "num_time_features": 2, "feature_size": 11}
SECTIONS: dict[str, Any] = {**ROPE, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}


def _letters(number: int) -> str:
    return "".join(chr(ord("A") + int(digit)) for digit in str(number))


FIELDS: Mapping[str, Mapping[str, Any]] = {
    "aria": {"vision_config": {"image_size": 490, "patch_size": 14}},
    "autoformer": SERIES,
    "aya_vision": {"vision_config": {"num_attention_heads": 16, "image_size": 364}},
    "bamba": {"attn_layer_indices": [1, 18, 27]},
    "blip-2": {"image_token_index": 50265},
    "chameleon": {"vocabulary_map": {"<image>": 8711, **{f"IMGIMG{_letters(n)}Z": 4 + n for n in range(8192)}}},
    "cohere_compass": {
        "text_config": {"rope_parameters": {"full_attention": ROPE}},
        "vision_config": {"out_hidden_size": 8192},
    },
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE}},
    "colmodernvbert": {"vlm_config": {"vision_config": {"image_size": 512, "patch_size": 16}}},
    "cosmos3_omni": {"vision_config": {"out_hidden_size": 4096}},
    "dbrx": {"attn_config": {"rope_theta": 500000.0, "kv_n_heads": 8, "clip_qkv": 8}},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", *["sparse"] * 31]}},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "diffusion_gemma": {"text_config": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 2112}},
    "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2},
    "emu3": {
        "vocabulary_map": {
            "<image>": 151851,
            "<|extra_200|>": 151846,
            **{f"<|visual token {n:06}|>": 151854 + n for n in range(32768)},
        }
    },
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "exaone4_5": {"vision_config": {"out_hidden_size": 4096}},
    "gemma3": {"vision_config": {"image_size": 896, "patch_size": 14}},
    "glm46v": {"text_config": {"rope_parameters": SECTIONS}},
    "glm4v": {"text_config": {"rope_parameters": SECTIONS}},
    "glm4v_moe": {"text_config": {"rope_parameters": SECTIONS, "head_dim": 128}},
    "glm4v_moe_text": {"rope_parameters": SECTIONS, "head_dim": 128},
    "glm4v_text": {"rope_parameters": SECTIONS},
    "glm_image_text": {"rope_parameters": SECTIONS},
    "glm_ocr": {"vision_config": {"out_hidden_size": 1024}},
    "glmga": {"text_config": {"rope_parameters": SECTIONS}},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]]},
    "granite_speech": {"projector_config": {"encoder_hidden_size": 1024}},
    "granite_speech_plus": {"projector_config": {"encoder_hidden_size": 1024}},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 16},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config": {"head_dim": 128}},
    "hunyuan_vl_text": {"head_dim": 128},
    "idefics3": {"vision_config": {"image_size": 364, "patch_size": 14}},
    "informer": SERIES,
    "instructblip": {"image_token_index": 50265},
    "instructblipvideo": {"video_token_index": 50265},
    "janus": {"vision_config": {"projection_dim": 4096}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "modernvbert": {"vision_config": {"image_size": 512, "patch_size": 16}},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen2_5_vl": {"vision_config": {"out_hidden_size": 8192}},
    "qwen2_vl": {"vision_config": {"hidden_size": 8192}},
    "ovis2": {"text_config": {"hidden_size": 1536}},
    "qwen3_5": {"vision_config": {"out_hidden_size": 4096}},
    **{key: {"vision_config": {"out_hidden_size": 2048}} for key in ("qwen3_5_moe", "qwen3_vl_moe", "qwen4_exp")},
    "qwen3_vl": {"vision_config": {"out_hidden_size": 4096}},
    "shieldgemma2": {"vision_config": {"image_size": 896, "patch_size": 14}},
    "smolvlm": {"vision_config": {"image_size": 512, "patch_size": 16}},
    "step3p7": {"text_config": {"sliding_window": 512}},
    "t5gemma2": {"encoder": {"vision_config": {"image_size": 896, "patch_size": 14}}},
    "time_series_transformer": SERIES,
    "timm_backbone": {"backbone": "resnet18"},
    "voxtral": {"audio_token_id": 24},
    "wav2vec2-bert": {"vocab_size": 32},
    "wav2vec2-conformer": {"vocab_size": 32},
    "xmod": {"default_language": "en_XX"},
}
"""By family; inner configurations keep their other fields."""


def completed(family: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a default configuration with those that it lacks."""
    return _merged(fields, FIELDS.get(family, {}))


def _merged(fields: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(fields)
    for name, value in others.items():
        inner = made.get(name)
        keeps = isinstance(value, Mapping) and isinstance(inner, Mapping) and name != "rope_parameters"
        made[name] = _merged(inner, value) if keeps else value  # type: ignore[arg-type]
    return made
