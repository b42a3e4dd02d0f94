"""Runs all tasks of a calibration in turn, within a time budget."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from rooflens.errors import first_line
from rooflens.models import neutral
from rooflens.progress import Progress, waiting
from rooflens.records import Device
from rooflens.sources.calibrate import caches, lanes, links, memory, overhead
from rooflens.sources.calibrate.assemble import assembled
from rooflens.sources.calibrate.matrix import matrix, precisions
from rooflens.sources.calibrate.pinned import pinned
from rooflens.sources.calibrate.trial import TROUBLE, Bench, MeasuredRates, fact, timers
from rooflens.sources.calibrate.trial_sizes import SECONDS, SIZES
from rooflens.sources.conditions import Observer
from rooflens.sources.device_lock import alone_on

USED = 0.7
"""Share of the budget that is planned; the rest is for allocating, building and overrunning."""
LATE, LATE_SECONDS = 0.9, 1.0
"""Until this share of the budget, a task for which the others left no time still gets so many seconds."""
ALWAYS = "dram", "matmul.fp32"
"""Measured whatever the budget, for as many seconds: without them nearly no step has a bound."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to measure within a number of seconds; `share` is its part of the time, relative to other tasks."""

    name: str
    share: float
    run: Callable[[Bench, float], MeasuredRates]


def calibrate(
    where: str,
    name: str,
    title: str,
    known: Device | None = None,
    progress: Progress | None = None,
    *,
    budget: float | None = None,
    quick: bool = False,
) -> Device:
    """Measure the ceilings of this machine, as :func:`rooflens.calibrate` describes.

    Args:
        name: slug of a device that the catalogue does not know.
        title: name of the card or processor.
        known: the catalogue's entry, which gives the rates that are not measured.
    """
    sizes = SIZES[where, quick]
    seconds = budget if budget is not None else SECONDS["quick" if quick else "full"]
    with alone_on(where, waiting(progress)), neutral("default"), pinned(where) as pinning, torch.no_grad():
        timer, wall, steady = timers(where)
        bench = Bench(where=where, sizes=sizes, pinning=pinning, timer=timer, wall=wall, steady=steady, known=known)
        with Observer(where).around() as seen:
            rates = run(tasks(where, sizes.compiled), bench, seconds, progress)
    rates += MeasuredRates(notes=(f"torch {torch.__version__}, {pinning.text}", *map(_told, seen.notes)))
    if where != "cpu":
        memory_bytes = float(torch.cuda.get_device_properties(0).total_memory)
        rates += MeasuredRates(facts={"memory": fact(memory_bytes, "CUDA runtime")})
    return assembled(rates, where=where, name=name, title=title, known=known)


def _told(doubt: str) -> str:
    return f"{doubt}: rates may come out low, calibrate again when nothing else runs"


def run(
    wanted: Sequence[Task],
    bench: Bench,
    seconds: float,
    progress: Progress | None = None,
    now: Callable[[], float] = time.monotonic,
) -> MeasuredRates:
    """Run every task in turn. A note names each one that fails or for which no time is left."""
    begun = now()
    end, last = begun + USED * seconds, begun + LATE * seconds
    rates = MeasuredRates()
    total = sum(task.share for task in wanted)
    done = 0.0
    for task in wanted:
        if progress is not None:
            progress(done / total, task.name)
        share = (end - now()) * task.share / (total - done)
        if share <= 0 and now() >= last and task.name not in ALWAYS:
            rates += MeasuredRates(notes=(f"{task.name} not measured: no time left",))
        else:
            rates += _tried(task, replace(bench, earlier=rates), share if share > 0 else LATE_SECONDS)
        done += task.share
    if progress is not None:
        progress(1.0, "done")
    return rates


def _tried(task: Task, bench: Bench, seconds: float) -> MeasuredRates:
    try:
        return task.run(bench, seconds)
    except TROUBLE as error:
        return MeasuredRates(notes=(f"{task.name} not measured: {type(error).__name__}: {first_line(error)}",))
    finally:
        gc.collect()
        if bench.where == "cuda":
            torch.cuda.empty_cache()


def tasks(where: str, compiled: bool = True) -> list[Task]:
    """All tasks, the most wanted first; our own kernels come last: a bad one spoils what follows."""
    ordered = sorted(precisions(where), key=lambda p: f"matmul.{p}" not in ALWAYS)
    products = [Task(f"matmul.{p}", 8 if p == "bf16" else 4, partial(matrix, p)) for p in ordered]
    wanted = [Task("dram", 8, memory.dram), *products, Task("overhead", 1, overhead.overhead)]
    if where == "cuda":
        wanted.append(Task("pcie", 3, links.host))
        if torch.cuda.device_count() > 1:
            wanted.append(Task("nvlink", 2, links.peers))
    if where == "cpu" or compiled:
        wanted.append(Task("special.fp32", 2, lanes.special))
    if compiled:
        wanted += [Task(f"vector.{p}", 2, partial(lanes.vector, p)) for p in ("fp32", "fp64")]
    if where == "cpu":
        wanted.append(Task("l1 and l2", 4, caches.core_caches))
    elif compiled:
        wanted += [Task("l2", 3, caches.card_l2), Task("l1", 3, caches.card_l1)]
    return wanted
