"""Cells on a Slurm cluster, through submitit: one array of jobs per kind of device, and Slurm schedules.

The study's folder alone says what is done and what is left, and ``squeue`` alone says which jobs are alive: they have a
name that only this study's jobs have. So nothing is remembered about jobs, ``sacct`` is never called, and a run that
was killed goes on where it was: it waits for the jobs that are still there, then submits the cells that they left.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rooflens.errors import ClusterError, InvalidValue, MissingDependency
from rooflens.study.folder import SUFFIXES, Status, StudyFolder
from rooflens.study.study import Cell, Cluster, Settings

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

JOBS = "jobs"
"""The folder of jobs in that of the study, with their logs: ``ARRAY_TASK_0_log.out`` and ``.err``."""
ANYWHERE = "cpu"
"""The kind of device whose jobs also take the cells that any machine can run."""
TIME = 60
"""Minutes that a job may take, where the study file does not say."""
PARALLEL = 8
"""Jobs of an array that run at once, where the study file does not say."""
SPLIT = 4
"""Times as many jobs after jobs that finished no cell."""
MOST = 256
"""Most jobs in an array: clusters allow 1000 or more."""
NOTICE = 90
"""Seconds before its end at which Slurm tells a job, which is then queued again and goes on."""
START = 60
"""Seconds that a job gets for starting, before it is expected to finish a cell."""
POLLS = (0.5, 30.0)
"""Seconds between two looks at the queue: at first, and what they grow to."""
PATIENCE = 20
"""Looks at the queue that may fail in a row: a controller that restarts does not answer for a while."""
FIRST = 4
"""The same at the very beginning, a few seconds: where no Slurm answers nobody wants to wait."""

TellJobs = Callable[[Status, Sequence[str]], None]
"""Takes the status of the study, and of each job in the queue its state and why it waits."""


@dataclass(frozen=True, slots=True)
class ArrayJob:
    """What one job of an array does: its cells, in a process of its own.

    Slurm sends its signals to every process of a job. A worker that died of one would look like a case that crashes.
    So the process that runs the cells, with all that it starts, ignores them; this one takes them, and kills it.

    Args:
        words: what follows the interpreter to run cells, before their keys.
    """

    words: tuple[str, ...]
    keys: tuple[str, ...]

    def __call__(self) -> None:
        """Run the cells; called in the job, by submitit. A process that ends badly takes the job with it."""
        is_ending = False

        def end(number: int, frame: FrameType | None) -> None:
            nonlocal is_ending
            is_ending = True
            process.kill()

        run = ("sh", "-c", "trap '' TERM USR2; exec \"$@\"", "sh", sys.executable, *self.words, *self.keys)
        # The pipe closes when this process is gone, so that the other one ends too.
        with subprocess.Popen(run, stdin=subprocess.PIPE) as process:
            signal.signal(signal.SIGTERM, end)
            try:
                code = process.wait()
                if is_ending:
                    # What comes next is the cluster's: the end, or SIGUSR2, at which submitit has the job queued again.
                    time.sleep(NOTICE)
            finally:
                process.kill()
        if code < 0:
            sys.exit(f"the process that runs the cells was killed by signal {-code}")
        sys.exit(code)

    def checkpoint(self) -> DelayedSubmission:
        """What to do when the job is queued again: the same, since a cell that is done is not run twice."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self)


def run(
    folder: StudyFolder,
    cells: Sequence[Cell],
    cluster: Cluster,
    words: Sequence[str],
    *,
    tell: TellJobs = lambda *_: None,
) -> None:
    """Run cells on a cluster, and return when none of them is left.

    Jobs of the study that are in the queue already are waited for first. When none is there and cells are left, since
    jobs died or were cancelled, the cells are submitted again. If the first jobs finish no cell, the cluster is not
    what the table says: an error. If later ones finish none, their cells are split into more jobs, in the end one each,
    so that a cell that ends its job ends no other cell. A cell whose worker crashed is tried twice: what kills jobs on
    a cluster kills workers too. With a budget, nothing is submitted twice.

    Args:
        words: what follows the interpreter to run cells on a node; their keys are added.

    Raises:
        ClusterError: there is no Slurm here, it refuses the jobs, or cells are left whose jobs bring no result.
        InvalidValue: the jobs are too short to be sure to finish a cell.
        MissingDependency: submitit is not installed.
    """
    _check(cluster, cells, folder.study.settings)
    name = job_name(folder.path)
    _queued(name, FIRST)
    before: list[tuple[int, int]] = []
    crashed: set[Cell] = set()
    split, finest = 1, False
    while left := _left(folder, cells, _when_idle(folder, cells, name, tell), crashed):
        if before and folder.study.budget is not None:
            return
        now = len(left), len(crashed)
        stuck = before[-1:] == [now]
        if stuck and (finest or len(before) == 1):
            raise ClusterError(_lost(folder, left))
        before.append(now)
        split, finest = split * SPLIT if stuck else 1, True
        for kind, some in by_kind(left).items():
            own = cluster.on(kind)
            parts = shares(some, min(MOST, split * (own.parallel or PARALLEL)))
            finest = finest and len(parts) in (len(some), MOST)
            _submit(folder, name, kind, own, [ArrayJob(tuple(words), keys) for keys in parts])


def forget(folder: StudyFolder, cell: Cell) -> None:
    """Remove why a cell failed or was skipped, so that it is run again."""
    for came in ("failed", "skipped"):
        (folder.files / f"{cell.key}{SUFFIXES[came]}").unlink(missing_ok=True)


def job_name(folder: Path) -> str:
    """The name that only the jobs of the study in this folder have."""
    return f"rooflens-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"


def by_kind(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by the kind of device that they need."""
    kinds: dict[str, list[Cell]] = {}
    for cell in cells:
        kinds.setdefault(cell.needs or ANYWHERE, []).append(cell)
    return kinds


def shares(cells: Sequence[Cell], number: int) -> list[tuple[str, ...]]:
    """The keys of cells in so many parts or fewer, each from all over the grid: neighbours take as long."""
    return [tuple(cell.key for cell in cells[first::number]) for first in range(min(number, len(cells)))]


def sbatch_options(cluster: Cluster, name: str, kind: str, parallel: int) -> dict[str, Any]:
    """The options of a cluster for submitit; those that it does not know go to sbatch as they are."""
    setup = [
        *cluster.setup,
        # Since 22.05, the step that srun starts gets one core unless told what the job has.
        'if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi',
    ]
    known = {
        "partition": cluster.partition,
        "gres": cluster.gres,
        "account": cluster.account,
        "cpus_per_task": cluster.cpus,
        "mem": cluster.memory,
    }
    again = "requeue" if cluster.options.get("requeue", True) else "no-requeue"
    more = {key: value for key, value in cluster.options.items() if key != "requeue" and value is not False}
    return {
        "job_name": name,
        "comment": f"rooflens on {kind}",
        "time": cluster.time or TIME,
        "array_parallelism": parallel,
        "signal_delay_s": NOTICE,
        "setup": setup,
        "additional_parameters": {again: True, **more},
        **{key: value for key, value in known.items() if value},
    }


def _check(cluster: Cluster, cells: Sequence[Cell], settings: Settings) -> None:
    """Fail before anything is submitted."""
    missing = [program for program in ("sbatch", "srun", "squeue") if shutil.which(program) is None]
    if missing:
        raise ClusterError(
            f"no {', '.join(missing)} on this machine; run this on a login node of the cluster, or without --cluster"
        )
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise MissingDependency("running a study on a cluster", "submitit", "slurm") from error
    for kind, some in by_kind(cells).items():
        minutes = cluster.on(kind).time or TIME
        limit = max(settings.limits.get(cell.source, 0.0) for cell in some)
        if 60 * minutes < limit + NOTICE + START:
            raise InvalidValue(
                f"jobs of {minutes} minutes are too short for {kind}: a cell may take {limit:g} s ('limit' of the"
                f" study), a job {START} s to start, and it is stopped and queued again {NOTICE} s before its end;"
                f" raise 'time' of [cluster.{cluster.name}] or lower the limit"
            )


def _submit(folder: StudyFolder, name: str, kind: str, cluster: Cluster, parts: Sequence[ArrayJob]) -> None:
    """Hand one array of jobs to Slurm."""
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    python = cluster.python or sys.executable
    executor = SlurmExecutor(
        folder=folder.path / JOBS,
        # Each time that a job runs out of time it has finished a cell before.
        max_num_timeout=max(len(part.keys) for part in parts),
        python=f"{cluster.prefix} {shlex.quote(python)}".strip(),
    )
    executor.update_parameters(**sbatch_options(cluster, name, kind, cluster.parallel or PARALLEL))
    try:
        with executor.batch():
            for part in parts:
                executor.submit(part)
    except (FailedJobError, FailedSubmissionError) as error:
        message = " ".join(str(error).split()) or "sbatch failed without a message"
        raise ClusterError(f"Slurm refuses the jobs for {kind} of [cluster.{cluster.name}]: {message}") from error


def _left(folder: StudyFolder, cells: Iterable[Cell], status: Status, crashed: set[Cell]) -> list[Cell]:
    """The cells that are left, and those that crashed for the first time, whose files are removed.

    Args:
        crashed: the cells that crashed before; those of now are added.
    """
    left = []
    for cell in cells:
        failure = status.failures.get(cell.key)
        if failure is not None and failure.kind == "crash" and cell not in crashed:
            crashed.add(cell)
            forget(folder, cell)
            left.append(cell)
        elif status.states[cell] == "left":
            left.append(cell)
    return left


def _when_idle(folder: StudyFolder, cells: Sequence[Cell], name: str, tell: TellJobs) -> Status:
    """Return the status when no job of the study is in the queue, and cells are left or nobody runs one.

    A cell whose job died on another node counts as running until its lease is stale.
    """
    for seconds in _pauses():
        jobs = _queued(name)
        status = folder.status()
        tell(status, jobs)
        states = {status.states[cell] for cell in cells}
        if not jobs and ("left" in states or "running" not in states):
            return status
        time.sleep(seconds)
    raise AssertionError("pauses do not end")


def _pauses() -> Iterator[float]:
    seconds, most = POLLS
    while True:
        yield seconds
        seconds = min(most, 1.3 * seconds)


def _queued(name: str, patience: int = PATIENCE) -> list[str]:
    """The state of each job of a name in Slurm's queue, and why it waits; jobs of an array one by one.

    Args:
        patience: how many looks may fail in a row.

    Raises:
        ClusterError: Slurm does not answer for a long time.
    """
    command = ["squeue", "--noheader", "--array", f"--name={name}", "--format=%T %r"]
    for seconds, _ in zip(_pauses(), range(patience), strict=False):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return [line.strip().removesuffix(" None") for line in answer.stdout.splitlines()]
        time.sleep(seconds)
    raise ClusterError(
        f"squeue fails: {' '.join(answer.stderr.split()) or 'no message'}; jobs of this study, if there are any, go on,"
        " and 'rooflens study resume' waits for them"
    )


def _lost(folder: StudyFolder, left: Sequence[Cell]) -> str:
    """The message on cells whose jobs end without a result."""
    error = _last_error(folder.path / JOBS)
    return (
        f"{len(left)} cells are left whose jobs end without a result, among them {left[0].label()}; their logs are in"
        f" {os.fspath(folder.path / JOBS)!r}{error}"
    )


def _last_error(jobs: Path) -> str:
    """The last line that the last job wrote to its standard error, Slurm's own messages left out."""
    logs = sorted(jobs.glob("*_log.err"), key=lambda path: path.stat().st_mtime)
    lines = [line.strip() for path in logs[-1:] for line in path.read_text(errors="replace").splitlines()]
    own = [line for line in lines if line and not line.startswith(("srun: ", "slurmstepd", "submitit "))] or lines
    return f"; the last one says: {own[-1][:300]}" if own else ""
