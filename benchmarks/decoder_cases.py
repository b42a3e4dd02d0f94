"""What benchmarks/measured_decoders.py measures, the most telling first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import quantised_decoders

HALF, ONE, EIGHT = "qwen2.5-0.5b", "llama-3.2-1b", "llama-3-8b"
SLIDING, EXPERTS, STATES = "gemma-3-1b", "hf:olmoe", "mamba-130m"
GRAPH, STATIC = {"cuda_graph": True}, {"kv_cache": "static", "cuda_graph": True}
OF_TRAINING = ("checkpoint", "accumulation_steps", "master_weights", "optimizer_dtype")
EXPECTED = {EIGHT: 15.0, EXPERTS: 15.0}
"""Seconds of wall time for a case, beside the usual 7."""
OF_ANSWER = {"generate": 15.0, "compile": 75.0}
"""The same of whole answers, and where a model is compiled."""

Row = dict[str, Any]


def cases() -> Iterator[Row]:
    """What is to be measured, the most telling first."""

    def every(model: str, mode: str, seq_len: int, *batches: int, **how: Any) -> Iterator[Row]:
        for batch in batches:
            yield {"model": model, "mode": mode, "seq_len": seq_len, "batch": batch, **how}

    yield from answers()
    yield from every(EIGHT, "decode", 512, 1, 64, 8, **STATIC)
    yield from every(EIGHT, "decode", 8192, 1, 8, **GRAPH)
    yield from every(EIGHT, "decode", 2048, 8, 64, **GRAPH)
    yield from every(ONE, "train", 2048, 1, 4, optimizer="adamw")
    yield from every(HALF, "train", 2048, 1, optimizer="adamw")
    yield from every(HALF, "prefill", 512, 1, 8)
    yield from every(HALF, "decode", 512, 1, 64, **GRAPH)
    yield from every(HALF, "decode", 512, 1, **STATIC)
    yield from every(HALF, "decode", 512, 1)
    yield from every(ONE, "decode", 512, 1, 64, **GRAPH)
    for weights, kernel in quantised_decoders.KINDS:
        yield from every(ONE, "decode", 512, 1, weights=weights, kernel=kernel, **STATIC)
    yield from every(ONE, "decode", 512, 1, 64, **STATIC)
    yield from every(STATES, "decode", 512, 1, 64)
    yield from every(EIGHT, "decode", 512, 1)
    yield from every(EIGHT, "decode", 512, 1, 64, **GRAPH)
    yield from every(SLIDING, "decode", 8192, 1, 8, **GRAPH)
    yield from every(EXPERTS, "decode", 2048, 1, 8)
    yield from every(EIGHT, "decode", 512, 1, weights="fp8", kernel="_scaled_mm", **STATIC)
    yield from every(HALF, "decode", 8192, 1, 8, **GRAPH)
    yield from every(EIGHT, "decode", 8192, 1, 8, **STATIC)
    yield from every(SLIDING, "decode", 8192, 1, 8)
    for weights, kernel in quantised_decoders.KINDS:
        yield from every(ONE, "decode", 512, 64, weights=weights, kernel=kernel, **STATIC)
    for model in (HALF, ONE, SLIDING, EIGHT):
        yield from every(model, "decode", 2048, 1, 8, 64, **GRAPH)
    yield from every(SLIDING, "train", 2048, 1, optimizer="adamw")
    yield from every(HALF, "prefill", 8192, 1, 8)
    yield from every(HALF, "decode", 512, 8, **GRAPH)
    yield from every(STATES, "decode", 512, 8)
    yield from every(EXPERTS, "decode", 512, 1, 8, 64)
    yield from every(EIGHT, "decode", 512, 64, weights="fp8", kernel="_scaled_mm", **STATIC)
    yield from every(EIGHT, "decode", 512, 1, 64, weights="int8", kernel="_weight_int8pack_mm", **STATIC)
    for model in (ONE, SLIDING, EIGHT):
        yield from every(model, "decode", 512, 1, 8, 64, **GRAPH)
        yield from every(model, "decode", 8192, 1, 8, **GRAPH)


def answers() -> Iterator[Row]:
    """Whole answers, the most telling first."""

    def answer(model: str, batch: int, read: int, write: int, **how: Any) -> Row:
        lengths = {"prompt_len": read, "output_len": write}
        return {"model": model, "mode": "generate", **lengths, "batch": batch, **how}

    yield answer(ONE, 1, 512, 128, **STATIC)
    yield answer(EIGHT, 1, 512, 128, **STATIC)
    yield answer(ONE, 1, 512, 128)
    yield answer(ONE, 64, 512, 128, **STATIC)
    yield answer(HALF, 1, 512, 64)
    yield answer(EIGHT, 64, 512, 128, **STATIC)
    yield answer(SLIDING, 8, 2048, 32)
    yield answer(EXPERTS, 8, 512, 32)
    yield answer(STATES, 8, 512, 64)
    yield answer(EIGHT, 8, 2048, 128, **STATIC)
    yield answer(HALF, 1, 512, 64, kv_cache="static", compile=True)


def training(model: str = ONE, small: str = HALF, tokens: int = 2048) -> Iterator[Row]:
    """Training steps with what they may do beside forward, backward and optimizer, the most telling first."""
    step = {"model": model, "mode": "train", "seq_len": tokens, "batch": 1, "optimizer": "adamw"}
    less = {**step, "model": small}
    yield {**step, "checkpoint": True}
    yield {**step, "checkpoint": True, "batch": 8}
    yield step
    yield {**step, "accumulation_steps": 4}
    yield {**step, "master_weights": True}
    yield {**less, "checkpoint": True, "accumulation_steps": 2, "master_weights": True}
    yield {**less, "optimizer_dtype": "fp32"}
    yield {**less, "master_weights": True, "optimizer_dtype": "bf16"}
    yield {**less, "checkpoint": True, "batch": 8}
    yield {**less, "accumulation_steps": 4, "optimizer": "sgd"}


def tiny(config: str) -> Iterator[Row]:
    """Cases of a small model, to try the script out on a processor."""
    case = {"model": config, "seq_len": 16, "batch": 2}
    for weights, kernel in quantised_decoders.KINDS:
        yield {**case, "mode": "decode", "kv_cache": "static", "weights": weights, "kernel": kernel}
    for mode in ("prefill", "decode"):
        yield {**case, "mode": mode}
    answer = {"model": config, "mode": "generate", "prompt_len": 16, "output_len": 4, "batch": 2}
    yield from (answer, {**answer, "kv_cache": "static"})


def expected(row: Row) -> float:
    """Seconds of wall time that a case may take."""
    return max(EXPECTED.get(row["model"], 7.0), *(s for name, s in OF_ANSWER.items() if name in (row["mode"], *row)), 0)
