"""The ceilings of this machine, measured: matrix rates and memory bandwidth.

The best of several sizes counts: a ceiling is what the machine can do, not what it usually does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from rooflens.devices.rules import RESOURCES, Stated, ceilings
from rooflens.records import Device, Fact, Silicon
from rooflens.timing import Clock, CudaClock, MonotonicClock, Policy, Progress, sample

MATRIX_SIZES = {"cpu": (1024, 2048, 3072), "cuda": (4096, 8192)}
"""Square products: large enough to fill the machine, small enough for a few seconds of trials."""
CONVOLUTION = (16, 256, 28, 3)
"""Batch, channels in and out, height and width, kernel. Its direct algorithm reaches what torch.mm may not."""
STREAM_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}
"""Bytes of each array of the triad: at least four times any last-level cache (the rule of STREAM)."""
LANES = "the lanes that run fp32 products"
POLICY = Policy(warmup=3, warmup_seconds=0.5, min_samples=5, max_samples=30, budget=1.0)
_TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_PRECISIONS = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "tf32", "fp16", "bf16")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest rate seen, and with what."""

    rate: float
    how: str


def calibrate(
    where: str, name: str, title: str, known: Device | None = None, progress: Progress | None = None
) -> Device:
    """Measure the ceilings of this machine.

    Args:
        where: ``cpu`` or ``cuda``.
        name: slug for a device that the catalogue does not know.
        title: what it is called.
        known: the catalogue's entry for this machine, which gives the rates that are not measured here.
        progress: told the share that is done.

    Returns:
        A device whose matrix rates and DRAM bandwidth have origin ``measured``, called ``NAME-measured``. On a CPU that
        nobody knows, element-wise work gets the rate of the lanes that ran fp32 products, marked ``derived``.
    """
    trials = [*_PRECISIONS[where], "dram"]
    measured: dict[str, Stated] = {}
    for done, trial in enumerate(trials):
        if progress is not None:
            progress(done / len(trials))
        measured |= {"dram": _dram(where)} if trial == "dram" else _matrix(trial, where)
    if progress is not None:
        progress(1.0)
    kind = "cpu" if where == "cpu" else "gpu"
    if known is None and where == "cpu":
        rate = replace(measured["matmul.fp32"], origin="derived", reference=LANES, verified=False)
        measured["vector.fp32"] = rate
    facts = {} if where == "cpu" else {"memory": _card_memory()}
    found = {c.resource: c for c in (known.ceilings if known is not None else ())}
    found |= {c.resource: c for c in ceilings(measured, vendor="this machine", kind=kind, facts=facts)}
    return Device(
        name=f"{known.name if known is not None else name}-measured",
        title=f"{known.title if known is not None else title} (measured)",
        vendor=known.vendor if known is not None else "this machine",
        kind=kind,
        arch=known.arch if known is not None else "",
        ceilings=tuple(found[resource] for resource in RESOURCES if resource in found),
        facts=(known.facts if known is not None else {}) | facts,
        notes=f"measured with torch {torch.__version__}, {torch.get_num_threads()} threads",
    )


def _card_memory() -> Fact:
    total = torch.cuda.get_device_properties(0).total_memory
    return Fact(value=float(total), origin="measured", reference="CUDA runtime")


def _matrix(precision: str, where: str) -> dict[str, Stated]:
    trials = [*_products(precision, where), *(_convolution(precision) if where == "cpu" else ())]
    best = max(trials, key=lambda trial: trial.rate)
    silicon: Silicon = "fma" if where == "cpu" or precision == "fp32" else "tensor"
    return {f"matmul.{precision}": Stated(value=best.rate, origin="measured", reference=best.how, silicon=silicon)}


def _products(precision: str, where: str) -> Iterator[Best]:
    """The rate of square products of random numbers, by size."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        for n in MATRIX_SIZES[where]:
            a, b = (torch.randn(n, n, device=where).to(_TYPES[precision]) for _ in range(2))
            out = torch.empty_like(a)
            seconds = _best(partial(torch.mm, a, b, out=out), where)
            yield Best(rate=2 * n**3 / seconds, how=f"best of torch.mm, {n} x {n} x {n}")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _convolution(precision: str) -> Iterator[Best]:
    """The rate of a convolution on the CPU. torch asks oneDNN for the direct algorithm: its FLOP are the formula's."""
    batch, channels, size, kernel = CONVOLUTION
    layout = torch.channels_last
    x = torch.randn(batch, channels, size, size).to(_TYPES[precision], memory_format=layout)
    w = torch.randn(channels, channels, kernel, kernel).to(_TYPES[precision], memory_format=layout)
    with torch.no_grad():
        seconds = _best(partial(torch.conv2d, x, w, padding=kernel // 2), "cpu")
    flops = 2 * batch * channels**2 * size**2 * kernel**2
    yield Best(rate=flops / seconds, how=f"best of conv2d, {tuple(x.shape)} with {kernel} x {kernel} kernels")


def _dram(where: str) -> Stated:
    """The triad a = b + s c: two arrays read, one written, each far larger than any cache."""
    elements = STREAM_BYTES[where] // 4
    a, b, c = (torch.rand(elements, device=where) for _ in range(3))
    seconds = _best(partial(torch.add, b, c, alpha=3.0, out=a), where)
    return Stated(
        value=3 * 4 * elements / seconds,
        origin="measured",
        reference=f"best of triad, three arrays of {STREAM_BYTES[where] >> 20} MiB, 3 x bytes counted",
    )


def _best(call: Callable[[], object], where: str) -> float:
    """The shortest of several runs, in seconds."""
    clock: Clock = CudaClock() if where == "cuda" else MonotonicClock()

    def run(mark: Callable[[], None]) -> None:
        call()
        mark()

    return min(sample(run, ("forward",), clock, POLICY)["forward"].samples)
