"""Runs that are timed in this process: the caller's, or a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rooflens.errors import InvalidValue, RooflensError
from rooflens.host_limits import bound_memory
from rooflens.machine import Machine, found_device
from rooflens.models import Workload, compiled, kept_switches, neutral, placed, running, workload_of
from rooflens.progress import Progress, waiting
from rooflens.records import Environment, Failure, Record, RecordFile, write_records
from rooflens.running import ranks
from rooflens.running.isolation import AnswerListener, Serve
from rooflens.running.jobs import Measure, PartEntered, Share, StageEntered, Start, place_of
from rooflens.running.measuring import Measurer
from rooflens.running.outcomes import contents
from rooflens.runs.options import ANSWERING
from rooflens.runs.run import Run, is_own_file
from rooflens.sources import conditions, environment
from rooflens.sources import measure as source
from rooflens.sources.device_lock import alone_on
from rooflens.timing import Policy

PROBE = Policy(warmup=1, settle=1, settle_seconds=0.0, min_samples=1, max_samples=1, budget=0.1)
"""For a run that is only asked whether it fits."""
LEAST_ANSWERS = 3
"""Samples of whole answers, each of which is many steps and may take a minute."""
PROFILE = "profile"
"""The stage that comes after all that is timed."""
DEVICE, LIBRARIES, BUILD, MOVE, RECORDS = "device", "libraries", "build", "move", "records"
"""Parts of a worker's wall time: the device is woken; then of each case: torch's libraries are waited for, if they are
not loaded yet, model and inputs are made, they are brought into place, and what was measured is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Who is told of a measurement: its stage, the share of it that is done, and the part of the time that begins."""

    stage: Callable[[str], None] = lambda _: None
    share: Callable[[float], None] = lambda _: None
    part: Callable[[str], None] = lambda _: None


@contextmanager
def measurer_here(asked: Sequence[Workload], where: str) -> Iterator[Measurer]:
    """A :class:`Measurer` of workloads, which differ in sizes, in this process."""
    observer = conditions.Observer(where)
    by_kind = {(one.runs[0].dtype, one.runs[0].options): one for one in asked}

    def measure(run: Run, machine: Machine, budget: float | None, progress: Progress) -> RecordFile:
        label = run.case(machine.name).label()
        kept = _Kept()
        one = by_kind[run.dtype, run.options]
        with alone_on(where, waiting(progress)):
            told = _Told(share=lambda done: progress(done, label))
            _measure(one, run, machine.name, observer, budget, kept, told)
        return contents(kept.items, here=kept.environment)

    yield measure


def begin(start: Start, looked: Callable[[], conditions.Observer | None], tell: AnswerListener) -> Serve:
    """The worker's side: look at the machine before anything runs on it, and load what runs there.

    Args:
        looked: gives the observer of the card, made before torch was there.
    """
    tell(PartEntered(name=DEVICE))
    card = looked()
    where = found_device(place_of(start)).where
    if where == "cpu":
        bound_memory()
    observer = card if card is not None and where == "cuda" else conditions.Observer(where)
    # They load while the model is looked up: neither waits for the other.
    loader = ThreadPoolExecutor(1)
    libraries = loader.submit(source.load_libraries, where)
    loader.shutdown(wait=False)  # its thread ends with that, and leaves the handles that it made to this one

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

        told = _Told(
            stage=stage,
            share=lambda done: tell(Share(done=done)),
            part=lambda name: tell(PartEntered(name=name)),
        )
        told.part(LIBRARIES)
        libraries.result()
        told.part(BUILD)
        try:
            asked = workload_of(job.run)
            if job.run.options.gpus > 1:
                stage(f"on {job.run.options.gpus} devices")
                kept.items += ranks.measured(job, observer, job.budget or PROBE.budget)
            else:
                _measure(asked, asked.runs[0], job.device, observer, job.budget, kept, told)
        except RooflensError as error:  # of a file that cannot be read, or what makes no sense when it is run
            kept.items.append(source.failure(job.run.case(job.device), error, at))
        told.part(RECORDS)
        write()
        return not is_own_file(job.run.model) and not any(isinstance(item, Failure) for item in kept.items)

    return do


def policy_of(mode: str, budget: float) -> Policy:
    """When to stop sampling a step of a mode."""
    return Policy(budget=budget, min_samples=LEAST_ANSWERS) if mode in ANSWERING else Policy(budget=budget)


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
    told: _Told,
) -> None:
    """Build the model of a run and time it; the records are kept as they come, and a failure if it comes to one.

    A module that was handed in is copied; a named one is built for this and needs no copy. What the model's code turns
    of the process's switches is put back, so that it does not matter for the next run.

    Raises:
        InvalidValue: what was asked for makes no sense for any batch.
    """
    where, case, options = observer.where, run.case(device), run.options
    policy = PROBE if budget is None else policy_of(run.mode, budget)
    at = "build"

    def enter(name: str) -> None:
        nonlocal at
        at = name
        told.stage(name)
        if name == "place":  # as it is while the step runs: a user's file may have set the number of threads
            kept.environment = environment.capture(kept.command)

    try:
        with neutral(run.dtype) as disturbed, running(case.model):
            enter("build")
            held = source.Held(observer)
            # Inputs are made where they are used: random numbers for a large batch take a CPU minutes.
            step = asked.step(run, where)
            enter("place")
            told.part(MOVE)
            step = placed(step, where, copy=asked.blueprint.module is not None)
            held.is_prepared()
            kept.items += source.records(
                step,
                case,
                observer,
                options=options,
                policy=policy,
                held=held,
                progress=told.share,
                stage=enter,
                part=told.part,
                disturbed=disturbed,
            )
            if options.profile:  # a run of its own: a profiler slows what it looks at
                from rooflens.sources.profile import profiled_step

                enter(PROFILE)
                told.part(PROFILE)
                kept.items += profiled_step.records(compiled(step) if options.compile else step, case, where)
    except InvalidValue:
        raise
    except RooflensError as error:
        kept.items.append(source.failure(case, error, at))
