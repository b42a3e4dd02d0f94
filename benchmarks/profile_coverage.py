"""Measure the share of the device's time that a profile attributes to an operation of a module.

Profiles a forward pass and a training step of torchvision models, and of a small decoder where transformers is
installed. Writes for each the share of the time that belongs to an operation of a module, and the longest operations
that do not. On a GPU the time is that of kernels, copies and fills; with --cpu it is the host time of operations.

    python benchmarks/profile_coverage.py --out benchmarks/results/profile_coverage_h200.json
    python benchmarks/profile_coverage.py --out out/coverage.json --cpu --models resnet18 --batch 2
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from rooflens.errors import RooflensError
from rooflens.models import placed, workload
from rooflens.records import Record
from rooflens.results import UNATTRIBUTED, RecordSet
from rooflens.runs.run import Request
from rooflens.sources.profile import profiled_step

MODELS = (
    "resnet18",
    "resnet50",
    "vgg16",
    "densenet121",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "convnext_tiny",
    "inception_v3",
    "vit_b_16",
    "swin_t",
)
DECODER = "hf:gpt2"
MODES = ("inference", "train")
WANTED = {"inference": 0.95, "train": 0.90}
"""The least share of the time that is to be attributed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile every model and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--cpu", action="store_true", help="on the processor, although there may be a GPU")
    parser.add_argument("--models", nargs="*", default=[*MODELS, DECODER], help="default: ten and a decoder")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--dtype", default="fp32")
    chosen = parser.parse_args(arguments)
    where = "cpu" if chosen.cpu else "cuda"
    found = []
    for name in chosen.models:
        for mode in MODES:
            row = coverage(name, mode, where, chosen.batch, chosen.dtype)
            found.append(row)
            share = "-" if row["share"] is None else f"{100 * row['share']:.2f} %"
            print(f"{name:22} {mode:10} {share:>9}  {row['error'] or ''}", flush=True)
    chosen.out.write_text(json.dumps({"machine": machine(where), "rows": found}, indent=1) + "\n")


def coverage(name: str, mode: str, where: str, batch: int, dtype: str) -> dict[str, Any]:
    """The result of one profile, or the reason why the model cannot run."""
    row: dict[str, Any] = {"model": name, "mode": mode, "batch": batch, "dtype": dtype, "wanted": WANTED[mode]}
    begun = time.perf_counter()
    try:
        records = RecordSet(profiled(name, mode, where, batch, dtype))
    except RooflensError as error:
        return row | {"share": None, "error": str(error)}
    pieces = [record for record in records if record.timing is not None]
    seconds = sum(duration(record) for record in pieces)
    rest = [record for record in pieces if record.scope == "kernel" or record.path == UNATTRIBUTED]
    return row | {
        "share": records.coverage.time_share,
        "seconds": seconds,
        "operations": sum(record.scope == "op" for record in pieces),
        "phases": {phase: sum(duration(r) for r in pieces if r.phase == phase) for phase in records.phases},
        "unattributed": dict(longest(rest)),
        "took": time.perf_counter() - begun,
        "error": None,
    }


def profiled(name: str, mode: str, where: str, batch: int, dtype: str) -> Iterator[Record]:
    """The records of one profiled step."""
    asked = workload(Request(model=name, batch=batch, dtype=dtype, mode=mode))
    step = placed(asked.step(asked.runs[0], "cpu"), where)
    yield from profiled_step.records(step, asked.runs[0].case(), where)


def duration(record: Record) -> float:
    """Seconds of a record with a time."""
    assert record.timing is not None
    return record.timing.median


def longest(records: Sequence[Record], most: int = 10) -> list[tuple[str, float]]:
    """The names with the most time."""
    seconds: dict[str, float] = {}
    for record in records:
        seconds[record.name] = seconds.get(record.name, 0.0) + duration(record)
    return sorted(seconds.items(), key=lambda item: -item[1])[:most]


def machine(where: str) -> dict[str, str]:
    """Machine and versions of the measurements."""
    card = torch.cuda.get_device_name() if where == "cuda" else platform.machine()
    return {"device": card, "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
