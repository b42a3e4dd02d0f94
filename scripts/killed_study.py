"""Kill processes of a study on a real Slurm at random, and compare it with an undisturbed run of the same study.

    .venv/bin/python scripts/killed_study.py                           # 200 cells, 25 kills
    .venv/bin/python scripts/killed_study.py --cells 40 --kills 5 --seed 3

Starts a Slurm of its own (scripts/slurm_here.py). At random moments something is killed with SIGKILL: the process that
submits, a random process of a job (submitit's, the one that runs cells, a worker), or all of a job; or a job is
preempted by one of the urgent partition, or given the signal of a time limit. Whenever the submitting process is gone,
`rooflens study resume` is called. In the end every cell must have the records of the undisturbed run, once.
Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rooflens.api.studies import run_study
from rooflens.study import StudyFolder
from rooflens.study.slurm import JOBS, job_name

try:
    from scripts.slurm_here import running
except ImportError:  # run as a file
    from slurm_here import running  # type: ignore[no-redef,import-not-found]

SECONDS = 0.4
"""That a cell takes at least: nothing can be killed amid less."""
MODEL = """\
import time

import torch


def build(batch=1):
    time.sleep({seconds})
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    return module, torch.zeros(batch, 64)
"""
STUDY = """\
title = "Estimates that something keeps killing"
models = ["tiny.py:build"]
batches = [{batches}]
modes = ["inference", "train"]
dtypes = ["fp32", "fp16"]
devices = ["t4"]

[estimate]
limit = 60

[cluster.here]
time = 5
parallel = 2
"""
PAUSE = (0.5, 12.0)
"""Seconds between two kills."""
PATIENCE = 900.0
"""Seconds after the last kill in which the study has to be over."""
KILLS = ("submitter", "process", "process", "process", "job", "preemption", "time limit")
"""What may happen; processes of jobs most often, since there are several kinds of them."""


@dataclass(slots=True, kw_only=True)
class Killed:
    """A study that is run and killed.

    Attributes:
        happened: how often each thing happened.
    """

    study: Path
    folder: Path
    environment: Mapping[str, str]
    rng: random.Random
    happened: Counter[str] = field(default_factory=Counter)
    submitter: subprocess.Popen[bytes] | None = None

    def run(self, kills: int) -> None:
        """Kill so many times, then let it finish.

        Raises:
            RuntimeError: it was over before, or does not end.
        """
        self._go_on()
        while self.happened.total() < kills:
            if self._complete():
                raise RuntimeError(f"the study was over after {self.happened.total()} kills; give it more cells")
            time.sleep(self.rng.uniform(*PAUSE))
            self._go_on()
            what = self.rng.choice(KILLS)
            if self._kill(what):
                self.happened[what] += 1
        deadline = time.monotonic() + PATIENCE
        while not self._complete():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the study is not over {PATIENCE:g} s after the last kill; see {self.folder}")
            self._go_on()
            time.sleep(1.0)
        assert self.submitter is not None
        self.submitter.wait(timeout=PATIENCE)

    def end(self) -> None:
        """End the process that submits."""
        if self.submitter is not None:
            self.submitter.kill()
            self.submitter.wait()

    def _complete(self) -> bool:
        """Whether every cell is done or failed."""
        if not (self.folder / "study.json").exists():
            return False
        status = StudyFolder.open(self.folder).status()
        return status.count("left") + status.count("running") == 0

    def _go_on(self) -> None:
        """Start the process that submits, if none is there."""
        if self.submitter is not None and self.submitter.poll() is None:
            return
        begun = (self.folder / "study.json").exists()
        words = ["resume", str(self.folder)] if begun else ["run", str(self.study), "-d", str(self.folder)]
        with (self.folder.parent / "submitter.log").open("ab") as log:
            self.submitter = subprocess.Popen(
                [sys.executable, "-m", "rooflens", "study", *words, "--cluster", "here"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def _kill(self, what: str) -> bool:
        """Whether there was something to kill."""
        jobs, processes = self._running(), list(self._processes())
        if what == "submitter":
            self.end()
        elif what == "process" and processes:
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(processes), signal.SIGKILL)
        elif what == "job" and jobs:
            self._slurm("scancel", "--full", "--signal=KILL", self.rng.choice(jobs))
        elif what == "time limit" and jobs:
            self._slurm("scancel", "--signal=USR2", self.rng.choice(jobs))
        elif what == "preemption" and jobs:
            self._slurm("srun", "--partition=urgent", f"--cpus-per-task={os.cpu_count()}", "true")
        else:
            return False
        return True

    def _running(self) -> list[str]:
        """The numbers of the study's jobs that run."""
        name = f"--name={job_name(self.folder)}"
        return self._slurm("squeue", "--noheader", "--states=RUNNING", name, "--format=%A").split()

    def _processes(self) -> Iterator[int]:
        """Every process of the study's jobs, told by what Slurm puts into its environment."""
        mark = f"SLURM_JOB_NAME={job_name(self.folder)}".encode()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)

    def _slurm(self, *words: str) -> str:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False).stdout


def results(folder: Path) -> dict[str, object]:
    """What a study found, by the key of the cell; where and when it was found is left out."""
    return {cell.key: (found.records, found.failures) for cell, found in StudyFolder.open(folder).contents().cells}


def finished(folder: Path) -> Counter[str]:
    """How often the jobs say that a cell was run to its end and kept, by its label."""
    lines = [line for path in (folder / JOBS).glob("*_log.out") for line in path.read_text().splitlines()]
    return Counter(line.removeprefix("done: ") for line in lines if line.startswith("done: "))


def differences(peace: Path, killed: Path) -> list[str]:
    """What tells a study that was killed from one that was not, in sentences; none if all is well."""
    right, found, runs = results(peace), results(killed), finished(killed)
    keys = {cell.key for cell in StudyFolder.open(peace).cells}
    failed = {cell.key for cell in StudyFolder.open(peace).status().cells("failed")}
    said = [f"failed in peace too: {key}" for key in sorted(failed)]
    said += [f"lost: {key}" for key in sorted(keys - found.keys())]
    said += [f"not asked for: {key}" for key in sorted(found.keys() - keys)]
    said += [f"differs: {key}" for key in sorted(keys & found.keys()) if found[key] != right[key]]
    said += [f"run {times} times: {label}" for label, times in sorted(runs.items()) if times > 1]
    return said


def trial(here: Path, *, cells: int, kills: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run a study of so many cells in peace and killed; what happened, and what differs."""
    (here / "tiny.py").write_text(MODEL.format(seconds=SECONDS))
    study = here / "study.toml"
    study.write_text(STUDY.format(batches=", ".join(str(n) for n in range(1, cells // 4 + 1))))
    with running() as slurm:
        killed = Killed(study=study, folder=here / "killed", environment=os.environ | slurm, rng=random.Random(seed))
        try:
            killed.run(kills)
        finally:
            killed.end()
    run_study(study, here / "peace", jobs=2)
    return killed.happened, differences(here / "peace", here / "killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200, help="a multiple of 4")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for everything; default is one that is removed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        here = options.keep or Path(temporary)
        here.mkdir(parents=True, exist_ok=True)
        happened, said = trial(here.resolve(), cells=options.cells, kills=options.kills, seed=options.seed)
    print(f"{options.cells} cells, {time.monotonic() - begun:.0f} s; killed: {dict(happened)}")
    print("\n".join(said) or "every cell was found once, and its records are those of the run in peace")
    sys.exit(1 if said else 0)


if __name__ == "__main__":
    main()
