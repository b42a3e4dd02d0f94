"""Profile on a GPU steps whose expected times are to be explained, operation by operation.

    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/profile_on_gpu.py $OUT --seconds 100

Writes a trace of torch's profiler for each case, with the shapes of operations, the most telling first:
`rooflens read` lists its operations and kernels, and joins it with an estimate.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from benchmarks.prediction.truth_on_gpu import Case, Modules, training
from torch.profiler import ProfilerActivity, profile

from rooflens.errors import RooflensError
from rooflens.models import eager, running, switches

TRAINED = ("resnet34", "vit_b_32", "timm:seresnet50", "mobilenet_v2", "convnext_small", "timm:mixer_b16_224")
SIBLINGS = ("vgg16", "wide_resnet101_2", "resnet50", "regnet_y_3_2gf", "densenet121", "vit_b_16")
"""Models by which nothing is judged, of the kinds whose training is predicted too fast."""


def cases() -> Iterator[Case]:
    """Training; decode just below and above multiples of eight, with and without a static cache; prefill."""
    yield from training(SIBLINGS)
    for model in ("llama-3.2-1b", "qwen2.5-0.5b"):
        llm = {"model": model, "dtype": "bf16"}
        for length, batch in ((512, 1), (511, 1), (2048, 8), (2047, 8), (8192, 1)):
            yield {**llm, "mode": "decode", "seq_len": length, "batch": batch}
        for length, batch in ((512, 1), (2048, 8)):
            yield {**llm, "mode": "decode", "seq_len": length, "batch": batch, "kv_cache": "static"}
        for length, batch in ((512, 1), (2048, 1), (2048, 8)):
            yield {**llm, "mode": "prefill", "seq_len": length, "batch": batch}
        yield from training(TRAINED[:3] if model.startswith("llama") else TRAINED[3:])
        yield {**llm, "mode": "train", "seq_len": 512, "batch": 1, "optimizer": "adamw"}


def name_of(case: Case) -> str:
    model = case["model"].replace(":", "-")
    words = (model, case["mode"], f"b{case['batch']}", case.get("seq_len"), case.get("kv_cache"))
    return "-".join(str(word) for word in words if word is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--where", default="cuda", help="torch's device type; cpu to try the script out")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    modules = Modules(given.where)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if given.where == "cuda" else [])]
    for case in cases():
        if time.monotonic() > end:
            print("no time for", case, flush=True)
            continue
        try:
            with switches(case["dtype"]), running(case["model"]):
                run = eager(modules.step(case), given.where, dense=True)
                for _ in range(3):
                    run.once(lambda: None)
                with profile(activities=activities, record_shapes=True) as profiled:
                    run.once(lambda: None)
                    if given.where == "cuda":
                        torch.cuda.synchronize()
        except RooflensError as error:
            print(case, error, flush=True)
            continue
        plain = given.out / f"{name_of(case)}.json"
        profiled.export_chrome_trace(str(plain))
        with gzip.open(plain.with_suffix(".json.gz"), "wb", 6) as packed:
            packed.write(plain.read_bytes())
        plain.unlink()
        print(f"{end - time.monotonic():.0f} s left: {name_of(case)}", flush=True)


if __name__ == "__main__":
    main()
