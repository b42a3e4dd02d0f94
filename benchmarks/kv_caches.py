"""Hold the cache of decode against what transformers holds after real steps, for every family of causal models.

    python benchmarks/kv_caches.py [--family NAME]...

Each family runs on the CPU with a tiny configuration: a prompt, then three tokens one by one, two sequences. Writes
benchmarks/results/kv_caches.json with the bytes of both, or why a family was not run; exits with 1 if any two differ.
Families that are in it are not run again, unless they are asked for.
"""

from __future__ import annotations

import argparse
import inspect
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError

import rooflens as rl

RESULTS = Path(__file__).parent / "results" / "kv_caches.json"
TOKENS, BATCH, STEPS = 21, 2, 3
MOST_PARAMETERS = 2e7
WIDTHS: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "lru_width"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "encoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "linear_num_key_heads", "num_experts_per_tok", "index_n_heads"), 2),
    **dict.fromkeys(("head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank", "index_head_dim", "rotary_dim"), 16),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "hidden_size_per_layer_input"), 16),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "attention_window_size", "state_size"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "mamba_n_heads", "mamba_d_state"), 8),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "index_topk"), 4),
    **dict.fromkeys(("n_group", "topk_group", "mamba_n_groups"), 1),
    "vocab_size": 120,
    "max_position_embeddings": 64,
    "mamba_d_head": 16,
}
"""Sizes by the names that configurations have for them."""
OWN: dict[str, dict[str, Any]] = {
    **{family: {"head_dim": None, "num_key_value_heads": 4} for family in ("axk1", "axk2", "glm_moe_dsa", "youtu")},
    **{family: {"head_dim": 16} for family in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    "nemotron": {"num_key_value_heads": 2},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "xmod": {"default_language": "en_XX"},
    "bamba": {"attn_layer_indices": [1, 3]},
    "deepseek_v2": {"head_dim": None, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1},
    "deepseek_v32": {"head_dim": None, "num_key_value_heads": 4},
    "deepseek_v3": {"head_dim": None, "num_key_value_heads": 4},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 120,
        "laurel_rank": 8,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 8},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2, "shared_intermediate_size": 32},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "mamba2": {"num_heads": 8},
    "xlstm": {"head_dim": None, "num_blocks": 4, "qk_dim_factor": 1.0},
    "zamba2": {"layers_block_type": ["mamba", "hybrid", "mamba", "mamba"], "n_mamba_heads": 8, "mamba_ngroups": 1},
}
"""What a tiny configuration of a family needs beside them."""
NOT_RUN = (
    *(RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, NotImplementedError),
    StrictDataclassError,
)
"""What transformers raises for sizes that do not fit together."""


def tiny(family: str) -> dict[str, Any]:
    """Return the fields of a tiny configuration."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(family).get_text_config(decoder=True).to_dict()
    fields = {name: size for name, size in WIDTHS.items() if isinstance(known.get(name), int)}
    types = known.get("layer_types")
    if types:
        kinds = list(dict.fromkeys(types))
        fields["layer_types"] = (kinds * 4)[: max(4, len(kinds))]
        fields["num_hidden_layers"] = len(fields["layer_types"])
    fields |= {"is_decoder": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return {name: value for name, value in (fields | OWN.get(family, {})).items() if value is not None}


def storages(value: Any) -> dict[int, int]:
    """Return the bytes of every storage in an object of transformers, less its counters and configuration."""
    if isinstance(value, torch.Tensor):
        counts = value.numel() <= 1 and not value.is_floating_point()
        return {} if counts else {value.untyped_storage()._cdata: value.untyped_storage().nbytes()}
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return {key: nbytes for item in value for key, nbytes in storages(item).items()}
    inside = type(value).__module__.startswith("transformers") and not type(value).__name__.endswith("Config")
    return storages(vars(value)) if inside and hasattr(value, "__dict__") else {}


def states(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the tensors that are attributes of modules: states of a model that keeps them there."""
    return [value for one in model.modules() for value in vars(one).values() if isinstance(value, torch.Tensor)]


def really_held(config: Any) -> int:
    """Return the bytes that the cache of a model holds after real steps on the CPU."""
    from transformers import AutoModelForCausalLM, DynamicCache

    if config.is_encoder_decoder:
        raise ValueError("an encoder comes first: tests have such a model")
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size:,} parameters even with tiny widths")
    model = AutoModelForCausalLM.from_config(config).eval()
    accepted = inspect.signature(type(model).forward).parameters
    name = next((name for name in ("cache", "state") if name in accepted), None)
    if name is None:
        raise ValueError("takes no cache")
    words, cache = torch.randint(3, 100, (BATCH, TOKENS + 1)), None
    for begin, end in ((0, TOKENS + 1 - STEPS), *((at, at + 1) for at in range(TOKENS + 1 - STEPS, TOKENS + 1))):
        given: dict[str, Any] = {"input_ids": words[:, begin:end], "use_cache": True}
        given |= {} if cache is None else {name: cache}
        if "position_ids" in accepted:
            given["position_ids"] = torch.arange(begin, end).expand(BATCH, end - begin)
        with torch.no_grad():
            filled = model(**given).get(name)
            if filled is None and cache is None:  # it fills the one that it is given
                cache = DynamicCache(config=config)
                filled = model(**given, **{name: cache}).get(name)
        cache = cache if filled is None else filled
    held = storages(cache)
    if not held:
        raise ValueError("gives no cache")
    return sum((held | (storages(states(model)) if filled is None else {})).values())


def compared(family: str) -> dict[str, Any]:
    """Return the bytes that transformers holds and those of the estimate, or why the family was not run."""
    from transformers import AutoConfig

    try:
        fields = tiny(family)
        held = really_held(AutoConfig.for_model(family, **fields))
    except NOT_RUN as error:
        return {"not run": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps({"model_type": family, **fields}))
        try:
            found = rl.estimate(f"hf:{path}", batch=BATCH, seq_len=TOKENS, mode="decode").kv_cache
        except rl.RooflensError as error:
            return {"held": held, "error": str(error)[:200]}
    names = () if found is None else sorted({part.name for part in found.parts})
    return {"held": held, "estimated": None if found is None else found.held, "parts": list(names)}


def main() -> int:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as FAMILIES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES))
    asked = parser.parse_args().family
    done: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wrong = []
    for family in asked or sorted(FAMILIES.keys() - done.keys()):
        done[family] = compared(family)
        if done[family].get("held") != done[family].get("estimated"):
            wrong.append(family)
        print(family, done[family], flush=True)
        RESULTS.write_text(json.dumps(dict(sorted(done.items())), indent=1) + "\n")
    print(f"{len(wrong)} differ: {', '.join(wrong)}" if wrong else "all that ran are equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
