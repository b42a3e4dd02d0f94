"""Time products, streams and mixes of both for a while: what a card's limit of power leaves of their speed.

    PYTHONPATH=src:. python3 benchmarks/prediction/power_on_gpu.py OUT --seconds 60

One call alone takes less than the limit averages over, and a step of large products does not: it runs slower than the
sum of its calls. Each mix is captured in a CUDA graph that takes some milliseconds, and runs after a pause for
`LASTING` seconds. Writes power.jsonl: of each mix its calls, FLOP and bytes, the seconds of a run at the beginning
(`begun`) and at the end (`lasting`), and watts and MHz as nvidia-smi tells them in between.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from rooflens.costs import Arithmetic, cost
from rooflens.predict.suite_calls import dense, made
from rooflens.records import Call
from rooflens.sources.replay.operands import runner

LASTING, PAUSE, CAPTURED = 1.5, 1.0, 8e-3
"""Seconds of a mix, before it, and of one graph."""
ASKED = "power.draw,power.limit,clocks.sm,clocks.mem,temperature.gpu"
Mix = tuple[tuple[Call, int], ...]


def mixes() -> Iterator[tuple[str, Mix]]:
    """Products of several sizes and streams, alone and together: a name, and calls with how often each comes."""
    big, deep, small, heads = (
        _product(8192, 4096, 14336), _product(8192, 14336, 4096), _product(8192, 2048, 8192), _product(4096, 4096, 4096)
    )  # fmt: skip
    x = dense(8192, 14336, dtype="bf16")
    stream = made("mul", x, self=x, other=x)
    row, one = dense(1, 8192, 4096), dense(1, 8192, 1)
    broadcast = made("mul", row, self=row, other=one)
    q = dense(1, 32, 8192, 128, dtype="bf16")
    attention = made(
        "attention", (q, dense(0)), query=q, key=q, value=q, mask=None, dropout=0.0, causal=True, saving=False
    )
    for name, call in (
        ("product 8192x4096x14336", big), ("product 8192x14336x4096", deep), ("product 8192x2048x8192", small),
        ("product 4096x4096x4096", heads), ("stream", stream), ("broadcast", broadcast), ("attention", attention),
    ):  # fmt: skip
        yield name, ((call, 1),)
    for name, other in (("stream", stream), ("broadcast", broadcast)):
        for times in (1, 2, 4, 8):
            yield f"product and {times} x {name}", ((big, 1), (other, times))
    yield "layer", ((big, 2), (deep, 1), (heads, 2), (stream, 2), (broadcast, 6))
    for dtype in ("fp32", "bf16"):
        image = dense(256, 256, 56, 56, dtype=dtype)
        yield f"relu {dtype}", ((made("relu", image, self=image), 1),)


def _product(m: int, k: int, n: int) -> Call:
    left, right, out = (dense(*shape, dtype="bf16") for shape in ((m, k), (k, n), (m, n)))
    return made("mm", out, self=left, mat2=right)


def timed(mix: Mix) -> dict[str, Any]:
    """Run a mix for a while: the seconds of one pass through it at the beginning and at the end, and what it draws."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        runs = [(runner(call), times) for call, times in mix]

        def once() -> None:
            for run, times in runs:
                for _ in range(times):
                    run()

        once()
        seconds = _elapsed(once, stream)
        count = max(1, round(CAPTURED / seconds))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(count):
                once()
        graph.replay()
        stream.synchronize()
        time.sleep(PAUSE)
        began = time.perf_counter()
        marks, told = [_mark(stream)], []
        while time.perf_counter() - began < LASTING:
            for _ in range(30):
                graph.replay()
                marks.append(_mark(stream))
            told.append(_told())
            stream.synchronize()
    passes = [a.elapsed_time(b) / 1e3 / count for a, b in pairwise(marks)]
    return {"passes": count, "begun": min(passes[:3]), "lasting": median(passes[len(passes) // 2 :]), "told": told[1:]}


def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


def _elapsed(run: Any, stream: torch.cuda.Stream) -> float:
    begin = _mark(stream)
    run()
    end = _mark(stream)
    stream.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _told() -> list[float]:
    """Watts, their limit, MHz of units and memory, degrees; none where nvidia-smi is not there."""
    asked = ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        text = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [float(word) for word in text.strip().split(",") if word.strip().replace(".", "", 1).isdigit()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    with (given.out / "power.jsonl").open("w") as file:
        for name, mix in mixes():
            if time.monotonic() > end:
                break
            works = [(cost(call, Arithmetic()).work, times) for call, times in mix]
            flops = sum(n * times for work, times in works for of, n in work.flops.items() if of.startswith("matmul."))
            nbytes = sum(work.bytes["dram"] * times for work, times in works)
            calls = [[call.name, list(call.outputs[0].shape), times] for call, times in mix]
            row = {"mix": name, "calls": calls, "flops": flops, "bytes": nbytes} | timed(mix)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(name, f"{row['begun']:.6f} {row['lasting']:.6f}", row["told"][-1:], flush=True)


if __name__ == "__main__":
    main()
