"""The wall time of `rooflens measure` beside sampling: python benchmarks/measure_wall.py RESULT.json [--device cpu]

Runs the command several times with --timings, then a study of one model and one of three, whose difference is what a
further model takes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rooflens.machine import found_device

MODEL, FURTHER = "timm:resnet34", ["timm:resnet50", "resnet18"]
COMMAND = [sys.executable, "-m", "rooflens"]
_PART = re.compile(r"^([a-z][a-z -]*?) +(\d+\.\d\d) s$", re.MULTILINE)


def timed(command: list[str]) -> tuple[float, str]:
    """Run a command; return seconds from its start to its end, and what it wrote on stderr."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return time.perf_counter() - began, done.stderr


def measured(where: str, batches: str, budget: float) -> dict[str, Any]:
    """The wall time of one call, and its parts."""
    arguments = ["measure", MODEL, "-b", batches, "--budget", str(budget), "--device", where, "--timings"]
    wall, said = timed([*COMMAND, *arguments])
    parts = {name: float(seconds) for name, seconds in _PART.findall(said)}
    print(f"{wall:.2f} s: rooflens {' '.join(arguments)}\n{said}", flush=True)
    return {"wall": wall, "parts": parts}


def study(where: str, models: list[str], batches: str, budget: float, folder: Path) -> float:
    """The wall time of a study that estimates and measures these models."""
    names = ", ".join(f'"{model}"' for model in models)
    file = folder / f"study-{len(models)}.toml"
    file.write_text(
        f'title = "wall time"\nmodels = [{names}]\nbatches = [{batches}]\nsources = ["estimate", "measure"]\n'
        f'devices = ["{where}"]\n[measure]\nbudget = {budget}\n'
    )
    wall, _ = timed([*COMMAND, "study", "run", str(file), "--folder", str(folder / file.stem)])
    print(f"{wall:.2f} s: study of {len(models)} models", flush=True)
    return wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", default="1,32,128")
    parser.add_argument("--budget", type=float, default=0.35)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-studies", action="store_true", help="run no study")
    given = parser.parse_args()
    how = (given.device, given.batches, given.budget)
    row: dict[str, Any] = {"model": MODEL, "batches": given.batches, "budget": given.budget, "calls": []}

    def keep(**found: Any) -> None:
        row.update(found)
        given.result.write_text(json.dumps(row, indent=1) + "\n")

    for _ in range(given.runs):
        keep(calls=[*row["calls"], measured(*how)])
    if not given.no_studies:
        with TemporaryDirectory(prefix="rooflens-") as folder:
            one = study(how[0], [MODEL], *how[1:], Path(folder))
            keep(**{"study of one": one})
            all_of_them = study(how[0], [MODEL, *FURTHER], *how[1:], Path(folder))
        keep(**{"further model": (all_of_them - one) / len(FURTHER)})
    found = found_device(given.device)
    torch = find_spec("torch")
    compiled = torch is not None and Path(torch.cached or "").is_file()
    keep(card=found.title, torch=found.torch, cores=os.cpu_count(), compiled=compiled)


if __name__ == "__main__":
    main()
