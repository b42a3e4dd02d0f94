"""Compare medians of rooflens with those of other timers, for the same step in the same process.

    python benchmarks/agreement.py --out benchmarks/results/agreement-h200.json    # triton.testing.do_bench
    python benchmarks/agreement.py --out benchmarks/results/agreement-cpu.json --cpu    # torch's Timer

On a GPU both empty the caches before each sample. Ten models run at batches at which the device is the limit, and at
batch 1, where the host is. On a CPU both use the same number of threads. Each is timed in several turns, and the
shortest median counts, because a machine may be disturbed but never runs too fast. Exits with 1 if a
device-limited case differs by more than 2 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rooflens.models import eager, placed, switches, workload
from rooflens.runs.run import Request
from rooflens.sources import environment
from rooflens.sources.measure import clock_of
from rooflens.timing import Policy, sample

LIMIT = 0.02
TURNS = {"cuda": 2, "cpu": 12}
"""A processor is disturbed more often than a card: more and shorter turns."""
ON_CARD = (
    ("alexnet", 1024, "tf32"),
    ("resnet50", 256, "tf32"),
    ("vgg16", 64, "fp32"),
    ("densenet121", 256, "bf16"),
    ("mobilenet_v3_large", 512, "fp32"),
    ("efficientnet_b0", 256, "bf16"),
    ("convnext_tiny", 256, "bf16"),
    ("vit_b_16", 256, "bf16"),
    ("swin_t", 256, "bf16"),
    ("regnet_y_8gf", 256, "fp16"),
)
ON_CPU = (
    ("alexnet", 4, "fp32"),
    ("resnet18", 2, "fp32"),
    ("squeezenet1_1", 4, "fp32"),
    ("mobilenet_v3_small", 8, "fp32"),
    ("vit_b_16", 1, "fp32"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    where = "cpu" if options.cpu else "cuda"
    rows = [row for case in (ON_CPU if options.cpu else ON_CARD) for row in compared(*case, where)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    machine = environment.capture().machine
    options.out.write_text(json.dumps({"machine": machine, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    worst = max(abs(row["ratio"] - 1) for row in rows if row["device_limited"])
    print(f"worst of the device-limited cases: {100 * worst:.2f} %")
    sys.exit(worst > LIMIT)


def compared(model: str, batch: int, dtype: str, where: str) -> Iterator[dict[str, Any]]:
    """Both medians of a model at a batch and, on a GPU, at batch 1."""
    for size in (batch,) if where == "cpu" else (batch, 1):
        run = prepared(model, size, dtype, where)
        call = partial(run, lambda: None)
        with switches(dtype):
            turns = [(timed(run, where), other(call, where)) for _ in range(TURNS[where])]
        ours, theirs = min(median for (median, _), _ in turns), min(median for _, median in turns)
        row: dict[str, Any] = {
            "model": model,
            "batch": size,
            "dtype": dtype,
            "device_limited": size == batch,
            "rooflens": ours,
            "other": theirs,
            "ratio": ours / theirs,
            "outside_of_samples": min(cost for (_, cost), _ in turns),
        }
        print(
            f"{model:20} batch {size:5} {dtype:5} {1e3 * ours:9.4f} ms, other {1e3 * theirs:9.4f} ms,"
            f" ratio {row['ratio']:.4f}, outside of samples {1e6 * row['outside_of_samples']:.1f} us a call",
            flush=True,
        )
        yield row


def timed(run: Callable[[Callable[[], None]], None], where: str) -> tuple[float, float]:
    """The median, and the seconds per call outside the timed part: harness, flush, synchronisation."""
    begun = time.perf_counter()
    timing = sample(run, ("forward",), clock_of(where, flush=where == "cuda"), POLICY[where])["forward"]
    rest = time.perf_counter() - begun - sum(timing.samples) - sum(timing.warmup) - (timing.cold or 0.0)
    return timing.median, rest / (1 + len(timing.warmup) + len(timing.samples))


POLICY = {"cuda": Policy(budget=1.5), "cpu": Policy(budget=0.7, precision=0.0)}


def prepared(model: str, batch: int, dtype: str, where: str) -> Callable[[Callable[[], None]], None]:
    """The step on its device."""
    asked = workload(Request(model=model, batch=batch, dtype=dtype))
    step = asked.step(asked.runs[0], "cpu")
    return eager(placed(step, where, copy=False), where).once


def other(call: Callable[[], None], where: str) -> float:
    """The median of the other timer, in seconds."""
    if where == "cuda":
        from triton.testing import do_bench

        return float(do_bench(call, warmup=200, rep=1500, return_mode="median")) / 1e3  # milliseconds in and out
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=0.7).median)


if __name__ == "__main__":
    main()
