"""DRAM bandwidth: arrays far larger than any cache, copied, combined, read and written."""

from __future__ import annotations

from functools import partial

import torch

from rooflens.sources.calibrate.caches import last_level_bytes
from rooflens.sources.calibrate.plan import MIB
from rooflens.sources.calibrate.trial import Bench, Candidate, Found, fact, race, stated
from rooflens.sources.conditions import available_memory

SHARE_OF_MEMORY = 8
"""An array takes at most this part of the free memory."""


def dram(bench: Bench, seconds: float) -> Found:
    """The ceiling ``dram``, the best of four ways to stream, and the rate of each as a fact."""
    elements = _array_bytes(bench) // 4
    size = 4 * elements
    a, b, c = (_filled(elements, bench.where) for _ in range(3))
    streams = {
        "copy": (2, partial(a.copy_, b)),
        "triad": (3, partial(torch.add, b, c, alpha=3.0, out=a)),
        "read": (1, partial(torch.sum, b)),
        "write": (1, partial(a.fill_, 0.25)),
    }
    arrays = f"arrays of {size // MIB} MiB" if size >= MIB else f"arrays of {size} bytes"
    best = {}
    for name, (times, call) in streams.items():
        how = f"best of {name}, {arrays}, {times} x bytes counted"
        one = Candidate(how=how, amount=times * size, make=lambda call=call: call)  # type: ignore[misc]
        best[name] = race([one], seconds / len(streams), bench.timer)
    fastest = max(best.values(), key=lambda found: found.rate)
    return Found(
        rates={"dram": stated(fastest)},
        facts={f"dram_{name}": fact(found.rate, found.how) for name, found in best.items()},
    )


def _array_bytes(bench: Bench) -> int:
    plan = bench.plan
    free: int | None
    if bench.where == "cuda":
        free, _ = torch.cuda.mem_get_info()
        cache = int(getattr(torch.cuda.get_device_properties(), "L2_cache_size", 0))
    else:
        free, cache = available_memory(), last_level_bytes()
    wanted = max(plan.stream_bytes, plan.stream_caches * cache)
    return wanted if free is None else min(wanted, free // SHARE_OF_MEMORY)


def _filled(elements: int, where: str) -> torch.Tensor:
    """Written by the threads that will read it, so that on several sockets each page is near its thread."""
    return torch.empty(elements, device=where).fill_(0.75)
