"""Runs that are timed in workers, which may crash, hang and run out of memory. Whoever asks needs no torch."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rooflens.errors import InvalidValue
from rooflens.machine import FoundDevice, Machine
from rooflens.progress import Progress, waiting
from rooflens.records import Failure, RecordFile
from rooflens.running.isolation import AnswerListener, Lost, Workers
from rooflens.running.jobs import Answer, Measure, PartEntered, Start
from rooflens.running.outcomes import contents, found_in, lost, runs_in, taken, telling
from rooflens.running.process import ANYWHERE
from rooflens.runs.options import Options
from rooflens.runs.run import Request, Run
from rooflens.sources.device_lock import alone_on
from rooflens.stopwatch import Stopwatch

WORKER = "worker"
"""The part of the wall time in which a worker's interpreter starts."""
Measurer = Callable[[Run, Machine, float | None, Progress], RecordFile]
"""Times a run on this machine, with seconds of sampling; None only asks whether it fits. Whatever comes of it is in
what comes back."""


def cannot_run(run: Run, machine: Machine, *, isolated: bool) -> RecordFile | None:
    """Return why a run of several cannot be done here, as a failure; None if it can."""
    try:
        check_can_run(run, machine, isolated=isolated)
    except InvalidValue as error:
        case = run.case(machine.name)
        return contents([Failure(case=case, source="measure", stage="start", kind="unsupported", message=str(error))])
    return None


def check_can_run(run: Run, machine: Machine, *, isolated: bool) -> None:
    """Raise InvalidValue for what cannot be done on the device of this machine, or in this process."""
    if run.options.cuda_graph and machine.where != "cuda":
        raise InvalidValue(
            f"CUDA graphs need a CUDA device, and this measures on {machine.where!r}; leave cuda_graph out"
        )
    run.check_runs()
    _check_gpus(run.options, machine, run.mode, named=isolated)
    if machine.where == "cpu" and run.dtype == "tf32":
        raise InvalidValue("a CPU has no TF32; measure fp32 or bf16")


def _check_gpus(options: Options, machine: Machine, mode: str, named: bool) -> None:
    """Raise InvalidValue for what several devices cannot do, or are not there for."""
    if options.gpus == 1:
        return
    if mode != "train":
        raise InvalidValue(f"several devices share a training step, and this is {mode!r}; give mode='train'")
    if not named:
        raise InvalidValue("a module or a loss that is handed in cannot be sent to several processes; name the model")
    if options.profile:
        raise InvalidValue("a step on several devices is not profiled; leave profile out")
    if options.cuda_graph:
        raise InvalidValue("the all-reduce of gradients is not captured in CUDA graphs here; leave cuda_graph out")
    if machine.where == "cuda" and len(machine.cards) < options.gpus:
        raise InvalidValue(f"{options.gpus} CUDA devices were asked for, and torch finds {len(machine.cards)}")


class WorkerMeasurer:
    """A :class:`Measurer` in worker processes.

    Args:
        watch: told of the parts of the workers' time.
    """

    def __init__(self, workers: Workers, out: Path, watch: Stopwatch) -> None:
        self._workers, self._out, self._watch = workers, out, watch

    def found(self) -> FoundDevice:
        """The device of the workers.

        Raises:
            InvalidValue: torch cannot run there.
            ModelError: the worker was lost.
        """
        return found_in(self._workers, self._timed())

    def runs(self, asked: Request) -> tuple[Run, ...]:
        """What a request asks to run, as :func:`rooflens.running.outcomes.runs_in`."""
        return runs_in(self._workers, asked, self._timed())

    def __call__(self, run: Run, machine: Machine, budget: float | None, progress: Progress) -> RecordFile:
        case = run.case(machine.name)
        job = Measure(run=run, device=machine.name, budget=budget, out=str(self._out))
        with alone_on(machine.where, waiting(progress), cards=machine.cards[: run.options.gpus]):
            ending = self._workers.run(job, self._timed(telling(progress, case.label())))
        written = taken(self._out)
        if isinstance(ending, Lost):
            failed = lost(case, "measure", ending)
            return failed if written is None else replace(written, failures=failed.failures)
        assert written is not None
        return written

    def _timed(self, tell: AnswerListener = lambda _: None) -> AnswerListener:
        def hear(answer: Answer) -> None:
            if isinstance(answer, PartEntered):
                self._watch.enter(answer.name, answer.at)
            tell(answer)

        return hear


@contextmanager
def measurer_in_workers(
    where: str | None, *, limit: float, fresh: bool, watch: Stopwatch | None = None
) -> Iterator[WorkerMeasurer]:
    """A :class:`Measurer` of named models in worker processes, of which the first is started at once.

    Args:
        where: torch's device type; None lets torch choose.
        limit: seconds for each run.
        fresh: a new worker for each run.
        watch: told of the parts of the workers' time.
    """
    start = Start(kind="measure", where=where or ANYWHERE, command=tuple(sys.argv))
    workers = Workers(start, limit=limit, fresh=fresh)
    with workers, tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        workers.prepare()
        watch = watch or Stopwatch()
        watch.enter(WORKER)
        yield WorkerMeasurer(workers, Path(folder) / "measured.jsonl", watch)
