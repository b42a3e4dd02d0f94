"""Estimates of runs: each step is traced once and counted for every device, here or in a worker."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.errors import InvalidValue, ModelError, RooflensError, check_torch
from rooflens.progress import Progress
from rooflens.records import Device, Failure, Record, RecordFile, Trace, write_records
from rooflens.results import RecordSet
from rooflens.running.graphs import GraphWorkload, graph_workload
from rooflens.running.isolation import AnswerListener, Lost, Serve, Workers
from rooflens.running.jobs import Answer, Estimate, Refused, Share, StageEntered, Start
from rooflens.running.outcomes import lost, taken, telling
from rooflens.runs.run import Request, Run, is_graph
from rooflens.sources import conditions, environment
from rooflens.sources import estimate as source

if TYPE_CHECKING:
    from rooflens.models import Workload

    Estimable = Workload | GraphWorkload

TRACE = "trace"
"""The stage of an estimate."""
OWN_FILE = ".py:"
"""What the name of a model in a file of the user's own has in it."""
_REMEDY = "this is the estimate beside the measurement; leave it out with estimate=False (--no-estimate)"


def estimable(asked: Request) -> Estimable:
    """Return what is to be estimated, checked: an ONNX file, or anything that runs.

    Raises:
        InvalidValue, UnknownModel, ModelError, MissingDependency: an argument cannot be used.
    """
    options = asked.options.of_source("estimate")
    asked = replace(asked, options=options)
    if is_graph(asked.model):
        return graph_workload(asked)
    if options.dims:
        raise InvalidValue(f"dims={dict(options.dims)} are sizes that an ONNX file leaves open; other models have none")
    check_torch()
    from rooflens.models import workload

    return workload(asked)


def tracer(asked: Estimable) -> Callable[[Run], Trace]:
    """Traces the step of a run; the module is built once, without values."""
    if isinstance(asked, GraphWorkload):
        return asked.trace
    from rooflens.trace import trace  # needs torch, which a graph does not

    module = asked.build("meta")
    return lambda run: trace(asked.step(run, module, "meta"))


def estimated(asked: Estimable, devices: Sequence[Device] = (), progress: Progress | None = None) -> RecordSet:
    """Estimate every run on every device; without devices, work and memory only.

    Raises:
        ModelError, MissingCeiling: a step cannot be traced, or a device has no rate for it.
    """
    records: list[Record] = []
    trace = tracer(asked)
    for n, run in enumerate(asked.runs):
        if progress is not None:
            progress(n / len(asked.runs), f"{run.model}, batch {run.batch}" if run.batch else run.model)
        done = trace(run)
        operations = source.repeated(done, run.options.fusion)
        for device in devices or (None,):
            case = run.case(device.name if device else None)
            records += source.records(done, operations, case, device, causal=run.options.causal)
    return RecordSet(records, devices={d.name: d for d in devices}, environment=environment.capture())


Estimator = Callable[[Run, Sequence[Device], Progress | None], RecordFile]
"""Estimates a run on devices. A crash or a hang is a failure in what comes back; what is refused, and what the model
raises, is an error."""


def estimated_here(run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordFile:
    """An :class:`Estimator` in this process."""
    return estimated(estimable(Request.of_run(run)), devices, progress).contents


@contextmanager
def estimator_in_worker(limit: float) -> Iterator[Estimator]:
    """An :class:`Estimator` in a worker process, which is killed after `limit` seconds for a run."""
    start = Start(kind="estimate", command=tuple(sys.argv))
    with Workers(start, limit=limit) as workers, tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        workers.prepare()
        out = Path(folder) / "estimate.jsonl"

        def estimate(run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordFile:
            case = run.case(devices[0].name if devices else None)
            refusals: list[Refused] = []
            show = telling(progress, f"estimate of {case.label()}")

            def tell(answer: Answer) -> None:
                if isinstance(answer, Refused):
                    refusals.append(answer)
                else:
                    show(answer)

            ending = workers.run(Estimate(run=run, devices=tuple(devices), out=str(out)), tell)
            written = taken(out)
            if isinstance(ending, Lost):
                return lost(case, "estimate", ending)
            for refusal in refusals:
                raise (ModelError if refusal.by_model else InvalidValue)(refusal.message)
            assert written is not None
            return written

        yield estimate


def estimated_beside(
    measured: Workload, device: Device | None, limit: float, progress: Progress | None, *, isolated: bool
) -> RecordSet:
    """The estimate of what is measured too.

    A model in a file of the user's own may do anything. Where measurements are isolated, each of its runs is estimated
    in a worker, and one that raises, crashes or hangs is a failure.

    Args:
        limit: seconds for each run in a worker.

    Raises:
        RooflensError: the estimate is refused; a note says how to go on without it.
    """
    devices = () if device is None else (device,)
    runs = tuple(replace(run, options=run.options.of_source("estimate")) for run in measured.runs)
    try:
        if not isolated or OWN_FILE not in runs[0].model:
            return estimated(replace(measured, runs=runs), devices)
        with estimator_in_worker(limit) as estimate:
            return RecordSet.union(_or_failure(estimate, run, devices, progress) for run in runs)
    except RooflensError as error:
        error.add_note(_REMEDY)
        raise


def _or_failure(estimate: Estimator, run: Run, devices: Sequence[Device], progress: Progress | None) -> RecordSet:
    try:
        return RecordSet.of(estimate(run, devices, progress))
    except ModelError as error:
        case = run.case(devices[0].name if devices else None)
        failure = Failure(case=case, source="estimate", stage=TRACE, kind="error", message=str(error))
        return RecordSet((), failures=[failure])


def begin(start: Start) -> Serve:
    """The worker's side."""
    import torch

    from rooflens.models import kept_switches

    conditions.bound_memory()
    first = estimable(Request(model=torch.nn.Linear(1, 1), inputs=torch.ones(1, 1)))
    estimated(first)  # what is loaded on first use takes nothing of a run's time

    @kept_switches()
    def do(job: Estimate, tell: AnswerListener) -> bool:
        tell(StageEntered(name=TRACE))
        try:
            file = estimated_here(job.run, job.devices, lambda share, _: tell(Share(done=share)))
        except RooflensError as error:
            tell(Refused(message=str(error), by_model=isinstance(error, ModelError)))
            return True
        here = environment.capture(start.command)
        write_records(Path(job.out), replace(file, environment=here))
        return True

    return do
