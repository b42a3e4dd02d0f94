"""Kill the run of a study with SIGKILL at random moments, and compare it with an undisturbed run of the same study.

    .venv/bin/python scripts/killed_here.py                   # 200 cells, 25 kills: three or four minutes on two cores
    .venv/bin/python scripts/killed_here.py --kills 5 --seed 3

After each kill `rooflens study resume` starts the run again. In the end every cell must have the records of the
undisturbed run, once. Exits with 1 if not. scripts/killed_study.py does the same on a cluster.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rooflens.api.studies import run_study

try:
    from scripts.killed_study import differences
except ImportError:  # run as a file
    from killed_study import differences  # type: ignore[no-redef,import-not-found]

SOURCE = Path(__file__).parents[1] / "src"
STUDY = """\
title = "Small estimates that something keeps killing"
models = [{models}]
batches = [{batches}]
modes = ["inference", "train"]
devices = ["t4", "v100-sxm2-16gb", "a100-sxm4-40gb", "h100-sxm", "p100-pcie-16gb"]
"""
MODELS = ("squeezenet1_1", "alexnet", "shufflenet_v2_x0_5", "resnet18")
DEVICES = 5
PAUSE = 0.4
"""A run is killed within so many seconds after it has done its share, which may be no cell at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a trial.

    Attributes:
        done: how many cells were done when the run was killed, each time.
        said: what differs from the run in peace, in sentences.
    """

    done: tuple[int, ...]
    said: tuple[str, ...]


def trial(here: Path, *, batches: int, models: int = len(MODELS), kills: int, seed: int, jobs: int = 2) -> Found:
    """Run a study in peace and killed: of some batches, models, two modes and five devices."""
    names = ", ".join(f'"{model}"' for model in MODELS[:models])
    study = here / "study.toml"
    study.write_text(STUDY.format(models=names, batches=", ".join(str(n) for n in range(1, batches + 1))))
    folder, rng, done = here / "killed", random.Random(seed), []
    share = 2 * DEVICES * models * batches / kills
    for _ in range(kills):
        process = _started(study, folder, jobs)
        wanted = _done(folder) + int(rng.uniform(0, share))
        while process.poll() is None and _done(folder) < wanted:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, PAUSE))
        process.kill()
        process.wait()
        done.append(_done(folder))
    last = _started(study, folder, jobs)
    if last.wait(timeout=900) != 0:
        return Found(done=tuple(done), said=("the last run failed",))
    run_study(study, here / "peace", jobs=jobs)
    litter = [f"left behind: {path.name}" for path in sorted((folder / "cells").iterdir()) if path.name[0] == "."]
    return Found(done=tuple(done), said=(*differences(here / "peace", folder), *litter))


def _done(folder: Path) -> int:
    """How many cells are done, from the names of the files alone."""
    return sum(path.name[0] != "." for path in (folder / "cells").glob("*.jsonl"))


def _started(study: Path, folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    begun = (folder / "study.json").exists()
    words = ["resume", str(folder)] if begun else ["run", str(study), "-d", str(folder)]
    command = [sys.executable, "-m", "rooflens", "study", *words, "--jobs", str(jobs)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=5, help="40 cells each")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as here:
        found = trial(Path(here), batches=options.batches, kills=options.kills, seed=options.seed, jobs=options.jobs)
    print(f"{2 * DEVICES * len(MODELS) * options.batches} cells, killed {options.kills} times,", end=" ")
    print(f"{time.monotonic() - begun:.0f} s; done when it was killed: {', '.join(map(str, found.done))}")
    print("\n".join(found.said) or "every cell was found once, and its records are those of the run in peace")
    sys.exit(1 if found.said else 0)


if __name__ == "__main__":
    main()
