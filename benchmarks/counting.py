"""Compare rooflens with other counters: FLOP over the closed form, seconds, and peak memory.

    python benchmarks/counting.py [--only NAME]... [--again] [--write docs/benchmark-counting.md]

Each peer has an environment of its own under out/peers, with the versions pinned in benchmarks/peers, that also sees
the packages of the one that runs this script. Resumable: only cells that benchmarks/results/counting.json lacks are
run, and it is saved after each. `--only` runs those of one tool or model, `--again` runs also what has a result,
`--write` writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.counting_models import MODELS  # noqa: E402
from benchmarks.counting_page import page  # noqa: E402
from benchmarks.peers.tools import TOOLS, Tool  # noqa: E402

from rooflens.sources.environment import cpu_name  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "counting.json"
PEERS = ROOT / "out" / "peers"
LARGE = "resnet18, batch 256"
WITH_LARGE = ("rooflens", "torchinfo")

Cell = dict[str, Any]
Key = tuple[str, str, str]
"""Tool, model and phase."""


def python_of(tool: Tool) -> str:
    """The interpreter of a tool's environment; makes the environment, or renews it if its pins have changed."""
    if tool.peer is None:
        return sys.executable
    home, pins = PEERS / tool.peer, ROOT / "benchmarks" / "peers" / f"{tool.peer}.txt"
    python, done = home / "bin" / "python", home / "installed.txt"
    if not done.exists() or done.read_text() != pins.read_text():
        venv.create(home, clear=True, with_pip=False)
        purelib = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        Path(purelib, "main.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
        subprocess.run([*pip, "install", "-r", pins, "-c", ROOT / "constraints.txt"], check=True)
        done.write_text(pins.read_text())
    return str(python)


def wanted() -> list[Key]:
    """Every cell of the benchmark."""
    keys = [
        (tool.name, model.name, phase)
        for tool in TOOLS
        for phase in ("forward", "backward")
        for model in MODELS
        if phase == "forward" or tool.backward is not None
    ]
    return keys + [(name, LARGE, "whole") for name in WITH_LARGE]


def run(tool: Tool, keys: list[Key]) -> Iterator[Cell]:
    """Yield the cells of one tool as they are done; what the tool prints goes to a file next to its environment."""
    python = python_of(tool)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    PEERS.mkdir(parents=True, exist_ok=True)
    log = PEERS / f"{tool.name}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [python, "-m", "benchmarks.peers.worker", tool.name],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as worker,
    ):
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps([key[1:] for key in keys]))
        worker.stdin.close()
        for line in worker.stdout:
            yield json.loads(line)
    if worker.returncode:
        raise SystemExit(f"{tool.name} ended with {worker.returncode}; see {log}")


def key_of(cell: Cell) -> Key:
    return cell["tool"], cell["model"], cell["phase"]


def about() -> dict[str, Any]:
    """Machine and versions of the results."""
    cpus = len(os.sched_getaffinity(0))
    versions = {name: version(name) for name in ("torch", "torchvision", "timm", "transformers")}
    return {"machine": f"{cpus} cores of {cpu_name()}", "versions": versions}


def save(cells: dict[Key, Cell]) -> None:
    """Write the cells that still belong to the benchmark, one a line."""
    lines = ",\n".join(json.dumps(cells[key]) for key in wanted() if key in cells)
    header = json.dumps({"date": datetime.now(UTC).date().isoformat()} | about())[1:-1]
    draft = RESULTS.with_suffix(".new")
    draft.write_text(f'{{{header}, "cells": [\n{lines}\n]}}\n')
    draft.replace(RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a tool or a model")
    parser.add_argument("--again", action="store_true", help="run also cells that have a result")
    parser.add_argument("--write", type=Path, help="where to write the page of tables")
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": []}
    if found["cells"] and not options.again and any(found[name] != value for name, value in about().items()):
        raise SystemExit(f"{RESULTS} comes from another machine or other versions; give --again to replace it")
    cells = {key_of(cell): cell for cell in found["cells"]}
    keys = [key for key in wanted() if not options.only or set(options.only) & set(key)]
    for tool in TOOLS:
        todo = [key for key in keys if key[0] == tool.name and (options.again or key not in cells)]
        for cell in run(tool, todo) if todo else ():
            cells[key_of(cell)] = cell
            save(cells)
            print(json.dumps(cell), flush=True)
    if options.write:
        options.write.write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
