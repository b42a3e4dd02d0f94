"""Steps that are profiled, in a worker, and counted, in a process of their own under ncu."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import torch

from rooflens.errors import RooflensError
from rooflens.machine import found_device
from rooflens.models import Step, Workload, compiled, eager, placed, running, switches, workload_of
from rooflens.records import write_records
from rooflens.running.awaited import awaited
from rooflens.running.isolation import AnswerListener, Serve
from rooflens.running.jobs import Count, Profile, Profiled, StageEntered, Start, Warmed, place_of
from rooflens.running.outcomes import contents
from rooflens.runs.run import is_own_file
from rooflens.sources import measure
from rooflens.sources.profile import profiled_step
from rooflens.sources.profile.launches import CalledLaunch, Round


def begin(start: Start) -> Serve:
    """The worker's side: profile one step of a run; its records and its trace become files.

    What runs steps is loaded while the model is looked up.
    """
    where = found_device(place_of(start)).where
    loader = ThreadPoolExecutor(1)
    libraries = loader.submit(measure.load_libraries, where)
    loader.shutdown(wait=False)  # its thread ends with that, and leaves the handles that it made to this one

    def do(job: Profile, tell: AnswerListener) -> bool:
        case, stage = job.run.case(job.device), "build"
        libraries.result()
        try:
            tell(StageEntered(name=stage))
            step = _step(workload_of(job.run), where)

            def warm() -> None:
                nonlocal stage
                stage = "profile"
                tell(StageEntered(name=stage))
                tell(Warmed())
                awaited(Path(job.free), os.getppid())

            def timed() -> None:
                nonlocal stage
                tell(_profiled() if where == "cuda" else Profiled(held=0, beside=0, free=0))
                stage = "calls"
                tell(StageEntered(name=stage))

            def found(launches: tuple[CalledLaunch, ...]) -> None:
                Path(job.launches).write_bytes(msgspec.json.encode(launches))

            records = profiled_step.records(step, case, where, keep=job.trace, warm=warm, timed=timed, found=found)
            file = contents(records, start.command)
        except RooflensError as error:
            file = contents([measure.failure(case, error, stage)], start.command)
        write_records(Path(job.out), file)
        return not is_own_file(job.run.model) and not file.failures

    return do


def count(path: Path, caller: int) -> None:
    """Run a step between the marks at which ncu starts and stops, once its job is in a file.

    Its caller profiles the same step meanwhile, and says when the card is free, and what is to be counted.

    Args:
        caller: the number of its process: this one ends with it.
    """
    measure.load_libraries("cuda")
    job = msgspec.json.decode(awaited(path, caller), type=Count)
    Path(job.loaded).touch()

    def rounds() -> list[Round]:
        Path(job.warm).touch()
        return msgspec.json.decode(awaited(Path(job.rounds), caller), type=list[Round])

    asked = workload_of(job.run)
    awaited(Path(job.build), caller)
    step = _step(asked, "cuda")
    with switches(job.run.dtype), running(step.name):
        profiled_step.counted(step, eager(step, "cuda"), rounds)


def _profiled() -> Profiled:
    """What a process takes of the card, and what is left; memory of strangers counts as the driver's."""
    free, memory = torch.cuda.mem_get_info()
    beside = memory - free - torch.cuda.memory_reserved()
    return Profiled(held=torch.cuda.max_memory_reserved(), beside=beside, free=free)


def _step(asked: Workload, where: str) -> Step:
    (run,) = asked.runs
    step = placed(asked.step(run, where), where, copy=False)
    return compiled(step) if run.options.compile else step
