"""A run on several devices: one worker process for each, joined by torch.distributed."""

from __future__ import annotations

import math
import tempfile
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec

from rooflens.errors import RooflensError
from rooflens.models import workload_of
from rooflens.records import Failure, Record, write_atomically
from rooflens.running.isolation import AnswerListener, Lost, Serve, Workers
from rooflens.running.jobs import Done, Measure, Rank, Start
from rooflens.sources import conditions, measure, parallel

FAILED = "failed.json"


def measured(job: Measure, observer: conditions.Observer, budget: float) -> list[Record | Failure]:
    """Time a training step on several devices; on a CPU each process takes its share of the threads."""
    case, ranks = job.run.case(job.device), job.run.options.gpus
    with tempfile.TemporaryDirectory(prefix="rooflens-") as name:
        folder = Path(name)
        jobs = [Rank(run=job.run, device=job.device, budget=budget, rank=rank, folder=name) for rank in range(ranks)]
        with observer.around() as observation:
            ending = _together(jobs, observer.where)
        if (folder / FAILED).exists():
            return [msgspec.json.decode((folder / FAILED).read_bytes(), type=Failure)]
        if isinstance(ending, Lost):
            return [Failure(case=case, source="measure", stage="forward", kind=ending.kind, message=ending.message)]
        times = [msgspec.json.decode(file.read_bytes(), type=parallel.RankTimes) for file in _results(folder, ranks)]
    *phases, scaling = parallel.records(times, case)
    return [*phases, replace(scaling, conditions=observation.conditions, notes=tuple(observation.notes))]


def _together(jobs: list[Rank], where: str) -> Done | Lost:
    """Give each process its job; when the first fails, the others are ended, since they would wait for it.

    The processes belong to the group of this one, which whoever started it may kill as a whole.
    """
    start = Start(kind="rank", where=where)
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(len(jobs)))
        pools = [stack.enter_context(Workers(start, limit=math.inf, apart=False)) for _ in jobs]
        for pool in pools:
            pool.prepare()
        left: set[Future[Done | Lost]] = {threads.submit(pool.run, job) for pool, job in zip(pools, jobs, strict=True)}
        while left:
            over, left = wait(left, return_when=FIRST_COMPLETED)
            for ending in (future.result() for future in over):
                if isinstance(ending, Lost) or not ending.fit:
                    return ending  # on leaving, every process is killed
    return Done(fit=True)


def _results(folder: Path, ranks: int) -> list[Path]:
    return [folder / f"{rank}.json" for rank in range(ranks)]


def begin(start: Start) -> Serve:
    """The worker's side: one device. Its results, or why it failed, go to a file."""

    def do(job: Rank, tell: AnswerListener) -> bool:
        run, folder = job.run, Path(job.folder)
        ranks, case = run.options.gpus, run.case(job.device)
        with parallel.process_group(job.rank, ranks, start.where, folder):
            try:
                asked = workload_of(run)
                step = asked.step(asked.runs[0], start.where)
                times = parallel.measured(step, case, start.where, options=run.options, budget=job.budget)
            except RooflensError as error:
                # The first to fail tells, before the others lose their connection to it, and would say that instead.
                if not (folder / FAILED).exists():
                    failure = measure.failure(case, error, "train")
                    write_atomically(folder / FAILED, msgspec.json.encode(failure))
                return False
        write_atomically(_results(folder, ranks)[job.rank], msgspec.json.encode(times))
        return True

    return do
