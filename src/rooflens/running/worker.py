"""What a worker does: it looks models up and does jobs (:mod:`rooflens.running.start`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from rooflens.errors import RooflensError
from rooflens.machine import found_device
from rooflens.running.isolation import AnswerListener, Serve, loading
from rooflens.running.jobs import (
    DeviceFound,
    FindDevice,
    Job,
    ModelRead,
    PartEntered,
    ReadModel,
    Refused,
    StageEntered,
    Start,
    place_of,
)
from rooflens.runs.run import Run, is_own_file
from rooflens.sources.conditions import Observer

IMPORTS, MODEL = "imports", "model"
"""Parts of a worker's wall time: torch and what reads models; the library that has the model, and its name."""

Look = Callable[[], Observer | None]


def begin(start: Start, tell: AnswerListener, looked: Look, began: float) -> Serve:
    """What does the jobs of a kind, finds the device, and looks up a model.

    Args:
        looked: gives the observer of the card, made before torch was there.
        began: when this process began to import.
    """
    tell(PartEntered(name=IMPORTS, at=began))
    do = _begin(start, tell, looked)

    def serve(job: Job, tell: AnswerListener) -> bool:
        if isinstance(job, FindDevice):
            tell(DeviceFound(found=found_device(place_of(start))))
            return True
        if not isinstance(job, ReadModel):
            return do(job, tell)
        tell(StageEntered(name="read"))
        tell(PartEntered(name=MODEL))
        try:
            tell(ModelRead(runs=_runs(job)))
        except RooflensError as error:
            tell(Refused.of(error))
        return True

    return serve


def _runs(job: ReadModel) -> tuple[Run, ...]:
    from rooflens.models import kept_switches, workload

    with loading() if not is_own_file(job.asked.model) else nullcontext(), kept_switches():
        return workload(job.asked).runs


def _begin(start: Start, tell: AnswerListener, looked: Look) -> Serve:
    """What does the jobs of a kind; only what these need is imported."""
    match start.kind:
        case "estimate":
            from rooflens.running import estimating

            return estimating.begin(start)
        case "measure":
            from rooflens.running import timed

            return timed.begin(start, looked, tell)
        case "profile":
            from rooflens.running import profiling

            return profiling.begin(start)
        case "rank":
            from rooflens.running import ranks

            return ranks.begin(start)
