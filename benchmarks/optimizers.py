"""Time the optimizer of a training step beside its floor and beside what its form moves as written.

    python benchmarks/optimizers.py --out benchmarks/results/optimizers-h100.json [--cpu]

The floor reads every tensor once and writes it once; no measured time may be below it. "As written" goes over the
tensors as often as the operations of the form do. Exit code 1 if a time is below its floor.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import rooflens as rl

MODELS = {"resnet50": 16, "vgg16": 4}
"""Batch by model. Their parameters are larger than any GPU's cache."""
FORMS = (("sgd", False), ("sgd", True), ("adam", False), ("adam", True), ("adamw", False), ("adamw", True))
DTYPES = ("fp32", "amp-bf16")


def rows_of(model: str, batch: int, dtype: str, device: str, budget: float) -> list[dict[str, Any]]:
    """One row for each optimizer and form: seconds of the floor, as written, and measured."""
    rows = []
    for optimizer, fused in FORMS:
        records = rl.measure(
            model,
            batch=batch,
            dtype=dtype,
            mode="train",
            optimizer=optimizer,
            fused=fused,
            device=device,
            budget=budget,
            isolated=False,  # a worker for each would take longer than the sampling
            estimate=True,
            roof="h100-sxm" if device == "cpu" else None,
        )
        row: dict[str, Any] = {"model": model, "batch": batch, "dtype": dtype, "optimizer": optimizer, "fused": fused}
        if records.failures:
            rows.append(row | {"failed": records.failures[0].message})
            continue
        estimate = records.where(source="estimate")
        total, whole = estimate.total("optimizer"), estimate.total()
        written = total.written_bound
        measured = {r.phase: r.timing.median for r in records.where(source="measure") if r.timing is not None}
        rows.append(
            row
            | {
                "parameters": estimate.parameters,
                "floor": total.seconds,
                "as_written": None if written is None else written.seconds,
                "measured": measured["optimizer"],
                "step_floor": whole.seconds,
                "step_measured": sum(measured.values()),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true", help="one small model on the CPU, to try the script out")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of sampling for each case")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    card = "none" if options.cpu else torch.cuda.get_device_name()
    result: dict[str, Any] = {"card": card, "torch": torch.__version__, "rows": []}
    models, dtypes = ({"squeezenet1_1": 1}, DTYPES[:1]) if options.cpu else (MODELS, DTYPES)
    for model, batch in models.items():
        for dtype in dtypes:
            result["rows"] += rows_of(model, batch, dtype, "cpu" if options.cpu else "cuda", options.budget)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    below = [row for row in result["rows"] if row.get("measured", 1) < (row.get("floor") or 0)]
    print(f"{len(result['rows'])} rows, {len(below)} below the floor: {below}")
    return int(bool(below))


if __name__ == "__main__":
    raise SystemExit(main())
