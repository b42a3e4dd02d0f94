"""Measures DRAM bandwidth: copies, combines, reads and writes arrays far larger than any cache."""

from __future__ import annotations

from functools import partial

import torch

from rooflens.host_limits import available_memory
from rooflens.sources.calibrate.caches import last_level_bytes
from rooflens.sources.calibrate.trial import Bench, MeasuredRates, fact, only, rate_of
from rooflens.sources.calibrate.trial_sizes import MIB

SHARE_OF_MEMORY = 8
"""An array takes at most one part in so many of the free memory."""


def dram(bench: Bench, seconds: float) -> MeasuredRates:
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
        best[name] = only(how, times * size, call, seconds / len(streams), bench.timer)
    fastest = max(best.values(), key=lambda one: one.rate)
    return MeasuredRates(
        rates={"dram": rate_of(fastest)},
        facts={f"dram_{name}": fact(one.rate, one.how) for name, one in best.items()},
    )


def _array_bytes(bench: Bench) -> int:
    sizes = bench.sizes
    free: int | None
    if bench.where == "cuda":
        free, _ = torch.cuda.mem_get_info()
        cache = int(getattr(torch.cuda.get_device_properties(), "L2_cache_size", 0))
    else:
        free, cache = available_memory(), last_level_bytes()
    wanted = max(sizes.stream_bytes, sizes.stream_caches * cache)
    return wanted if free is None else min(wanted, free // SHARE_OF_MEMORY)


def _filled(elements: int, where: str) -> torch.Tensor:
    """An array that the threads wrote that will read it: on several sockets, each page is near its thread."""
    return torch.empty(elements, device=where).fill_(0.75)
