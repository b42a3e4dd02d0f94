"""Floors of language-model steps from estimates of one and two layers, for cards, bits and batches that tables have.

Layers are alike, so what a step of L layers needs is that of one layer and L - 1 times what the second one adds.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import rooflens as rl
from rooflens.records import Device, Record, Work
from rooflens.roofline import bound


def _llama(width: int, layers: int, heads: int, kv: int, inner: int, words: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inner,
        "vocab_size": words,
        "max_position_embeddings": 65536,
    }


def _gpt(width: int, layers: int, heads: int) -> dict[str, Any]:
    """MPT: a plain decoder with four times the width inside; GPT-2 has the same products."""
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "vocab_size": 50368, "n_positions": 65536}
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return {"model_type": "gpt2", **sizes, **no_dropout, "activation_function": "gelu"}


MODELS: dict[str, dict[str, Any]] = {
    "Llama-2-7B": _llama(4096, 32, 32, 32, 11008, 32000),
    "Llama-2-70B": _llama(8192, 80, 64, 8, 28672, 32000),
    "Llama-3.1-8B": _llama(4096, 32, 32, 8, 14336, 128256),
    "Llama-3.3-70B": _llama(8192, 80, 64, 8, 28672, 128256),
    "Llama-3.1-405B": _llama(16384, 126, 128, 8, 53248, 128256),
    "GPT-J 6B": {
        "model_type": "gptj",
        "n_embd": 4096,
        "n_layer": 28,
        "n_head": 16,
        "rotary_dim": 64,
        "vocab_size": 50400,
        "n_positions": 8192,
    },
    "Falcon 180B": {
        "model_type": "falcon",
        "hidden_size": 14848,
        "num_hidden_layers": 80,
        "num_attention_heads": 232,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
        "vocab_size": 65024,
        "bias": False,
        "parallel_attn": True,
    },
    "Qwen3-30B-A3B": _llama(2048, 48, 32, 4, 6144, 151936)
    | {"model_type": "qwen3_moe", "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8}
    | {"moe_intermediate_size": 768, "norm_topk_prob": True},
    "125m": _gpt(768, 12, 12),
    "350m": _gpt(1024, 24, 16),
    "760m": _gpt(1536, 24, 12),
    "1b": _gpt(2048, 24, 16),
    "3b": _gpt(2560, 32, 20),
    "7b": _gpt(4096, 32, 32),
    "13b": _gpt(5120, 40, 40),
    "30b": _gpt(7168, 48, 56),
    "70b": _gpt(8192, 80, 64),
}
MODELS |= {"LLaMA 7B": MODELS["Llama-2-7B"], "LLaMA 70B": MODELS["Llama-2-70B"]}
_LAYERS = ("num_hidden_layers", "n_layer")


def layers_of(model: str) -> int:
    config = MODELS[model]
    return next(int(config[name]) for name in _LAYERS if name in config)


@cache
def records(model: str, layers: int, mode: str, batch: int, tokens: int) -> tuple[Record, ...]:
    """The operations of a step of a model that has so many layers, in bf16."""
    config = MODELS[model] | {name: layers for name in _LAYERS if name in MODELS[model]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        settings: dict[str, Any] = {"optimizer": "none"} if mode == "train" else {}
        found = rl.estimate(f"hf:{path}", batch=batch, seq_len=tokens, mode=mode, dtype="bf16", **settings)
    return tuple(record for record in found if record.scope == "op")


def whole(model: str, value: Any, *step: Any) -> float:
    """A sum over the operations of all layers, from those of one and of two."""
    one, two = (sum(value(record) for record in records(model, layers, *step)) for layers in (1, 2))
    return float(one + (layers_of(model) - 1) * (two - one))


@dataclass(frozen=True)
class Bits:
    """In how many bits weights and caches are held, and in which precision products run."""

    weights: int = 16
    cache: int = 16
    precision: str = "bf16"

    def work(self, record: Record) -> Work:
        """What every implementation needs of an operation with these."""
        work = record.bound_work
        assert work is not None
        flops = {f"matmul.{self.precision}" if name == "matmul.bf16" else name: n for name, n in work.flops.items()}
        weights = _weights(record)
        moved = weights * self.weights / 16 + (work.bytes["dram"] - weights) * self.cache / 16
        return replace(work, flops=flops, bytes={"dram": moved})


def _weights(record: Record) -> float:
    """Bytes of the weights of a product that are needed of them."""
    work, call = record.bound_work, record.call
    if work is None or call is None or record.kind != "matmul" or not call.weight_reads:
        return 0
    return max(0.0, min(call.weight_reads, work.bytes["dram"] - (call.reads - call.weight_reads) - call.writes))


def seconds(model: str, device: Device, bits: Bits, mode: str, batch: int, tokens: int) -> float:
    """The bound of a step: the sum of the bounds of its operations."""
    one = cache(lambda work: bound(work, device).seconds)
    return whole(model, lambda record: one(bits.work(record)) * record.calls, mode, batch, tokens)


@dataclass(frozen=True)
class Demands:
    """What a whole step asks for: matrix FLOP, bytes of weights, and all other bytes."""

    flops: float
    weights: float
    rest: float


_MANY = 256
"""Sequences at which all experts of a layer are hit."""


@cache
def demands(model: str, mode: str, tokens: int) -> Demands:
    """The demands of a step for each sequence: prefill of so many tokens, or one token after so many.

    Weights are those of a step with many sequences; the others are linear in the batch, and are divided by it.
    """
    batch = _MANY if mode == "decode" else 1
    step = (mode, batch, tokens)
    flops = whole(model, lambda r: r.bound_work.matmul_flops * r.calls, *step)
    weights = whole(model, lambda r: _weights(r) * r.calls, *step)
    every = whole(model, lambda r: r.bound_work.bytes["dram"] * r.calls, *step)
    return Demands(flops / batch, weights, (every - weights) / batch)


def at(model: str, mode: str, tokens: float) -> Demands:
    """The demands at any number of tokens: of decode linear in it, of prefill of the second degree."""
    known = (128, 256) if mode == "decode" else (64, 128, 256)
    points = [demands(model, mode, n) for n in known]

    def fitted(values: list[float]) -> float:
        return sum(
            value * _product((tokens - other) / (mine - other) for other in known if other != mine)
            for mine, value in zip(known, values, strict=True)
        )

    return Demands(fitted([p.flops for p in points]), points[-1].weights, fitted([p.rest for p in points]))


def _product(factors: Iterator[float]) -> float:
    result = 1.0
    for factor in factors:
        result *= factor
    return result


def answers_per_second(model: str, device: Device, bits: Bits, batch: int, inputs: int, outputs: int) -> float:
    """The most answers per second of a card that answers `batch` sequences at a time, prompts and answers together.

    Engines put the tokens of prompts and of answers into the same step, so products of one may run while the cache of
    the other is read: FLOP and bytes overlap. Weights are read once for each token of an answer, for all sequences.
    """
    prompt, token = at(model, "prefill", inputs), at(model, "decode", inputs + outputs / 2)
    flops = prompt.flops + outputs * token.flops
    moved = outputs * (token.weights * bits.weights / 16 / batch + token.rest * bits.cache / 16)
    rate = device.require(f"matmul.{bits.precision}").rate
    return 1 / max(flops / rate, moved / device.require("dram").rate)


def most_sequences(model: str, memory: float, bits: Bits, inputs: int, outputs: int) -> int:
    """Sequences that fit into so much memory beside the weights, with half of the answers written."""
    token, before = at(model, "decode", inputs + outputs / 2), at(model, "decode", 0)
    return int((memory - token.weights * bits.weights / 16) / ((token.rest - before.rest) * bits.cache / 16))
