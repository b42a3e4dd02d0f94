"""Scans of every family of transformers: one operation each, with the work of their loops.

    python benchmarks/scan_families.py [FAMILY ...] [--tokens 21]

Builds a tiny model of each family, estimates training, prefill and decode with its scans as operations and with its
Python code traced whole, and prints a line for each: the scans found, operations of both, and whether FLOP and bytes
are the same. A gradient may be copied once more or less where it has another layout, so bytes of training may differ by
1 %. Needs transformers, no accelerator and no weights; a minute for a handful of families.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import rooflens as rl
from rooflens.errors import RooflensError
from rooflens.trace import scan_calls

BASE = {"hidden_size": 32, "vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8}
MIXED = {**BASE, **ATTENTION, "num_hidden_layers": 2}
LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    **LINEAR,
}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "shared_intermediate_size": 16,
}
MAMBA = {"mamba_d_state": 4, "mamba_dt_rank": 4, "attn_layer_offset": 1}
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
HEADS = {"head_dim": 8, "n_groups": 1, "chunk_size": 8}
LATENT = {
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "linear_head_dim": 8,
    "linear_num_heads": 4,
    "num_key_value_heads": 4,
    "n_group": 1,
    "topk_group": 1,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "mamba": {**BASE, "num_hidden_layers": 2, "state_size": 4},
    "falcon_mamba": {**BASE, "num_hidden_layers": 2, "state_size": 4},
    "mamba2": {**BASE, **HEADS, "num_hidden_layers": 2, "state_size": 16, "num_heads": 8, "expand": 2},
    "jamba": {**MIXED, **MAMBA, "attn_layer_period": 2, "num_experts": 2, "num_experts_per_tok": 1},
    "zamba": {
        **MIXED,
        **MAMBA,
        "num_hidden_layers": 6,
        "attn_layer_period": 3,
        "n_mamba_heads": 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
    "bamba": {**MIXED, **MAMBA2, "attn_layer_indices": [1]},
    "zamba2": {
        **MIXED,
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "chunk_size": 8,
        "mamba_ngroups": 1,
        "mamba_headdim": 8,
        "n_mamba_heads": 8,
        "mamba_d_state": 16,
    },
    "nemotron_h": {
        **MIXED,
        **HEADS,
        "num_hidden_layers": 3,
        "hybrid_override_pattern": "M*-",
        "ssm_state_size": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
    },
    "granitemoehybrid": {**MIXED, **MAMBA2, **EXPERTS, "layer_types": ["mamba", "attention"]},
    "falcon_h1": {**MIXED, **MAMBA2, "mamba_d_ssm": 64},
    "rwkv": {**BASE, "num_hidden_layers": 2, "attention_hidden_size": 32, "intermediate_size": 64},
    "xlstm": {**BASE, "hidden_size": 256, "num_hidden_layers": 1, "num_heads": 2, "chunk_size": 8},
    "qwen3_next": {**MIXED, **DELTA, **EXPERTS},
    "qwen3_5_text": {**MIXED, **DELTA},
    "qwen3_5_moe_text": {**MIXED, **DELTA, **EXPERTS},
    "olmo_hybrid": {**MIXED, **DELTA},
    "kimi_linear": {**MIXED, **EXPERTS, **LATENT, **LINEAR},
    "bailing_hybrid": {**MIXED, **EXPERTS, **LATENT, **LINEAR},
    "minimax": {**MIXED, **LINEAR, **EXPERTS, "block_size": 8},
    "recurrent_gemma": {**MIXED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 16},
    "lfm2": {**MIXED, "layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {**MIXED, **EXPERTS, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
}
"""The smallest configuration in which each family has a scan."""

MODES = ("train", "prefill", "decode")


@contextmanager
def plain_loops() -> Iterator[None]:
    """Trace the Python code itself."""
    with ExitStack() as patches:
        for table in ("FUNCTIONS", "METHODS", "KERNELS"):
            patches.enter_context(patch.object(scan_calls, table, {}))
        patches.enter_context(patch.object(scan_calls.lightning, "MODULE", ""))
        yield


def estimated(path: Path, mode: str, tokens: int) -> rl.RecordSet:
    """Two sequences of so many tokens."""
    options: dict[str, Any] = {"optimizer": "none"} if mode == "train" else {}
    return rl.estimate(f"hf:{path}", batch=2, seq_len=tokens, mode=mode, dtype="bf16", **options)


def compared(one: rl.RecordSet, loop: rl.RecordSet) -> str:
    """How the work of the operations compares with that of the loops."""
    ours, theirs = one.total().work, loop.total().work
    if ours is None or theirs is None or ours.flops != theirs.flops or one.coverage.uncounted:
        return "OTHER FLOP"
    apart = ours.bytes["dram"] / theirs.bytes["dram"] - 1
    return "same" if not apart else f"bytes {apart:+.2%}" if abs(apart) < 0.01 else f"OTHER BYTES {apart:+.1%}"


def line(family: str, mode: str, path: Path, tokens: int) -> tuple[str, bool]:
    """A line for one family and mode, and whether all is well."""
    try:
        one = estimated(path, mode, tokens)
        with plain_loops():
            loop = estimated(path, mode, tokens)
    except RooflensError as error:
        return f"{family:18} {mode:8} not estimated: {str(error)[:150]}", False
    names = sorted({r.name for r in one if r.call and r.call.get("function")})
    verdict = compared(one, loop)
    counts = f"{one.coverage.operations:5} of {loop.coverage.operations:6} operations"
    return f"{family:18} {mode:8} {counts}  {verdict:14} {', '.join(names)}", bool(names) and "OTHER" not in verdict


def main() -> int:
    parser = argparse.ArgumentParser(description="Scans of every family of transformers.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", default=list(FAMILIES))
    parser.add_argument("--tokens", type=int, default=21)
    asked = parser.parse_args()
    well = True
    with tempfile.TemporaryDirectory() as folder:
        for family in asked.families:
            path = Path(folder) / f"{family}.json"
            path.write_text(json.dumps({"model_type": family, **FAMILIES[family]}))
            for mode in MODES:
                text, good = line(family, mode, path, asked.tokens)
                well &= good
                print(text, flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
