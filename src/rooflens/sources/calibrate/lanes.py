"""Measures vector and special rates: arithmetic on registers, which no memory slows down."""

from __future__ import annotations

import ctypes
import os
import threading
from functools import partial

import torch

from rooflens.sources.calibrate.kernels import c_library, cuda_kernel
from rooflens.sources.calibrate.trial import Action, Bench, Candidate, MeasuredRates, race, rate_of

BLOCK = 256
BLOCKS_PER_UNIT = (4, 8, 16)
OPERATIONS = 256
"""Per thread and round in kernels.cu: 8 chains of 32 steps."""
SPECIAL_FUNCTIONS = ("exp", "rsqrt", "sqrt", "tanh")
SPECIAL_ELEMENTS = (1 << 16, 1 << 18, 1 << 20)
"""Few enough for a cache, and so many that the time of a call does not count."""
A, B = 0.5, 0.25
"""x = A x + B never overflows."""
_NUMPY = {"fp32": torch.float32, "fp64": torch.float64}


def vector(precision: str, bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``vector.PRECISION``: multiply-adds, 2 FLOP each."""
    best = race(
        _on_card(f"vector_{precision}", "multiply-adds", 2, bench)
        if bench.where == "cuda"
        else _on_cores(precision, bench),
        seconds,
        bench.timer,
    )
    return MeasuredRates(rates={f"vector.{precision}": rate_of(best)})


def special(bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``special.fp32``: special functions, 1 FLOP each."""
    candidates = (
        _on_card("special_fp32", "exponentials (ex2.approx)", 1, bench) if bench.where == "cuda" else _functions()
    )
    return MeasuredRates(rates={"special.fp32": rate_of(race(candidates, seconds, bench.timer))})


def _on_card(name: str, what: str, flops: int, bench: Bench) -> list[Candidate]:
    """Chains of operations in registers, for several numbers of blocks."""
    rounds, units = bench.sizes.rounds, torch.cuda.get_device_properties().multi_processor_count
    dtype = _NUMPY[name.rpartition("_")[2]]

    def make(blocks: int) -> Action:
        out = torch.empty(blocks * BLOCK, dtype=dtype, device="cuda")
        factors = torch.tensor([A, B], dtype=dtype, device="cuda")
        return partial(cuda_kernel(name), grid=(blocks, 1, 1), block=(BLOCK, 1, 1), args=[out, factors, rounds])

    return [
        Candidate(
            how=f"best of a CUDA kernel of {what} on registers, {per_unit} blocks of {BLOCK} threads per SM",
            amount=flops * OPERATIONS * rounds * BLOCK * units * per_unit,
            make=partial(make, units * per_unit),
        )
        for per_unit in BLOCKS_PER_UNIT
    ]


def _on_cores(precision: str, bench: Bench) -> list[Candidate]:
    """Chains of multiply-adds in the vector registers of every core."""
    library = c_library()
    run, flops = (getattr(library, f"vector_{precision}{suffix}") for suffix in ("", "_flops"))
    run.argtypes, run.restype = (ctypes.c_long, ctypes.c_double, ctypes.c_double), ctypes.c_double
    flops.restype = ctypes.c_long
    threads, cores, rounds = bench.pinning.threads, bench.pinning.cores, bench.sizes.rounds

    def work(number: int) -> None:
        if cores:  # a thread begins where its parent is pinned
            os.sched_setaffinity(0, {cores[number]})
        run(rounds, A, B)

    def call() -> None:
        team = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()

    how = f"best of a C loop of multiply-adds on registers, {threads} threads"
    return [Candidate(how=how, amount=flops() * rounds * threads, make=lambda: call)]


def _functions() -> list[Candidate]:
    """Special functions of torch on data that stay in a cache: a CPU computes them on its lanes."""

    def make(name: str, elements: int) -> Action:
        x = torch.rand(elements) + 0.5
        return partial(getattr(torch, name), x, out=torch.empty_like(x))

    return [
        Candidate(how=f"best of torch.{name}, {elements} elements", amount=elements, make=partial(make, name, elements))
        for name in SPECIAL_FUNCTIONS
        for elements in SPECIAL_ELEMENTS
    ]
