"""Measurements on this machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.api.arguments import given_to, named_options
from rooflens.errors import InvalidValue, ModelError, check_torch, checked
from rooflens.machine import check_measured, check_where
from rooflens.progress import Progress, within
from rooflens.records import Device
from rooflens.results import RecordSet
from rooflens.running.beside import ESTIMATE, Wanted, begin, disturbs
from rooflens.running.measuring import cannot_run, check_can_run
from rooflens.running.outcomes import why_all_failed
from rooflens.running.sweep import Collected, search_largest
from rooflens.runs.run import Request, Run, is_own_file
from rooflens.runs.time_limits import BUDGET, LIMIT, check_limit, check_seconds
from rooflens.stopwatch import END, Stopwatch
from rooflens.timing import Policy

if TYPE_CHECKING:
    import torch

    from rooflens.models import Loss


@named_options()
def measure(
    model: str | torch.nn.Module,
    *,
    inputs: Any = None,
    name: str | None = None,
    batch: int | Sequence[int] | None = None,
    device: str | None = None,
    dtype: str | Sequence[str] | None = None,
    mode: str = "inference",
    loss: Loss | None = None,
    optimizer: str = "sgd",
    fused: bool = False,
    optimizer_dtype: str | None = None,
    master_weights: bool = False,
    checkpoint: bool = False,
    accumulation_steps: int = 1,
    img_size: int | Sequence[int] | None = None,
    seq_len: int | Sequence[int] | None = None,
    cached_tokens: int | Sequence[int] | None = None,
    prompt_len: int | Sequence[int] | None = None,
    output_len: int | Sequence[int] | None = None,
    kv_cache: str = "dynamic",
    kv_cache_len: int | None = None,
    kv_dtype: str | None = None,
    kv_group_size: int | None = None,
    price_per_hour: float | None = None,
    channels_last: bool = False,
    compile: bool = False,
    cuda_graph: bool = False,
    flush: bool = False,
    profile: bool = False,
    gpus: int = 1,
    budget: float = BUDGET,
    roof: str | Device | None = None,
    estimate: bool = False,
    isolated: bool | None = None,
    fresh: bool = False,
    limit: float = LIMIT,
    largest_batch: bool = False,
    save: str | Path | None = None,
    timings: dict[str, float] | None = None,
    progress: Progress | None = None,
) -> RecordSet:
    """Run a step on this machine and time it: forward, or forward, backward and optimizer.

    Warm-up ends when a trend test finds none; sampling ends when the 95 % interval of the median is within 1 % or the
    budget is spent. A named model runs in a worker process, so that a crash, a hang or an error of the device costs one
    batch; a module or a loss that is handed in runs in this process.

    Args:
        device: ``cpu`` or ``cuda``; default is the GPU where torch has one.
        compile: run through torch.compile. The seconds that it takes stand apart in the timing of the first phase.
        cuda_graph: capture the step in CUDA graphs and replay it, so that the host's launches are out of the way.
        flush: empty the caches before each sample, outside of what is timed.
        profile: also run the step once under a profiler, for the time of every operation and module.
        gpus: devices of this machine that train together (data parallel, NCCL), each with a whole batch; the step on
            one and an all-reduce of the gradients are timed beside it. On a CPU, processes that share its threads.
        budget: seconds of sampling per batch, after warm-up.
        roof: the device whose ceilings hold for this machine: a name, a device file, or ``measured`` to measure them
            first. Default: the catalogue's entry for the card or processor, if it has one.
        estimate: also estimate the same cases, so that tables and figures can show efficiency.
        isolated: whether to run in a worker process; default is yes for a named model, and no for what cannot be sent.
        fresh: a new worker for each batch.
        limit: seconds for one batch in a worker, building and compiling included; then it is killed.
        largest_batch: search for the largest batch that fits: twice as many from `batch` (default 1) on until memory
            runs out or `limit` is over, then the numbers between.
        save: a record file, written anew after each batch, so that nothing is lost if this program ends.
        timings: filled with the seconds of wall time of each part of this call, in the order in which they began.
        (others): as in :func:`estimate`.

    Returns:
        One record per phase (of a whole answer prefill and decode) with every sample, and one with memory and the
        conditions of the run; a batch that fails is a `Failure` in `.failures`, and the others go on.

    Raises:
        ModelError: every batch failed.
    """
    requests = Request.each_of(given_to(measure, locals()))
    check_torch()
    check_where(device)
    check_seconds("budget", budget)
    check_limit(limit)
    Policy(budget=budget)
    checked(*(request.check_words for request in requests))
    in_workers = _is_isolated(requests[0], isolated)
    watch = Stopwatch()
    with ExitStack() as stack:
        wanted = Wanted(
            requests=requests,
            where=device,
            roof=roof,
            in_workers=in_workers,
            fresh=fresh,
            limit=limit,
            estimate=estimate,
        )
        begun = begin(stack, wanted, watch, progress)
        runs, machine = begun.runs, begun.machine
        if len(runs) == 1:
            check_can_run(runs[0], machine, isolated=in_workers)
        if estimate and isinstance(model, str) and not is_own_file(model):
            check_measured(machine.device, dict.fromkeys(run.dtype for run in runs))
        if largest_batch and (len(runs) > 1 or runs[0].batch is None):
            raise InvalidValue("the largest batch is searched for a named model, from one batch on; give one or none")
        collected = Collected(machine=machine, save=None if save is None else Path(save))
        if estimate:  # before anything runs: what an estimate refuses costs no measurement
            watch.enter(ESTIMATE)
            collected.expect(begun.estimate(runs), wait=disturbs(machine.where))
        if largest_batch:
            first, show = runs[0], within(progress, 0, math.inf)  # how many batches it takes is not known

            def fits(run: Run, probe: bool) -> bool:
                return collected.add(begun.measure(run, machine, None if probe else budget, show))

            search_largest(first, fits, collected)
            if estimate and collected.records:
                watch.enter(ESTIMATE)
                collected.expect(begun.estimate([replace(first, batch=size) for size in collected.batches]), wait=True)
        else:
            for n, run in enumerate(runs):
                cannot = cannot_run(run, machine, isolated=in_workers)
                collected.add(cannot or begun.measure(run, machine, budget, within(progress, n, len(runs))))
        watch.enter(ESTIMATE)
        collected.complete()
        watch.enter(END)
    watch.enter(END)
    if timings is not None:
        timings |= watch.seconds
    if not collected.records:
        raise ModelError(why_all_failed(collected.failures))
    return collected.so_far()


def _is_isolated(asked: Request, wanted: bool | None) -> bool:
    handed = asked.loss is not None or not isinstance(asked.model, str)
    if wanted and handed:
        raise InvalidValue("a module or a loss that is handed in cannot be sent to a worker; leave isolated out")
    return not handed if wanted is None else wanted
