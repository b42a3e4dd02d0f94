"""Steps that are profiled, in a worker, and counted, in a process of their own under ncu."""

from __future__ import annotations

from pathlib import Path

from rooflens.errors import RooflensError
from rooflens.models import Step, Workload, compiled, eager, placed, running, switches, workload_of
from rooflens.records import write_records
from rooflens.running.isolation import AnswerListener, Serve
from rooflens.running.jobs import Count, Profile, StageEntered, Start
from rooflens.running.outcomes import contents
from rooflens.runs.run import is_own_file
from rooflens.sources import measure
from rooflens.sources.profile import profiled_step


def begin(start: Start) -> Serve:
    """The worker's side: profile one step of a run; its records and its trace become files."""

    def do(job: Profile, tell: AnswerListener) -> bool:
        case, stage = job.run.case(job.device), "build"
        try:
            tell(StageEntered(name=stage))
            step = _step(workload_of(job.run), start.where)
            stage = "profile"
            tell(StageEntered(name=stage))
            file = contents(profiled_step.records(step, case, start.where, keep=job.trace), start.command)
        except RooflensError as error:
            file = contents([measure.failure(case, error, stage)], start.command)
        write_records(Path(job.out), file)
        return not is_own_file(job.run.model) and not file.failures

    return do


def count(job: Count) -> None:
    """Run one step between the marks at which ncu starts and stops."""
    step = _step(workload_of(job.run), "cuda")
    with switches(job.run.dtype), running(step.name):
        profiled_step.counted(step, eager(step, "cuda"))


def _step(asked: Workload, where: str) -> Step:
    (run,) = asked.runs
    step = placed(asked.step(run, where), where, copy=False)
    return compiled(step) if run.options.compile else step
