"""The estimate of what is measured too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rooflens.errors import MissingCeiling, ModelError, RooflensError
from rooflens.machine import Machine, machine_of, this_machine
from rooflens.progress import Progress
from rooflens.records import BOUND, Device, RecordFile
from rooflens.results import RecordSet
from rooflens.running.estimating import (
    Estimator,
    estimated,
    estimated_or_failed,
    estimator_in_worker,
    not_estimated,
    read_by_worker,
)
from rooflens.running.measuring import Measurer, WorkerMeasurer, measurer_in_workers
from rooflens.running.outcomes import why_all_failed
from rooflens.runs.run import Request, Run, is_own_file
from rooflens.sources.conditions import BUSY_CORES
from rooflens.stopwatch import Stopwatch

if TYPE_CHECKING:
    from rooflens.models import Workload

ESTIMATE = "estimate"
"""The part of the wall time in which an estimate is waited for."""
_REMEDY = "this is the estimate beside the measurement; leave it out with estimate=False (--no-estimate)"


def estimated_beside(
    runs: Sequence[Run],
    asked: Sequence[Workload] | None,
    device: Device | None,
    limit: float,
    progress: Progress | None,
) -> RecordSet:
    """The estimate of what is measured too: here, or in a worker.

    Args:
        asked: what the runs are of, which differ in sizes; None: it is estimated in a worker, as is what a file of the
            user's own makes.
        limit: seconds for each run in a worker.

    A measurement needs no rate: where the device has none for a dtype, that is a failure. In a file of the user's own,
    what raises, crashes or hangs is one too.

    Raises:
        RooflensError: the estimate is refused, or no step can be traced; a note says how to go on without it.
    """
    if asked is None:
        with estimator_in_worker(limit) as estimate:
            return estimated_by(estimate, runs, device, progress)
    devices = () if device is None else (device,)
    those = [runs] if len(asked) == 1 else [one.runs for one in asked]
    counted = [replace(one, runs=_counted(its)) for one, its in zip(asked, those, strict=True)]
    with _remedy():
        try:
            return estimated(counted, devices)
        except MissingCeiling as error:
            every = [run for one in counted for run in one.runs]
            return RecordSet((), failures=[failure for run in every for failure in not_estimated(run, devices, error)])


def estimated_by(
    estimate: Estimator, runs: Sequence[Run], device: Device | None, progress: Progress | None
) -> RecordSet:
    """As :func:`estimated_beside`, by an estimator."""
    devices = () if device is None else (device,)
    with _remedy():
        made = RecordSet.union(estimated_or_failed(estimate, run, devices, progress) for run in _counted(runs))
        traced = made.records or any(failure.stage == BOUND for failure in made.failures)
        if not traced and not is_own_file(runs[0].model):
            raise ModelError(why_all_failed(made.failures))
    return made


def _counted(runs: Sequence[Run]) -> tuple[Run, ...]:
    """What is estimated of runs that are measured, with weights as they run."""
    return tuple(replace(run, options=run.options.of_source("estimate")).in_dtype() for run in runs)


@contextmanager
def _remedy() -> Iterator[None]:
    try:
        yield
    except RooflensError as error:
        error.add_note(_REMEDY)
        raise


class Beside:
    """Estimates in a worker that is started at once, made while something is measured if that disturbs no time.

    Args:
        limit: seconds for each run.
        start: at once, or when it is first needed.
    """

    def __init__(self, limit: float, *, start: bool = True) -> None:
        self._limit, self._start, self._over = limit, start, False

    def __enter__(self) -> Beside:
        with ExitStack() as stack:
            self._thread = stack.enter_context(ThreadPoolExecutor(1))
            self._estimate = stack.enter_context(estimator_in_worker(self._limit, start=self._start))  # ends first
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True  # what is left of an interrupted call begins no further worker
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def look_up(self, requests: Sequence[Request]) -> None:
        """Let the worker look the model up, as another does: what is wrong with it is told by that one."""
        self._thread.submit(lambda: [self._estimate.runs(asked) for asked in requests])

    def begin(self, runs: Sequence[Run], device: Device | None) -> Future[RecordSet]:
        """Begin to estimate runs."""
        return self._thread.submit(estimated_by, self._unless_over, runs, device, None)

    def _unless_over(self, run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordFile:
        if self._over:
            raise ModelError(f"{run.model} was not estimated: the call was over")
        return self._estimate(run, devices, progress)

    def rest(self) -> None:
        """End the worker until it is needed again: it holds memory."""
        self._estimate.rest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A measurement that has begun.

    Attributes:
        measure: times a run.
        estimate: begins to estimate runs.
    """

    machine: Machine
    runs: tuple[Run, ...]
    measure: Measurer
    estimate: Callable[[Sequence[Run]], Future[RecordSet]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a measurement is asked for.

    Attributes:
        requests: of one model.
        where: torch's device type; None: the GPU where torch has one.
        roof: whose ceilings hold for this machine.
        in_workers: runs are timed there, and not in this process.
        fresh: a new worker for each run.
        limit: seconds for each run in a worker.
        estimate: estimates will be asked for.
    """

    requests: Sequence[Request]
    where: str | None
    roof: str | Device | None
    in_workers: bool
    fresh: bool
    limit: float
    estimate: bool


def begin(stack: ExitStack, wanted: Wanted, watch: Stopwatch, progress: Progress | None) -> Begun:
    """Start workers, and find the machine and what is to be run; this process needs no torch if workers do all.

    A process that has torch looks models up and estimates by itself, save for files of the user's own.

    Args:
        stack: ends the workers.
    """
    if not wanted.in_workers:
        return _begin_here(stack, wanted, None, progress)
    measurer = stack.enter_context(
        measurer_in_workers(wanted.where, limit=wanted.limit, fresh=wanted.fresh, watch=watch)
    )
    own_file = read_by_worker(wanted.requests[0])
    if "torch" in sys.modules and not own_file:
        return _begin_here(stack, wanted, measurer, progress)
    beside = stack.enter_context(Beside(wanted.limit, start=wanted.estimate))
    if wanted.estimate and not own_file:  # a user's file is read once
        beside.look_up(wanted.requests)
    machine = machine_of(measurer.found(), wanted.roof, progress)
    return Begun(
        machine=machine,
        runs=tuple(run for asked in wanted.requests for run in measurer.runs(asked)),
        measure=measurer,
        estimate=partial(beside.begin, device=machine.device),
    )


def _begin_here(stack: ExitStack, wanted: Wanted, measurer: WorkerMeasurer | None, progress: Progress | None) -> Begun:
    """Look models up and estimate in this process; measure in it too if there is no measurer."""
    from rooflens.models import workload
    from rooflens.running.timed import measurer_here

    asked = [workload(request) for request in wanted.requests]
    machine = this_machine(wanted.where, wanted.roof, progress)

    def estimated_now(runs: Sequence[Run]) -> Future[RecordSet]:
        done = Future[RecordSet]()
        done.set_result(estimated_beside(runs, asked, machine.device, wanted.limit, progress))
        return done

    return Begun(
        machine=machine,
        runs=tuple(run for one in asked for run in one.runs),
        measure=measurer or stack.enter_context(measurer_here(asked, machine.where)),
        estimate=estimated_now,
    )


def disturbs(where: str) -> bool:
    """True if a process beside a measurement on torch's device type disturbs it, by the rule of its conditions."""
    return where == "cpu" or BUSY_CORES * (os.cpu_count() or 1) <= 1
