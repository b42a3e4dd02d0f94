"""Steps of whole models that others have timed: NVIDIA's ResNet-50, timm's tables, NeuSight's models, gpt-fast."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.prediction.own_models import judged, on_sheets
from benchmarks.prediction.public_operations import MEASURED, NEUSIGHT
from benchmarks.prediction.tables import Judged
from benchmarks.prediction.traces import Traces
from benchmarks.prediction.truth_models import TIMM

import rooflens as rl
from rooflens.predict import Way

NVIDIA = {
    "V100-SXM2-16GB (DGX-1)": "v100-sxm2-16gb",
    "T4": "tesla-t4",
    "A100-SXM4-40GB (DGX A100)": "a100-sxm4-40gb",
}
PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "amp_fp16": "amp-fp16"}
TABLES = (
    ("benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv", "rtx-3090", False, "eager"),
    ("benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv", "rtx-3090", True, "eager"),
    ("benchmark-infer-amp-nchw-pt291-cu128-4090.csv", "rtx-4090", False, "eager"),
    ("benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv", "rtx-4090", True, "eager"),
)
"""Tables of timm, the card, whether images have channels last, and the way."""
LEFT_OUT = (
    ("LLM-foundry", 216, "8 to 512 GPUs: an expected time is of one card"),
    ("TensorRT-LLM", 197, "kernels of another library, fused and in fp8 or fp4; the batch of 140 rows is unknown"),
    ("gpt-fast", 14, "several cards, int8 and int4 weights in kernels that torch.compile makes, and an MI250X"),
    ("timm, processors", 4196, "an expected time is of a GPU"),
    ("timm, training", 1672, "not traced: no time for it"),
    ("timm, inference, others", 14707, "26 models are traced, eager, of the newest torch for each card and layout"),
    ("NVIDIA's ResNet-50, TensorFlow", 117, "another framework"),
    ("NVIDIA's ResNet-50, training", 12, "reading images is part of their time"),
    ("NeuSight, end to end, others", 76, "AMD, several cards, fusion, and Switch, whose experts depend on the data"),
)  # fmt: skip
"""Sets, rows that are not used, and why."""


def rows(traces: Traces) -> Iterator[Judged]:
    """Every row, with the constants of its generation, and with general ones."""
    yield from _nvidia(traces)
    yield from _timm(traces)
    yield from _neusight(traces)
    yield from _gpt_fast(traces)


def _nvidia(traces: Traces) -> Iterator[Judged]:
    with (MEASURED / "nvidia_dle/resnet50.csv").open() as file:
        for row in csv.DictReader(file):
            device, dtype = NVIDIA.get(row["device"]), PRECISIONS.get(row["precision"])
            if not row["framework"].startswith("PyTorch") or row["mode"] != "inference" or not device or not dtype:
                continue
            seconds = float(row["batch"]) / float(row["throughput_img_s"])
            last = dtype == "amp-fp16"  # their scripts set channels last with automatic mixed precision
            case = {"model": "resnet50", "dtype": dtype, "mode": "inference", "batch": int(row["batch"])}
            yield from _step(traces, case | {"channels_last": last}, device, "NVIDIA's ResNet-50", "eager", seconds)


def _timm(traces: Traces) -> Iterator[Judged]:
    for name, device, last, way in TABLES:
        with (MEASURED / "timm" / name).open() as file:
            for row in csv.DictReader(file):
                bare = row["model"].split(".")[0]
                if bare not in TIMM or not _own_size(bare, row["infer_img_size"]):
                    continue
                batch = int(float(row["infer_batch_size"]))
                case = {"model": f"timm:{bare}", "dtype": "amp-fp16", "mode": "inference", "batch": batch}
                seconds = batch / float(row["infer_samples_per_sec"])
                yield from _step(traces, case | {"channels_last": last}, device, "timm", way, seconds)


def _own_size(name: str, size: str) -> bool:
    """True if a model was run at its own image size."""
    import timm

    config = timm.get_pretrained_cfg(name)
    return config is not None and config.input_size[-1] == int(float(size))


def _neusight(traces: Traces) -> Iterator[Judged]:
    folder = MEASURED / "neusight/scripts/asplos"
    with (folder / "summary/summary.csv").open() as file:
        for row in csv.DictReader(file):
            name = row["model_name"]
            device = NEUSIGHT.get(row["device"].replace("_", " ")) or NEUSIGHT.get(row["device"].replace("_", " ", 1))
            if row["option"] or name.startswith("switch") or device is None or not row["label_all_e2e_latency"]:
                continue
            config = traces.folder / f"{name}.json"
            if not config.exists():  # their version of transformers writes attention out
                values = json.loads((folder / f"data/DLmodel_configs/{name}.json").read_text())
                config.write_text(json.dumps(values | {"attn_implementation": "eager", "use_cache": False}))
            case: dict[str, Any] = {
                "model": f"hf:{config}", "dtype": "fp32", "batch": int(row["batch"]), "seq_len": int(row["seqlen"]),
                "mode": "train" if row["mode"] == "train" else "inference",
            }  # fmt: skip
            if case["mode"] == "train":
                case["optimizer"] = "none"
            published = float(row["neusight_all_e2e_latency"]) / 1e3 if row["neusight_all_e2e_latency"] else None
            seconds = float(row["label_all_e2e_latency"]) / 1e3
            yield from _step(traces, case, device, "NeuSight, end to end", "eager", seconds, name, published)


def _gpt_fast(traces: Traces) -> Iterator[Judged]:
    with (MEASURED / "misc/gpt_fast.csv").open() as file:
        for row in csv.DictReader(file):
            if row["tp"] == "1" and row["weights"] == "bf16" and row["device"].startswith("A100"):
                case = {"model": "llama-2-7b", "dtype": "bf16", "mode": "decode", "batch": 1, "seq_len": 256}
                seconds = 1 / float(row["tok_s_batch1"])
                yield from _step(traces, case | {"kv_cache": "static"}, "a100-sxm4-80gb", "gpt-fast", "graph", seconds)


def _step(
    traces: Traces, case: dict[str, Any], device: str, source: str, way: Way | str, seconds: float,
    model: str | None = None, published: float | None = None,
) -> Iterator[Judged]:  # fmt: skip
    records = traces.step(case)
    asked: Way = "eager" if way == "eager" else "graph"
    more: dict[str, Any] = {"mode": case["mode"], "model": model or case["model"], "published": published}
    yield from judged(records, on_sheets(rl.device(device)), None, asked, seconds, source=source, **more)
