"""Time language models on this machine's GPU, and hold each time and each peak of memory against its estimate.

    python benchmarks/measured_decoders.py measure results.jsonl --seconds 480
    python benchmarks/measured_decoders.py compare results.jsonl --device h100-sxm --jobs 12 --write compared.json

`measure` takes prefill, decode (eager, from CUDA graphs, with a static cache) and training steps in bf16, the most
telling ones first, and stops when its time is over: what was not measured is not in the file. `compare` needs no GPU.
It exits with 1 if a time is below its floor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from subprocess import run
from typing import Any

import rooflens as rl
from rooflens.errors import RooflensError

SIZES = ("qwen2.5-0.5b", "llama-3.2-1b", "llama-3-8b")
SLIDING, EXPERTS, STATES = "gemma-3-1b", "hf:olmoe", "mamba-130m"
BATCHES = [1, 8, 64]


def cases() -> Iterator[dict[str, Any]]:
    """Arguments of `rl.measure`, a call for each combination of model, mode and length; batches are in one call."""
    static = {"kv_cache": "static", "cuda_graph": True}
    for model, seq_len in (("llama-3.2-1b", 8192), (SLIDING, 8192), ("llama-3-8b", 8192), ("llama-3.2-1b", 512)):
        batch = [1, 8] if model == "llama-3-8b" else BATCHES
        yield {"model": model, "mode": "decode", "seq_len": seq_len, "batch": batch, **static}
        yield {"model": model, "mode": "decode", "seq_len": seq_len, "batch": batch}
    yield {"model": "llama-3.2-1b", "mode": "train", "seq_len": 2048, "batch": [1, 4], "optimizer": "adamw"}
    yield {"model": STATES, "mode": "decode", "seq_len": 512, "batch": BATCHES}
    for model in (*SIZES, SLIDING, EXPERTS):
        for seq_len in (512, 8192):
            yield {"model": model, "mode": "prefill", "seq_len": seq_len, "batch": [1, 8]}
    for model in (*SIZES, SLIDING, EXPERTS):
        for seq_len in (512, 2048, 8192):
            batch = [1, 8] if model in ("llama-3-8b", EXPERTS) and seq_len == 8192 else BATCHES
            yield {"model": model, "mode": "decode", "seq_len": seq_len, "batch": batch}
            if model != EXPERTS:  # they choose their tokens by values that the host reads: no CUDA graph
                yield {"model": model, "mode": "decode", "seq_len": seq_len, "batch": batch, "cuda_graph": True}
                yield {"model": model, "mode": "decode", "seq_len": seq_len, "batch": batch, **static}
    for model in ("qwen2.5-0.5b", SLIDING):
        yield {"model": model, "mode": "train", "seq_len": 2048, "batch": [1, 4], "optimizer": "adamw"}


def unique(calls: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    known: list[dict[str, Any]] = []
    for asked in calls:
        if asked not in known:
            known.append(asked)
            yield asked


def measured(asked: dict[str, Any], budget: float, limit: float) -> Iterator[dict[str, Any]]:
    """Rows of one call; what fails is a row that says why."""
    began = time.perf_counter()
    try:
        records = rl.measure(**asked, dtype="bf16", budget=budget, limit=limit)
    except RooflensError as error:
        yield {**asked, "error": str(error)}
        return
    wall = time.perf_counter() - began
    for case in records.cases:
        of_case = records.where(batch=case.batch)
        yield {
            **asked,
            "batch": case.batch,
            "seconds": of_case.total().measured_seconds,
            "peak": None if of_case.memory is None else of_case.memory.peak,
            "wall_of_call": wall,
        }
    yield from ({**asked, "batch": f.case.batch, "error": f.message} for f in records.failures)


def measure(out: Path, seconds: float) -> None:
    """Append rows to `out` until the time is over; of a call that stands twice in the list, the first counts."""
    end = time.monotonic() + seconds
    for asked in unique(cases()):
        left = end - time.monotonic()
        if left < 10:
            print("no time for", asked, flush=True)
            continue
        for row in measured(asked, budget=0.3, limit=min(left, 90)):
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


def estimated(row: dict[str, Any], device: str) -> dict[str, Any]:
    """The row with its floor, the bound as written, and the peak of memory."""
    asked = {k: v for k, v in row.items() if k not in ("seconds", "peak", "wall_of_call", "error", "cuda_graph")}
    e = rl.estimate(**asked, dtype="bf16", device=device)
    total = e.total()
    assert total.written_bound is not None
    assert e.memory is not None
    written, held = total.written_bound.seconds, e.memory.with_workspace
    return {**row, "floor": total.seconds, "as_written": written, "estimated": held}


def compare(results: Path, device: str, jobs: int, write: Path | None) -> int:
    """Estimate all rows, each in a process of its own, and print how they compare."""
    rows = [row for row in map(json.loads, results.read_text().splitlines()) if row.get("seconds")]

    def one(row: dict[str, Any]) -> dict[str, Any]:
        command = [sys.executable, __file__, "one", json.dumps(row), "--device", device]
        done = run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        if done.returncode:
            return {**row, "error": done.stderr.strip().splitlines()[-1]}
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    with ThreadPoolExecutor(jobs) as pool:
        compared = list(pool.map(one, rows))
    if write is not None:
        write.write_text(json.dumps({"device": device, "rows": compared}, indent=1) + "\n")
    known = [row for row in compared if "floor" in row]
    below = [row for row in known if row["seconds"] < row["floor"]]
    for row in compared:
        what = " ".join(f"{k}={row[k]}" for k in ("model", "mode", "seq_len", "batch"))
        how = "static graph" if "kv_cache" in row else "graph" if row.get("cuda_graph") else "eager"
        if "floor" not in row:
            print(f"{what} {how}: not compared: {row['error']}")
            continue
        peak = f"peak {row['estimated'] / row['peak'] - 1:+.1%}" if row["peak"] else "peak not measured"
        print(f"{what} {how}: {row['seconds'] * 1e3:.3f} ms, floor {row['floor'] / row['seconds']:.0%} of it, {peak}")
    print(f"{len(known)} of {len(compared)} rows, {len(below)} below their floor")
    off = sorted(abs(row["estimated"] / row["peak"] - 1) for row in known if row["peak"])
    if off:
        print(f"peak of {len(off)} rows off by {median(off):.1%} at the median and {off[-1]:.1%} at worst")
    return 1 if below else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("measure", "compare", "one"))
    parser.add_argument("what", help="the file of results, or one row")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.do == "measure":
        measure(Path(given.what), given.seconds)
        return 0
    if given.device is None:
        parser.error("give the --device on which the times were taken")
    if given.do == "one":
        print(json.dumps(estimated(json.loads(given.what), given.device)))
        return 0
    return compare(Path(given.what), given.device, given.jobs, given.write)


if __name__ == "__main__":
    sys.exit(main())
