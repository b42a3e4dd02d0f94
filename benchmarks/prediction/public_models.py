"""Steps of whole models that others have timed: NVIDIA's ResNet-50, timm's tables, NeuSight's models, gpt-fast."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.prediction.own_models import judged, on_sheets
from benchmarks.prediction.public_operations import MEASURED, NEUSIGHT
from benchmarks.prediction.public_sets import own_size
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
SETS = (
    ("timm, inference", "timm", 14811, "26 models as written, at their own image size, eager, of the newest torch"),
    ("NVIDIA's ResNet-50", "NVIDIA's ResNet-50", 165, "TensorFlow; training, which reads images meanwhile"),
    ("NeuSight, end to end", "NeuSight, end to end", 146, "AMD; several cards; fusion; Switch"),
    ("NeuSight, operations", "NeuSight", 32963, "300 of each file by a fixed seed"),
    ("Vidur, operations", "Vidur", 180819, "300 rows of each file by a fixed seed; below 20 us"),
    ("gpt-fast", "gpt-fast", 15, "several cards; int8 and int4 weights; an MI250X"),
    ("own decoders with fp8 or int8 weights", "-", 11, "kernels of quantised products: no suite has them"),
)  # fmt: skip
"""Name, source of rows, how many there are, and why others are not used."""


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
    written: dict[str, str] = {}  # parameters as the code has them: later tables have branches of a RepVGG in one
    for name, device, last, way in TABLES:
        with (MEASURED / "timm" / name).open() as file:
            for row in csv.DictReader(file):
                bare = row["model"].split(".")[0]
                if bare not in TIMM or not own_size(bare, row["infer_img_size"]):
                    continue
                if written.setdefault(bare, row["param_count"]) != row["param_count"]:
                    continue
                batch = int(float(row["infer_batch_size"]))
                case = {"model": f"timm:{bare}", "dtype": "amp-fp16", "mode": "inference", "batch": batch}
                seconds = batch / float(row["infer_samples_per_sec"])
                yield from _step(traces, case | {"channels_last": last}, device, "timm", way, seconds)


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
                case |= {"compile": True}  # their script compiles a step and captures it
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
