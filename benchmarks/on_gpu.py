"""Compare estimates with measurements on a GPU: time with the bound, and peak memory with the allocator's.

    python benchmarks/on_gpu.py --out out/on_gpu [--cpu]

Writes one record file per model and prints a table. `--cpu` runs the same script without a GPU, to try it out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import rooflens as rl

MODELS = {"resnet18": (1, 64, 256), "alexnet": (1, 256), "mobilenet_v3_large": (1, 64), "vit_b_16": (1, 64)}
SETTINGS = (("fp32", "inference"), ("bf16", "inference"), ("fp32", "train"), ("amp-bf16", "train"), ("tf32", "train"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    where = "cpu" if options.cpu else "cuda"
    models = {"alexnet": (1, 2)} if options.cpu else MODELS
    for model, batches in models.items():
        records = rl.RecordSet(())
        for dtype, mode in SETTINGS:
            records += rl.measure(
                model, batch=batches, dtype=dtype, mode=mode, device=where, budget=1.0, estimate=True, roof=None
            )
        records.save(options.out / f"{model}.jsonl")
        show(records)


def show(records: rl.RecordSet) -> None:
    """Bound, measured time and both peaks of every case."""
    for case in records.where(source="measure").cases:
        same = {"model": case.model, "batch": case.batch, "dtype": case.dtype, "mode": case.mode}
        estimate, measured = (records.where(**same, source=source) for source in ("estimate", "measure"))
        seconds = sum(r.timing.median for r in measured if r.timing is not None)
        guess, real = estimate.memory, measured.memory
        bound = estimate.total().seconds
        print(
            f"{case.label():70} measured {seconds * 1e3:9.3f} ms  bound {(bound or float('nan')) * 1e3:9.3f} ms"
            + (
                f"  peak {real.peak / 1e6:9.1f} MB, estimated {guess.peak / 1e6:9.1f} MB"
                if guess and real and guess.peak and real.peak
                else ""
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
