"""Estimates of runs: each step is traced once and counted for every device, here or in a worker."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.errors import (
    InvalidValue,
    MissingCeiling,
    ModelError,
    RooflensError,
    check_torch,
    checked,
    told_together,
)
from rooflens.host_limits import bound_memory
from rooflens.progress import Progress, within
from rooflens.records import BOUND, Case, Device, Failure, Record, RecordFile, write_records
from rooflens.results import RecordSet
from rooflens.running.graphs import GraphWorkload, graph_workload
from rooflens.running.isolation import AnswerListener, Lost, Serve, Workers
from rooflens.running.jobs import (
    Answer,
    CallElsewhere,
    Done,
    Estimate,
    Refused,
    Share,
    StageEntered,
    Start,
)
from rooflens.running.lengths import Tracers
from rooflens.running.outcomes import lost, runs_in, taken, telling, why_all_failed
from rooflens.running.tracing import TracedRun, Tracer
from rooflens.running.whole_answers import counted_run
from rooflens.runs.options import Options
from rooflens.runs.run import Place, Request, Run, is_graph, is_own_file
from rooflens.sources import environment
from rooflens.sources.command import harmless

if TYPE_CHECKING:
    from rooflens.running.tracing import Estimable


MANY = 12
"""Runs from which on a set has the sums of layers, and each layer's own records when somebody asks for them."""
TRACE = "trace"
"""The stage of an estimate."""


def estimable(asked: Request) -> Estimable:
    """Return what is to be estimated, checked: an ONNX file, or anything that runs.

    Raises:
        InvalidValue, UnknownModel, ModelError, MissingDependency: an argument cannot be used.
    """
    asked = replace(asked, options=_counted(asked))
    if is_graph(asked.model):
        return graph_workload(asked)
    check_torch()
    from rooflens.models import workload

    return workload(asked)


def as_stored(asked: Estimable, devices: Iterable[Device]) -> Estimable:
    """Return what is to be estimated with weights as the model's configuration stores them, where no option says how.

    Where a device has no rate for products on fp8, weights that are stored in it are counted in the dtype.
    """
    if isinstance(asked, GraphWorkload):
        return asked
    return asked.as_stored(device.ceiling("matmul.fp8") is not None for device in devices)


def _counted(asked: Request) -> Options:
    """Return the options that an estimate of a request counts by."""
    options = asked.options.of_source("estimate")
    if options.dims and not is_graph(asked.model):
        raise InvalidValue(f"dims={dict(options.dims)} are sizes that an ONNX file leaves open; other models have none")
    return options


def estimated(
    asked: Sequence[Estimable],
    devices: Sequence[Device] = (),
    progress: Progress | None = None,
    impossible: Mapping[Failure, RooflensError] | None = None,
) -> RecordSet:
    """Estimate every run on every device; without devices, work and memory only.

    Weights are, on each device by itself, as :func:`as_stored` has them. What cannot be estimated is a failure, and the
    others go on.

    Args:
        impossible: what is known to fail.

    Raises:
        RooflensError: nothing can be estimated: no step can be built and traced, or no device has a rate for it.
    """
    records: list[Record] = []
    whole: dict[Case, Callable[[], Iterable[Record]]] = {}
    failed = dict(impossible or {})
    steps = [[*_stored_runs(one, devices)] for one in asked]
    runs = [run for each in steps for run, _ in each]
    n, tracers = 0, Tracers(runs)
    for one, of_one in zip(asked, steps, strict=True):
        trace: Tracer | None = None
        for run, on in of_one:
            if progress is not None:
                progress(n / len(runs), f"{run.model}, batch {run.batch}" if run.batch else run.model)
            n += 1
            try:
                trace = trace or tracers.of(one)
                summing = len(runs) >= MANY
                counted = counted_run(run, trace, on, one.tokens, one.positions, summing=summing)
            except RooflensError as error:
                failed |= dict.fromkeys(not_estimated(run, on, error), error)
                continue
            for device in on or (None,):
                try:
                    records += counted(device)
                except MissingCeiling as error:
                    failed |= dict.fromkeys(not_estimated(run, [device], error), error)
                    continue
                if isinstance(counted, TracedRun) and counted.summed:
                    whole[run.case(device.name if device else None)] = partial(counted.of_each_layer, device)
    if not records:
        raise told_together(failed.values())
    known = {device.name: device for device in devices}
    return RecordSet(records, devices=known, failures=failed, environment=environment.capture(), whole=whole)


def _stored_runs(one: Estimable, devices: Sequence[Device]) -> Iterator[tuple[Run, Sequence[Device]]]:
    """Each run with the devices on which its weights are stored alike."""
    alike: dict[tuple[Run, ...], list[Device]] = {}
    for device in devices:
        alike.setdefault(as_stored(one, [device]).runs, []).append(device)
    if not devices:
        alike[as_stored(one, ()).runs] = []
    for runs in zip(*alike, strict=True):
        yield from zip(runs, alike.values(), strict=True)


def not_estimated(run: Run, devices: Sequence[Device | None], error: RooflensError) -> tuple[Failure, ...]:
    """Failures of a run that cannot be estimated, on each device: ``unsupported`` where it has no rate for the step."""
    lacks = isinstance(error, MissingCeiling)
    return tuple(
        Failure(
            case=run.case(device.name if device else None),
            source="estimate",
            stage=BOUND if lacks else TRACE,
            kind="unsupported" if lacks else "error",
            message=str(error),
        )
        for device in devices or (None,)
    )


Estimator = Callable[[Run, Sequence[Device], Progress | None], RecordFile]
"""Estimates a run on devices. A crash or a hang is a failure in what comes back; what is refused, and what the model
raises, is an error."""


def estimated_here(run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordFile:
    """An :class:`Estimator` in this process."""
    return estimated([estimable(Request.of_run(run))], devices, progress).contents


def estimated_requests(
    requests: Sequence[Request],
    devices: Callable[[], Sequence[Device]],
    limit: float,
    progress: Progress | None,
) -> RecordSet:
    """Estimate what a call asks for. Only a worker reads a file of the user's own.

    Args:
        requests: of one model; they differ in sizes.
        devices: looks the devices up; what is wrong with them and with the requests is told together.
        limit: seconds for each run in a worker; of several, one that raises or is lost is a failure, and the others
            go on.

    Raises:
        ModelError: every run was lost, or cannot be traced.
        RooflensError: as :func:`estimable` and :func:`estimated`.
    """
    words = [request.check_words for request in requests]
    if not read_by_worker(requests[0]):
        *_, known, (possible, errors) = checked(*words, devices, partial(_possible, requests))
        failed = {f: error for run, error in errors for f in not_estimated(run, known, error)}
        return estimated(possible, known, progress, failed)
    *_, known = checked(*words, devices)
    with estimator_in_worker(limit) as estimator:
        runs = [run for request in requests for run in estimator.runs(request)]
        if len(runs) == 1:
            return _whole(RecordSet.of(estimator(runs[0], known, progress)))
        sets = [
            estimated_or_failed(estimator, run, known, within(progress, n, len(runs))) for n, run in enumerate(runs)
        ]
    return _whole(RecordSet.union(sets))


def _possible(requests: Sequence[Request]) -> tuple[list[Estimable], list[tuple[Run, RooflensError]]]:
    """Return what can be estimated of some requests, and the runs of the others with what is wrong with them.

    Raises:
        RooflensError: none can be.
    """
    asked: list[Estimable] = []
    failed: list[tuple[Run, RooflensError]] = []
    for request in requests:
        try:
            asked.append(estimable(request))
        except RooflensError as error:
            if len(requests) == 1:
                raise
            failed += [(run, error) for run in request.possible_runs()]
    if not asked:
        raise told_together(error for _, error in failed)
    return asked, failed


def _whole(estimates: RecordSet) -> RecordSet:
    """Return estimates of which some were made, or raise ModelError."""
    if not estimates.records:
        raise ModelError(why_all_failed(estimates.failures))
    return estimates


def read_by_worker(asked: Request) -> bool:
    """True if the model is in a file of the user's own. A loss that is handed in cannot be sent to a worker."""
    return is_own_file(asked.model) and asked.loss is None


class WorkerEstimator:
    """An :class:`Estimator` in worker processes."""

    def __init__(self, workers: Workers, out: Path) -> None:
        self._workers, self._out = workers, out

    def runs(self, asked: Request) -> tuple[Run, ...]:
        """What a request asks to run, as :func:`rooflens.running.outcomes.runs_in`."""
        return runs_in(self._workers, replace(asked, options=_counted(asked)))

    def rest(self) -> None:
        """End the worker; the next run begins another."""
        self._workers.dismiss()

    def __call__(self, run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordFile:
        case = run.case(devices[0].name if devices else None)
        show = telling(progress, f"estimate of {case.label()}")

        def ask(place: Place, tell: AnswerListener) -> Done | Lost:
            def hear(answer: Answer) -> None:
                tell(answer)
                show(answer)

            return self._workers.run(Estimate(run=run, devices=tuple(devices), out=str(self._out), place=place), hear)

        ending, refusals = at_each_place(ask)
        written = taken(self._out)
        if isinstance(ending, Lost):
            return lost(case, "estimate", ending)
        for refusal in refusals:
            raise refusal.error
        assert written is not None
        return written


@contextmanager
def estimator_in_worker(limit: float, beside: int = 1, *, start: bool = True) -> Iterator[WorkerEstimator]:
    """An :class:`Estimator` in a worker process, which is killed after `limit` seconds for a run.

    Args:
        beside: workers that share the memory of this machine, with this one.
        start: at once, or with the first run.
    """
    first = Start(kind="estimate", command=tuple(sys.argv), beside=beside)
    with Workers(first, limit=limit) as workers, tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        if start:
            workers.prepare()
        yield WorkerEstimator(workers, Path(folder) / "estimate.jsonl")


def estimated_or_failed(
    estimate: Estimator, run: Run, devices: Sequence[Device], progress: Progress | None
) -> RecordSet:
    """Return an estimate, or why a step cannot be traced or has no rate there, as failures."""
    try:
        return RecordSet.of(estimate(run, devices, progress))
    except (ModelError, MissingCeiling) as error:
        return RecordSet((), failures=not_estimated(run, devices, error))


def at_each_place(ask: Callable[[Place, AnswerListener], Done | Lost]) -> tuple[Done | Lost, list[Refused]]:
    """Give a job to a worker, and to a new one for each further call of a function of the user's that it needs.

    Args:
        ask: gives the job to a worker, for the place where the function is called.

    Returns:
        How the last one ended, and what it refused.
    """
    place: Place | None = "meta"
    while place is not None:
        refusals: list[Refused] = []
        following: list[Place] = []

        def tell(answer: Answer, refusals: list[Refused] = refusals, following: list[Place] = following) -> None:
            if isinstance(answer, Refused):
                refusals.append(answer)
            elif isinstance(answer, CallElsewhere):
                following.append(answer.place)

        ending = ask(place, tell)
        place = following[-1] if following and isinstance(ending, Done) else None
    return ending, refusals


def in_worker(asked: Estimable, place: Place) -> Estimable:
    """Return what is to be estimated, whose file this process reads for this only: a function is called at a place."""
    return asked if isinstance(asked, GraphWorkload) else replace(asked, place=place, anew=True)


def begin(start: Start) -> Serve:
    """The worker's side."""
    import torch

    from rooflens.models import CallAgain, kept_switches

    bound_memory(start.beside)
    first = estimable(Request(model=torch.nn.Linear(1, 1), inputs=torch.ones(1, 1)))
    estimated([first])  # what is loaded on first use takes nothing of a run's time

    @kept_switches()
    def do(job: Estimate, tell: AnswerListener) -> bool:
        tell(StageEntered(name=TRACE))
        fit = not is_own_file(job.run.model)  # which may have changed this process
        try:
            asked = in_worker(estimable(Request.of_run(job.run)), job.place)
            file = estimated([asked], job.devices, lambda share, _: tell(Share(done=share))).contents
        except CallAgain as again:
            tell(CallElsewhere(place=again.place))
            return False
        except RooflensError as error:
            tell(Refused.of(error))
            return fit
        tell(Share(done=1.0))  # a copy of this process, which the model forked, ends here and writes nothing
        if file.environment is not None:
            file = replace(file, environment=replace(file.environment, command=harmless(start.command)))
        write_records(Path(job.out), file)
        return fit

    return do
