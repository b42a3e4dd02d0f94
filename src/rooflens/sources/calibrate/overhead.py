"""Measures overheads: the time to start an operation that does next to nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from rooflens.sources.calibrate.trial import Bench, MeasuredRates, fact

TRIES = 20


def overhead(bench: Bench, seconds: float, now: Callable[[], float] = time.perf_counter) -> MeasuredRates:
    """Facts ``dispatch``, and on a card ``launch`` and ``graph_launch``: the least seconds per operation."""
    x = torch.ones(1, device=bench.where)
    n = bench.sizes.launches

    def issue() -> None:
        for _ in range(n):
            x.mul_(1.0)

    issue()  # the first time is slow
    times = [_once(issue, bench.where, now) for _ in range(TRIES)]
    host, done = (min(column) / n for column in zip(*times, strict=True))
    what = f"eager mul_ of one element, {n} in a row, least of {TRIES}"
    measured = MeasuredRates(facts={"dispatch": fact(host, f"host time per {what}")})
    if bench.where != "cuda":
        return measured
    measured += MeasuredRates(facts={"launch": fact(done, f"until done, per {what}")})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        issue()
    replayed = bench.timer(graph.replay, seconds / 2) / n
    return measured + MeasuredRates(
        facts={"graph_launch": fact(replayed, f"per mul_ of one element in a CUDA graph of {n}")}
    )


def _once(issue: Callable[[], None], where: str, now: Callable[[], float]) -> tuple[float, float]:
    """Seconds until everything is issued, and until it is done."""
    _wait(where)
    begun = now()
    issue()
    issued = now()
    _wait(where)
    return issued - begun, now() - begun


def _wait(where: str) -> None:
    if where == "cuda":
        torch.cuda.synchronize()
