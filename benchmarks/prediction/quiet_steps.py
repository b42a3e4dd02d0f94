"""Choose the steps that count among those of quiet_on_gpu.py, and print a row for each case: their medians.

    python -m benchmarks.prediction.quiet_steps STEPS.jsonl ... > rows.jsonl

A step counts if the probes before and after it found the host quiet, as quiet_on_gpu.py says; each file is a session of
its own. A case needs three of them. Where the host does not matter, since all steps agree, all of them count.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

QUIET = 1.12
"""Times the fastest tenth of all probes, up to which the host is quiet."""
LEAST = 3
"""Quiet steps that tell a time."""
AGREE = 0.03
"""Range of all steps over their median, up to which they agree."""
DIGITS = 5
KEY = ("launching", "model", "mode", "dtype", "batch", "seq_len", "kv_cache")
"""What tells a case apart from others."""
Row = dict[str, Any]


def rows(cases: Sequence[Row]) -> Iterator[Row]:
    """The rows of a session's cases; none for a case with too few quiet steps."""
    limits = {
        trains: _limits([case for case in cases if (case["mode"] == "train") is trains]) for trains in (True, False)
    }
    for case in cases:
        steps = [step for step in case["steps"] if "error" not in step]
        trains = case["mode"] == "train"
        quiet = [step for step in steps if _quiet(step, limits[trains], trains=trains)]
        if len(quiet) >= LEAST:
            yield _row(case, quiet)
        elif len(steps) >= LEAST and _spread(steps) < AGREE:
            yield _row(case, steps)


def _limits(cases: Sequence[Row]) -> tuple[float, float]:
    """Up to which seconds of a small module, and of its gradients, the host is quiet."""
    probes = [step[when] for case in cases for step in case["steps"] for when in ("before", "after") if when in step]
    if len(probes) < 2:
        return 0.0, 0.0
    module, gradients = (QUIET * quantiles(its, n=10)[0] for its in zip(*probes, strict=True))
    return module, gradients


def _quiet(step: Row, limits: tuple[float, float], *, trains: bool) -> bool:
    """True if both probes were below; in inference nothing runs on backward's thread."""
    return all(step[when][kind] < limits[kind] for when in ("before", "after") for kind in range(1 + trains))


def _row(case: Row, steps: Sequence[Row]) -> Row:
    phases = steps[0]["times"]
    row = {name: value for name, value in case.items() if name != "steps" and value is not False}
    row["eager"] = median(_whole(step) for step in steps)
    if len(phases) > 1:
        row |= {f"{name}_s": median(step["times"][name] for step in steps) for name in phases}
    row["spread"] = _spread(steps)
    for kind, name in enumerate(("layer", "gradients")):
        row[name] = median(step[when][kind] for step in steps for when in ("before", "after"))
    row["quiet"] = len(steps)
    return {name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for name, value in row.items()}


def _whole(step: Row) -> float:
    return float(sum(step["times"].values()))


def _spread(steps: Sequence[Row]) -> float:
    """Range of the steps over their median."""
    whole = [_whole(step) for step in steps]
    return (max(whole) - min(whole)) / median(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    found: dict[str, Row] = {}
    for path in parser.parse_args().files:
        for row in rows([json.loads(line) for line in path.read_text().splitlines()]):
            key = json.dumps(
                {name: row.get(name) for name in ("model", "mode", "dtype", "batch", "seq_len", "kv_cache")}
            )
            if row["quiet"] > found.get(key, {"quiet": 0})["quiet"]:
                found[key] = row
    for row in found.values():
        print(json.dumps(row))


if __name__ == "__main__":
    main()
