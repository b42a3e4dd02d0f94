"""Time a sweep of a decoder over batch and context.

    python benchmarks/decoder_sweep.py [--model llama-3-70b] [--mode decode] [--points 1000] [--device h100-sxm]

Prints points, seconds and CPU seconds, and writes them to benchmarks/results/decoder_sweep.json beside those of other
modes and sizes. A point is the bound, the expected time and the memory of a step at one batch and one context.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import rooflens as rl

RESULTS = Path(__file__).parent / "results" / "decoder_sweep.json"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256)


def grid(points: int) -> tuple[list[int], list[int]]:
    """Return batches and contexts; there are as many pairs of them as points, or up to a batch's more."""
    batches = list(BATCHES[: min(points, len(BATCHES))])
    count = -(-points // len(batches))
    return batches, [512 + 64 * n for n in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3-70b")
    parser.add_argument("--mode", choices=("decode", "prefill"), default="decode")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--device", default="h100-sxm")
    asked = parser.parse_args()
    batches, contexts = grid(asked.points)
    began, cpu = time.perf_counter(), time.process_time()
    found = rl.estimate(
        asked.model, mode=asked.mode, dtype="bf16", device=asked.device, batch=batches, seq_len=contexts
    )
    for _, _, one in found.split():
        assert one.total().seconds is not None
        assert one.memory is not None
    result = {
        "model": asked.model,
        "mode": asked.mode,
        "points": len(found.cases),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "cores": os.cpu_count(),
    }
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[f"{asked.model} {asked.mode} {len(found.cases)}"] = result
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    print(", ".join(f"{name} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
