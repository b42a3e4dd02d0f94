"""Count forward and backward of timm's models: every module of timm, up to six models of each.

    python benchmarks/timm_models.py [--module NAME]... [--again]

Resumable: a model in benchmarks/results/timm.json is not run again, unless `--again` is given. Each
model runs in a process of its own with a time limit. Prints one line per model and what is not counted, and exits with
1 if a model has an uncounted operation or an error that is not among `REASONS`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.apart import apart  # noqa: E402

import rooflens as rl  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "timm.json"
PER_MODULE = 6
LIMIT = 180.0
"""Seconds that a model may take."""

REASONS: dict[str, str] = {}
"""Why a model is not counted in full."""


def chosen() -> dict[str, str]:
    """Names of models and the timm module of each: up to `PER_MODULE` of every module, evenly over its sorted names."""
    import timm

    models: dict[str, str] = {}
    for module in sorted(timm.list_modules()):
        names = sorted(timm.list_models(module=module))
        n = min(PER_MODULE, len(names))
        for i in range(n):
            models[names[i * (len(names) - 1) // max(1, n - 1)]] = module
    return models


def counted(name: str) -> dict[str, Any]:
    """The counts of one model's forward and backward at batch 1."""
    begun = time.perf_counter()
    step = rl.estimate(f"timm:{name}", batch=1, mode="train", optimizer="none")
    seconds = time.perf_counter() - begun
    row: dict[str, Any] = {
        "operations": step.coverage.operations,
        "forward": step.total("forward").matmul_flops,
        "backward": step.total("backward").matmul_flops,
        "uncounted": list(step.coverage.uncounted),
        "seconds": round(seconds, 2),
    }
    notes = [note for record in step if record.scope == "model" for note in record.notes]
    return row | ({"notes": notes} if notes else {})


def run(name: str, module: str) -> dict[str, Any]:
    """The row of one model: its counts, or the reason why there are none."""
    outcome = apart(lambda: counted(name), LIMIT)
    row: dict[str, Any] = {"model": name, "module": module}
    if outcome.error is None:
        return {**row, **outcome.value}
    return row | {"error": outcome.error, "message": outcome.message}


def wrong(row: dict[str, Any]) -> bool:
    """True if a model is not counted in full and `REASONS` does not explain it."""
    return incomplete(row) and row["model"] not in REASONS


def incomplete(row: dict[str, Any]) -> bool:
    return "error" in row or bool(row["uncounted"])


def read() -> dict[str, dict[str, Any]]:
    rows = json.loads(RESULTS.read_text())["models"] if RESULTS.exists() else []
    return {row["model"]: row for row in rows}


def write(rows: dict[str, dict[str, Any]]) -> None:
    """Save the rows, one a line, in the order of their names."""
    import timm
    import torch

    versions = json.dumps({"timm": timm.__version__, "torch": torch.__version__.split("+")[0]})
    lines = ",\n".join(json.dumps(rows[name]) for name in sorted(rows))
    draft = RESULTS.with_suffix(".new")
    draft.write_text(f'{{"versions": {versions}, "models": [\n{lines}\n]}}\n')
    draft.replace(RESULTS)


def load() -> None:
    """Import what an estimate imports, for all forks. No backward runs, because its threads do not survive a fork."""
    rl.estimate("timm:resnet18", batch=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", action="append", help="a module of timm; default: all")
    parser.add_argument("--again", action="store_true", help="also models that have a result")
    options = parser.parse_args()
    models = chosen()
    rows = {name: row for name, row in read().items() if name in models}
    load()
    for name, module in models.items():
        if (options.module and module not in options.module) or (name in rows and not options.again):
            continue
        rows[name] = run(name, module)
        write(rows)
        print(json.dumps(rows[name]), flush=True)
    bad = [row for row in rows.values() if wrong(row)]
    complete = sum(not incomplete(row) for row in rows.values())
    print(f"{len(rows)} models of {len(set(models.values()))} modules, {complete} with every operation counted")
    for row in bad:
        print(f"NOT COUNTED: {row['model']}: {row.get('message') or row['uncounted']}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
