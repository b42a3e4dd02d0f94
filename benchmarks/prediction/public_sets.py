"""Steps that others have timed with other programs: LLM-foundry, TensorRT-LLM, timm's training and processors.

None of them runs the code that is traced here: the model is the same and the program is not, which the tables say.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.prediction.own_models import judged, on_sheets
from benchmarks.prediction.public_operations import MEASURED
from benchmarks.prediction.tables import Judged
from benchmarks.prediction.traces import Traces
from benchmarks.prediction.truth_models import TIMM

import rooflens as rl
from rooflens.predict import card_of, generation
from rooflens.predict.constants import GENERAL

FOUNDRY = {"a100_40gb": "a100-sxm4-40gb", "a100_80gb": "a100-sxm4-80gb", "h100_80gb": "h100-sxm"}
MPT = {"125m": (768, 12, 12), "350m": (1024, 24, 16), "760m": (1536, 24, 12), "1b": (2048, 24, 16)}
"""Width, layers and heads of MPT models that fit a card, as LLM-foundry's files have them."""
VOCABULARY = 50368
LENGTHS = frozenset({512, 2048, 8192})
TENSORRT = {"GPT-J 6B": "gptj", "LLaMA 7B": "llama-2-7b"}
TRAINED = tuple(sorted(TIMM))[::2]
"""Every second model: a trace of training takes half a minute."""
PROCESSORS = {"i9_10940x": "core-i9-10940x", "i7_12700h": "core-i7-12700h"}
SETS = (
    (
        "LLM-foundry", "LLM-foundry", 216,
        "several machines; recomputed activations; fp8; from 3B; lengths but 512, 2,048 and 8,192",
    ),
    ("TensorRT-LLM 0.5, 0.6", "TensorRT-LLM", 57, "fp8 in fused kernels; several cards; 70B and 180B"),
    ("TensorRT-LLM 1.0", "-", 140, "fp8 and fp4 in fused kernels; the batch is not told"),
    ("timm, training", "timm, training", 1672, "every second of 26 models is traced, at its own image size"),
    ("timm, processors", "timm, processors", 4196, "26 models are traced, at their own image size, and torch 2.4"),
)  # fmt: skip
"""Name, source of rows, how many there are, and why others are not used."""


def rows(traces: Traces) -> Iterator[Judged]:
    """Every row that is used."""
    yield from _foundry(traces)
    yield from _tensorrt(traces)
    yield from _training(traces)
    yield from _processors(traces)


def _table(name: str) -> list[dict[str, str]]:
    with (MEASURED / name).open() as file:
        return list(csv.DictReader(file))


def configuration(traces: Traces, name: str, values: dict[str, Any]) -> str:
    """The name of a model that a file describes, which is written where traces are."""
    path = traces.folder / f"{name}.json"
    if not path.exists():
        path.write_text(json.dumps(values))
    return f"hf:{path}"


def mpt(traces: Traces, size: str, length: int) -> str:
    """An MPT as a GPT-2 of its sizes, with the activation of MPT, which is one kernel and not eight."""
    width, layers, heads = MPT[size]
    values = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers,
        "n_head": heads, "n_positions": length, "vocab_size": VOCABULARY, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0, "activation_function": "gelu",
    }  # fmt: skip
    return configuration(traces, f"mpt-{size}-{length}-gelu", values)


def _foundry(traces: Traces) -> Iterator[Judged]:
    """A microbatch's forward and backward on each of eight cards, which exchange weights and gradients meanwhile."""
    for row in _table("llm-foundry/parsed.csv"):
        length, plain = (
            int(row["SeqLen (T)"]),
            row["Activation Checkpointing"] == row["Activation CPUOffload"] == "False",
        )
        fits = row["Model"] in MPT and length in LENGTHS and row["# GPUs"] == "8"
        if not (fits and plain and row["Precision"] in ("bf16", "amp_bf16")):
            continue
        batch = int(row["MicroBatchSize"])
        pure = row["MP Mode"] == "PURE"  # else parameters and sums are fp32, and products run in autocast
        case = {
            "model": mpt(traces, row["Model"], length), "dtype": "bf16" if pure else "amp-bf16", "mode": "train",
            "batch": batch, "seq_len": length, "optimizer": "none",
        }  # fmt: skip
        seconds = batch * length / float(row["Throughput (T/s/GPU)"])
        more: dict[str, Any] = {"source": "LLM-foundry", "mode": "train", "model": f"mpt-{row['Model']}"}
        yield from judged(traces.step(case), on_sheets(rl.device(FOUNDRY[row["GPU"]])), None, "eager", seconds, **more)


def _tensorrt(traces: Traces) -> Iterator[Judged]:
    gptj = {"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": 4096, "n_layer": 28, "n_head": 16,
            "n_positions": 4096, "rotary_dim": 64, "vocab_size": 50400}  # fmt: skip
    for row in _table("trtllm/trtllm_v05_v06.csv"):
        name = TENSORRT.get(row["model"])
        if name is None or row["precision"] != "fp16" or row["tp"] != "1":
            continue
        model = configuration(traces, "gptj-6b", gptj) if name == "gptj" else name
        case: dict[str, Any] = {"model": model, "dtype": "fp16", "batch": int(row["batch"]), "compile": True}
        if row["kind"] == "first_token":
            case |= {"mode": "prefill", "seq_len": int(row["input_len"])}
            seconds = float(row["first_token_ms"]) / 1e3
        else:
            outputs = int(row["output_len"])
            case |= {"mode": "generate", "prompt_len": int(row["input_len"]), "output_len": outputs}
            case |= {"kv_cache": "static"}
            seconds = case["batch"] * outputs / float(row["out_tok_s"])
        more: dict[str, Any] = {"source": "TensorRT-LLM", "mode": case["mode"], "model": row["model"]}
        cards = on_sheets(rl.device("a100-sxm4-80gb"))
        yield from judged(traces.step(case), cards, None, "graph", seconds, **more)


def own_size(name: str, size: str) -> bool:
    """True if a model of timm was run at its own image size."""
    import timm

    config = timm.get_pretrained_cfg(name)
    return config is not None and config.input_size[-1] == int(float(size))


def _training(traces: Traces) -> Iterator[Judged]:
    for layout in ("nchw", "nhwc"):
        for row in _table(f"timm/benchmark-train-amp-{layout}-pt112-cu113-rtx3090.csv"):
            name = row["model"].split(".")[0]
            if name not in TRAINED or not own_size(name, row["train_img_size"]):
                continue
            case = {
                "model": f"timm:{name}", "dtype": "amp-fp16", "mode": "train", "batch": int(row["train_batch_size"]),
                "optimizer": "sgd", "channels_last": layout == "nhwc",
            }  # fmt: skip
            seconds = float(row["train_step_time"]) / 1e3
            more: dict[str, Any] = {"source": "timm, training", "mode": "train", "model": case["model"]}
            yield from judged(traces.step(case), on_sheets(rl.device("rtx-3090")), None, "eager", seconds, **more)


def _processors(traces: Traces) -> Iterator[Judged]:
    """Compiled steps, beside what eager ones would take with constants of another processor: no level of rooflens."""
    guess = generation(GENERAL).measured({}, "an EPYC", "general")
    for part, device in PROCESSORS.items():
        card = card_of(rl.device(device), guess)
        assert card is not None
        for row in _table(f"timm/benchmark-infer-fp32-nchw-pt240-cpu-{part}-dynamo.csv"):
            name = row["model"].split(".")[0]
            if name not in TIMM or not own_size(name, row["infer_img_size"]):
                continue
            case = {"model": f"timm:{name}", "dtype": "fp32", "mode": "inference", "batch": 1}
            more: dict[str, Any] = {
                "source": "timm, processors",
                "mode": "inference",
                "model": case["model"],
                "seen": True,
            }
            seconds = 1 / float(row["infer_samples_per_sec"])
            for found in judged(traces.step(case), [card], "forward", "eager", seconds, **more):
                yield replace(found, level="another processor's constants")
