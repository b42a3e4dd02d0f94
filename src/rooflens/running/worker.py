"""The process in which jobs are done: ``python -m rooflens.running.worker [JOB]``.

Without an argument it serves whoever started it. With the file of a job, as under ncu, it counts a step and ends.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

from rooflens.errors import RooflensError
from rooflens.machine import found_device
from rooflens.running.isolation import AnswerListener, Serve, loading, serve
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
from rooflens.sources.first_look import first_look
from rooflens.without_compiler import compiler_on_demand

IMPORTS, MODEL = "imports", "model"
"""Parts of a worker's wall time: torch and what reads models; the library that has the model, and its name."""


def begin(start: Start, tell: AnswerListener) -> Serve:
    """What does the jobs of a kind, finds the device, and looks up a model."""
    tell(PartEntered(name=IMPORTS))
    do = _begin(start, tell)

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


def _begin(start: Start, tell: AnswerListener) -> Serve:
    """What does the jobs of a kind; only what these need is imported."""
    match start.kind:
        case "estimate":
            from rooflens.running import estimating

            return estimating.begin(start)
        case "measure":
            looked = first_look(place_of(start))
            from rooflens.running import timed

            return timed.begin(start, looked, tell)
        case "profile":
            from rooflens.running import profiling

            return profiling.begin(start)
        case "rank":
            from rooflens.running import ranks

            return ranks.begin(start)


if __name__ == "__main__":
    compiler_on_demand()
    if len(sys.argv) > 1:
        from rooflens.running import profiling

        profiling.count(Path(sys.argv[1]))
    else:
        serve(begin)
