"""Data parallel training on the devices of one machine: one process for each, joined by torch.distributed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rooflens.models import Step, compiled, eager, placed, running, switches
from rooflens.records import Case, Phase, Record, Scaling, Timing, in_sequence
from rooflens.runs.options import Options
from rooflens.sources.measure import clock_of
from rooflens.timing import Policy, sample

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
WARMUP = 5
"""Calls of every process before the samples: a fixed number, since it must be the same in all processes."""
MOST_SAMPLES, FEWEST_SAMPLES = 200, 7
PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others; the case's own time limit ends a hang earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """What one process measured; only the first has `alone`."""

    phases: dict[Phase, Timing]
    reduce: Timing
    gradient_bytes: int
    peak: int | None = None
    alone: Timing | None = None


@contextmanager
def process_group(rank: int, ranks: int, where: str, folder: Path) -> Iterator[None]:
    """Join the processes of a case through a file in `folder`."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine needs no network, and may have none
    if where == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    dist.init_process_group(
        BACKENDS[where], init_method=f"file://{folder / 'meet'}", rank=rank, world_size=ranks, timeout=PATIENCE
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def measured(step: Step, case: Case, where: str, *, options: Options, budget: float) -> RankTimes:
    """Time the step on the first device alone, then on all, then an all-reduce of its gradients. Runs in each process.

    Args:
        step: a training step; its module cannot be used afterwards.
        budget: seconds of sampling, for each of the three.
    """
    rank = dist.get_rank()
    control: Any = dist.new_group(backend="gloo")  # waiting on it leaves the device idle
    step = placed(step, where, copy=False)
    with switches(case.dtype), running(step.name):
        alone = _alone(step, where, options, budget) if rank == 0 else None
        samples = torch.tensor([0 if alone is None else _how_many(alone, budget)])
        dist.broadcast(samples, 0, group=control)
        if where == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        policy = _exactly(int(samples))
        devices = [torch.cuda.current_device()] if where == "cuda" else None
        wrapped = replace(step, module=DistributedDataParallel(step.module, device_ids=devices))
        run = eager(compiled(wrapped) if options.compile else wrapped, where)
        phases = sample(run.once, run.phases, clock_of(where, flush=options.flush), policy)
        peak = torch.cuda.max_memory_allocated() if where == "cuda" else None
        gradients = [p for p in step.module.parameters() if p.requires_grad]
        reduce = _reduce(gradients, where, policy)
    size = sum(p.numel() * p.element_size() for p in gradients)
    return RankTimes(phases=dict(phases), reduce=reduce, gradient_bytes=size, peak=peak, alone=alone)


def records(ranks: Sequence[RankTimes], case: Case) -> Iterator[Record]:
    """Records of all processes together: each sample is that of the slowest."""
    first = ranks[0]
    assert first.alone is not None
    phases = {phase: _slowest([one.phases[phase] for one in ranks]) for phase in first.phases}
    for phase, timing in phases.items():
        yield Record(case=case, source="measure", scope="model", phase=phase, timing=timing)
    scaling = Scaling(
        devices=len(ranks),
        alone=first.alone,
        together=_slowest([in_sequence(list(one.phases.values())) for one in ranks]),
        gradient_bytes=first.gradient_bytes,
        reduce=_slowest([one.reduce for one in ranks]),
        peaks=tuple(one.peak for one in ranks),
    )
    yield Record(case=case, source="measure", scope="model", scaling=scaling)


def _alone(step: Step, where: str, options: Options, budget: float) -> Timing:
    run = eager(compiled(step) if options.compile else step, where)
    timings = sample(run.once, run.phases, clock_of(where, flush=options.flush), Policy(budget=budget))
    return in_sequence(list(timings.values()))


def _reduce(gradients: Sequence[torch.Tensor], where: str, policy: Policy) -> Timing:
    """An all-reduce of the gradients as one flat tensor of each type."""
    sizes: dict[torch.dtype, int] = {}
    for gradient in gradients:
        sizes[gradient.dtype] = sizes.get(gradient.dtype, 0) + gradient.numel()
    flat = [torch.zeros(size, dtype=dtype, device=where) for dtype, size in sizes.items()]

    def run(mark: Any) -> None:
        for tensor in flat:
            dist.all_reduce(tensor)
        mark()

    return sample(run, ("all-reduce",), clock_of(where), policy)["all-reduce"]


def _how_many(alone: Timing, budget: float) -> int:
    fitting = budget / alone.median if alone.median else math.inf
    return int(min(MOST_SAMPLES, max(FEWEST_SAMPLES, fitting)))


def _exactly(samples: int) -> Policy:
    """A policy whose number of calls does not depend on a clock, so that all processes make the same."""
    return Policy(
        warmup=WARMUP,
        warmup_seconds=math.inf,
        settle=WARMUP + 1,
        min_samples=samples,
        max_samples=samples,
        budget=1e9,
        precision=0.0,
    )


def _slowest(timings: Sequence[Timing]) -> Timing:
    """The longest time of each sample; the processes make the same calls in the same order."""
    return replace(timings[0], samples=tuple(map(max, zip(*(timing.samples for timing in timings), strict=True))))
