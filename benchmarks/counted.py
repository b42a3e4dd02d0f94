"""Compute executed over algorithmic work by operation family, from records that `rooflens counters` wrote:

    PYTHONPATH=. python benchmarks/counted.py --out benchmarks/results/counted-h200.json runs/*.jsonl

Each file holds the counters of one case and its estimate (``rooflens counters MODEL ... -o runs/NAME.jsonl``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rooflens as rl
from rooflens.compare.executed_work import executed

DECODERS = {"decoder-1b": "decoder of 1 billion"}
"""By the name of the file that `on_gpu_counters.sh` writes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("files", nargs="+", type=Path, help="record files")
    options = parser.parse_args()
    cases = [case(rl.read(path)) for path in options.files]
    options.out.write_text(json.dumps({"cases": cases}, indent=1) + "\n")
    for its in cases:
        name, share = f"{its['model']} {its['mode']}", its["time_share"]
        print(f"{name}: {its['kernels']} kernels, {share:.2%} of their time attributed")


def case(records: rl.RecordSet) -> dict[str, Any]:
    """The families of one counted case."""
    counted = records.where(source="counters")
    (its,) = counted.cases
    environment = records.environment
    assert environment is not None
    return {
        "model": DECODERS.get(Path(its.model.removeprefix("hf:")).stem, its.model),
        "batch": its.batch,
        "dtype": its.dtype,
        "mode": its.mode,
        "options": dict(its.options),
        "card": environment.machine.get("card"),
        "driver": environment.machine.get("driver"),
        "torch": environment.versions.get("torch"),
        "how": [note for note in counted.notes if note.startswith(("counted by", "partial"))],
        "kernels": sum(1 for record in counted if record.work is not None),
        "time_share": counted.coverage.time_share,
        "families": list(families(records)),
    }


def lost(records: rl.RecordSet) -> str:
    """The notes on counters that a run lost: its totals are then no totals. "" if it is whole."""
    lacks = ("not counted: ", "partial: ")
    return "; ".join(dict.fromkeys(note for note in records.notes if note.lower().startswith(lacks)))


def families(records: rl.RecordSet) -> Iterator[dict[str, Any]]:
    """One row per phase and family."""
    for item in executed(records, "family"):
        algorithmic = item.algorithmic
        yield {
            "phase": item.phase,
            "family": item.key,
            "kernels": item.kernels,
            "seconds": item.seconds,
            "executed_flops": item.executed.flops,
            "algorithmic_flops": None if algorithmic is None else algorithmic.flops,
            "flops_ratio": item.flops_ratio,
            "dram_bytes": item.executed.bytes.get("dram"),
            "compulsory_bytes": None if algorithmic is None else algorithmic.bytes.get("dram"),
            "bytes_ratio": item.bytes_ratio,
            "l2_bytes": item.executed.bytes.get("l2"),
        }


if __name__ == "__main__":
    main()
