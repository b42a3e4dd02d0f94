"""Runs that are timed: in this process, or in workers that may crash, hang and run out of memory."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rooflens.errors import InvalidValue, RooflensError
from rooflens.models import Workload, compiled, kept_switches, neutral, placed, running, workload_of
from rooflens.progress import Progress, waiting
from rooflens.records import Environment, Failure, Record, RecordFile, write_records
from rooflens.running import ranks
from rooflens.running.isolation import AnswerListener, Lost, Serve, Workers
from rooflens.running.jobs import Measure, Share, StageEntered, Start
from rooflens.running.outcomes import contents, lost, runs_in, taken, telling
from rooflens.runs.run import Request, Run, is_own_file
from rooflens.sources import conditions, environment
from rooflens.sources import measure as source
from rooflens.sources.device_lock import alone_on
from rooflens.sources.profile import profiled_step
from rooflens.timing import Policy

PROBE = Policy(warmup=1, settle=1, settle_seconds=0.0, min_samples=1, max_samples=1, budget=0.1)
"""For a run that is only asked whether it fits."""
PROFILE = "profile"
"""The stage that comes after all that is timed."""


Measurer = Callable[[Run, str, float | None, Progress], RecordFile]
"""Times a run on this machine's device, named as in cases, with seconds of sampling; None only asks whether it fits.
Whatever comes of it is in what comes back."""


def cannot_run(run: Run, device: str, where: str, *, isolated: bool) -> RecordFile | None:
    """Return why a run of several cannot be done here, as a failure; None if it can."""
    try:
        check_can_run(run, where, isolated=isolated)
    except InvalidValue as error:
        return contents(
            [Failure(case=run.case(device), source="measure", stage="start", kind="unsupported", message=str(error))]
        )
    return None


def check_can_run(run: Run, where: str, *, isolated: bool) -> None:
    """Raise InvalidValue for what cannot be done on torch's device type `where`, or in this process."""
    if run.options.cuda_graph and where != "cuda":
        raise InvalidValue(f"CUDA graphs need a CUDA device, and this measures on {where!r}; leave cuda_graph out")
    ranks.check_gpus(run.options, where, run.mode, named=isolated)
    if where == "cpu" and run.dtype == "tf32":
        raise InvalidValue("a CPU has no TF32; measure fp32 or bf16")


@contextmanager
def measurer_here(asked: Sequence[Workload], where: str) -> Iterator[Measurer]:
    """A :class:`Measurer` of workloads, which differ in sizes, in this process."""
    observer = conditions.Observer(where)
    by_kind = {(one.runs[0].dtype, one.runs[0].options): one for one in asked}

    def measure(run: Run, device: str, budget: float | None, progress: Progress) -> RecordFile:
        label = run.case(device).label()
        kept = _Kept()
        one = by_kind[run.dtype, run.options]
        with alone_on(where, waiting(progress)):
            _measure(one, run, device, observer, budget, kept, share=lambda done: progress(done, label))
        return contents(kept.items, here=kept.environment)

    yield measure


class WorkerMeasurer:
    """A :class:`Measurer` in worker processes."""

    def __init__(self, workers: Workers, where: str, out: Path) -> None:
        self._workers, self._where, self._out = workers, where, out

    def runs(self, asked: Request) -> tuple[Run, ...]:
        """What a request asks to run, as :func:`rooflens.running.outcomes.runs_in`."""
        return runs_in(self._workers, asked)

    def __call__(self, run: Run, device: str, budget: float | None, progress: Progress) -> RecordFile:
        case = run.case(device)
        job = Measure(run=run, device=device, budget=budget, out=str(self._out))
        with alone_on(self._where, waiting(progress), count=run.options.gpus):
            ending = self._workers.run(job, telling(progress, case.label()))
        written = taken(self._out)
        if isinstance(ending, Lost):
            failed = lost(case, "measure", ending)
            return failed if written is None else replace(written, failures=failed.failures)
        assert written is not None
        return written


@contextmanager
def measurer_in_workers(where: str, *, limit: float, fresh: bool) -> Iterator[WorkerMeasurer]:
    """A :class:`Measurer` of named models in worker processes.

    Args:
        where: torch's device type.
        limit: seconds for each run.
        fresh: a new worker for each run.
    """
    start = Start(kind="measure", where=where, command=tuple(sys.argv))
    workers = Workers(start, limit=limit, fresh=fresh)
    with workers, tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        workers.prepare()
        yield WorkerMeasurer(workers, where, Path(folder) / "measured.jsonl")


def begin(start: Start) -> Serve:
    """The worker's side: look at the machine before anything runs on it."""
    if start.where == "cpu":
        conditions.bound_memory()
    observer = conditions.Observer(start.where)
    source.load_libraries(start.where)

    @kept_switches()  # also those that a user's file turns while it is read
    def do(job: Measure, tell: AnswerListener) -> bool:
        kept = _Kept(command=start.command)
        at = "build"

        def write() -> None:
            write_records(Path(job.out), contents(kept.items, start.command, kept.environment))

        def stage(name: str) -> None:
            nonlocal at
            at = name
            if name == PROFILE:  # a profiler may take the process along: what is timed stays
                write()
            tell(StageEntered(name=name))

        def share(done: float) -> None:
            tell(Share(done=done))

        try:
            asked = workload_of(job.run)
            if job.run.options.gpus > 1:
                stage(f"on {job.run.options.gpus} devices")
                kept.items += ranks.measured(job, observer, job.budget or PROBE.budget)
            else:
                _measure(asked, asked.runs[0], job.device, observer, job.budget, kept, stage, share)
        except RooflensError as error:  # of a file that cannot be read, or what makes no sense when it is run
            kept.items.append(source.failure(job.run.case(job.device), error, at))
        write()
        return not is_own_file(job.run.model) and not any(isinstance(item, Failure) for item in kept.items)

    return do


@dataclass(slots=True, kw_only=True)
class _Kept:
    """What was measured so far, and the environment in which it was."""

    command: Sequence[str] | None = None
    items: list[Record | Failure] = field(default_factory=list)
    environment: Environment | None = None


def _measure(
    asked: Workload,
    run: Run,
    device: str,
    observer: conditions.Observer,
    budget: float | None,
    kept: _Kept,
    stage: Callable[[str], None] = lambda _: None,
    share: Callable[[float], None] = lambda _: None,
) -> None:
    """Build the model of a run and time it; the records are kept as they come, and a failure if it comes to one.

    A module that was handed in is copied; a named one is built for this and needs no copy. What the model's code turns
    of the process's switches is put back, so that it does not matter for the next run.

    Raises:
        InvalidValue: what was asked for makes no sense for any batch.
    """
    where, case, options = observer.where, run.case(device), run.options
    policy = PROBE if budget is None else Policy(budget=budget)
    at = "build"

    def enter(name: str) -> None:
        nonlocal at
        at = name
        stage(name)
        if name == "place":  # as it is while the step runs: a user's file may have set the number of threads
            kept.environment = environment.capture(kept.command)

    try:
        with neutral(run.dtype) as disturbed, running(case.model):
            enter("build")
            held = source.Held(observer)
            # Inputs are made where they are used: random numbers for a large batch take a CPU minutes.
            step = asked.step(run, where)
            enter("place")
            step = placed(step, where, copy=asked.blueprint.module is not None)
            held.is_prepared()
            kept.items += source.records(
                step,
                case,
                observer,
                options=options,
                policy=policy,
                held=held,
                progress=share,
                stage=enter,
                disturbed=disturbed,
            )
            if options.profile:  # a run of its own: a profiler slows what it looks at
                enter(PROFILE)
                kept.items += profiled_step.records(compiled(step) if options.compile else step, case, where)
    except InvalidValue:
        raise
    except RooflensError as error:
        kept.items.append(source.failure(case, error, at))
