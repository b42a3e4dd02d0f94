"""Functions that scan a sequence, by name: what each of them is called with, and which operation stands for it.

A library writes a scan twice: as a fused kernel, and in Python for machines without the kernel. The names here are
those of both; one table row serves every module that has a function of the name. Nothing here runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

PACKAGES = ("mamba_ssm", "fla", "causal_conv1d")
"""Packages of kernels, which run on a GPU only."""


@dataclass(frozen=True, slots=True)
class ScanFunction:
    """A function, or a method of a class, that an operation of ours stands for.

    Attributes:
        operation: its name in `rooflens.costs.SCANS`.
        tokens: the dimension of tokens in each tensor, where Python loops over tokens or chunks of them; empty where it
            does not loop.
        chunk: the parameter, or the attribute of the module's configuration, that says how many tokens a chunk has;
            empty where the loop takes one token at a time.
        names: names of parameters that differ from those of the operation.
    """

    operation: str
    tokens: Mapping[str, int] = field(default_factory=dict)
    chunk: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


_CHANNELS_FIRST = dict.fromkeys(("hidden_states", "dt", "B", "C", "z"), 2)
_BY_TOKEN = dict.fromkeys(("query", "key", "value", "g", "beta"), 1)
_BY_HEAD = dict.fromkeys(("query", "key", "value", "igate", "fgate"), 2)

FUNCTIONS: Mapping[str, ScanFunction] = MappingProxyType(
    {
        "mamba_selective_scan": ScanFunction("selective_scan", _CHANNELS_FIRST),
        "mamba_selective_state_update": ScanFunction("selective_state_update"),
        "mamba2_chunk_scan": ScanFunction("chunk_scan"),
        "mamba2_selective_state_update": ScanFunction("chunk_state_update"),
        "torch_chunk_gated_delta_rule": ScanFunction("gated_delta_rule", _BY_TOKEN, "chunk_size"),
        "torch_recurrent_gated_delta_rule": ScanFunction("gated_delta_rule", _BY_TOKEN),
        "chunk_kimi_delta_attention": ScanFunction("gated_delta_rule", _BY_TOKEN, "chunk_size"),
        "recurrent_kimi_delta_attention": ScanFunction("gated_delta_rule", _BY_TOKEN),
        "rwkv_linear_attention": ScanFunction("wkv", dict.fromkeys(("key", "value"), 1)),
        "causal_conv1d_fn": ScanFunction("short_convolution"),
        "causal_conv1d_update": ScanFunction("short_convolution_update"),
    }
)
"""Functions of transformers, in Python; one that a user wrote under such a name is left alone."""

_MAMBA = MappingProxyType({"u": "hidden_states", "x": "hidden_states", "delta": "dt"})
_FLA = MappingProxyType({"q": "query", "k": "key", "v": "value"})

KERNELS: Mapping[str, ScanFunction] = MappingProxyType(
    {
        "selective_scan_fn": ScanFunction("selective_scan", names=_MAMBA),
        "selective_state_update": ScanFunction("selective_state_update", names=_MAMBA),
        "mamba_chunk_scan_combined": ScanFunction("chunk_scan", names=_MAMBA),
        "chunk_gated_delta_rule": ScanFunction("gated_delta_rule", names=_FLA),
        "fused_recurrent_gated_delta_rule": ScanFunction("gated_delta_rule", names=_FLA),
        "chunk_kda": ScanFunction("gated_delta_rule", names=_FLA),
        "fused_recurrent_kda": ScanFunction("gated_delta_rule", names=_FLA),
        "causal_conv1d_fn": ScanFunction("short_convolution", names=_MAMBA),
        "causal_conv1d_update": ScanFunction("short_convolution_update", names=_MAMBA),
    }
)
"""Kernels of `PACKAGES`, which a model may call itself."""

BLOCKS = ScanFunction("lightning_attention", dict.fromkeys(("query", "key", "value"), 2), "block_size")
"""The loop of lightning attention, which is no function of its own there."""

METHODS: Mapping[tuple[str, str, str], ScanFunction] = MappingProxyType(
    {
        ("transformers.models.xlstm.modeling_xlstm", "xLSTMBackend", "forward"): ScanFunction(
            "mlstm", _BY_HEAD, "config.chunk_size"
        ),
        ("transformers.models.recurrent_gemma.modeling_recurrent_gemma", "RecurrentGemmaRglru", "_rnn_scan"): (
            ScanFunction("linear_recurrence", dict.fromkeys(("hidden_states", "recurrent_gate", "reset"), 1))
        ),
    }
)
"""Methods, by module, class and name."""
