"""The ceilings of this machine, measured: matrix rates and memory bandwidth.

The best of several sizes counts: a ceiling is what the machine can do, not what it usually does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from rooflens.records import Ceiling, Device, Fact
from rooflens.timing import Clock, CudaClock, MonotonicClock, Policy, Progress, sample

MATRIX_SIZES = {"cpu": (1024, 2048, 3072), "cuda": (4096, 8192)}
"""Square products: large enough to fill the machine, small enough for a few seconds of trials."""
CONVOLUTION = (16, 256, 28, 3)
"""Batch, channels in and out, height and width, kernel. Its direct algorithm reaches what torch.mm may not."""
STREAM_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}
"""Bytes of each array of the triad: at least four times any last-level cache (the rule of STREAM)."""
POLICY = Policy(warmup=3, warmup_seconds=0.5, min_samples=5, max_samples=30, budget=1.0)
_TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_PRECISIONS = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "tf32", "fp16", "bf16")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest rate seen, and with what."""

    rate: float
    how: str


def calibrate(where: str, name: str, title: str, progress: Progress | None = None) -> Device:
    """Measure the ceilings of this machine.

    Args:
        where: ``cpu`` or ``cuda``.
        name: slug for the device.
        title: what it is called.
        progress: told the share that is done.

    Returns:
        A device whose matrix rates and DRAM bandwidth have origin ``measured``. On a CPU, element-wise work runs on the
        lanes that ran the fp32 product, so it gets the same rate, marked ``derived``.
    """
    trials = [*_PRECISIONS[where], "dram"]
    ceilings = []
    for done, trial in enumerate(trials):
        if progress is not None:
            progress(done / len(trials))
        ceilings += [_dram(where)] if trial == "dram" else _matrix(trial, where)
    if progress is not None:
        progress(1.0)
    facts = {} if where == "cpu" else {"memory": _card_memory()}
    return Device(
        name=name,
        title=title,
        vendor="this machine",
        kind="cpu" if where == "cpu" else "gpu",
        arch="",
        ceilings=tuple(ceilings),
        facts=facts,
        notes=f"measured with torch {torch.__version__}, {torch.get_num_threads()} threads",
    )


def _card_memory() -> Fact:
    return Fact(
        value=float(torch.cuda.get_device_properties(0).total_memory), origin="measured", reference="CUDA runtime"
    )


def _matrix(precision: str, where: str) -> list[Ceiling]:
    trials = [*_products(precision, where), *(_convolution(precision) if where == "cpu" else ())]
    best = max(trials, key=lambda trial: trial.rate)
    lanes = where == "cpu"
    ceilings = [
        Ceiling(
            resource=f"matmul.{precision}",
            rate=best.rate,
            silicon="fma" if lanes or precision == "fp32" else "tensor",
            origin="measured",
            reference=best.how,
        )
    ]
    if precision == "fp32" and lanes:
        rule = "the lanes that run fp32 products"
        ceilings.append(
            Ceiling(
                resource="vector.fp32", rate=best.rate, silicon="fma", origin="derived", reference=rule, verified=False
            )
        )
    return ceilings


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


def _dram(where: str) -> Ceiling:
    """The triad a = b + s c: two arrays read, one written, each far larger than any cache."""
    elements = STREAM_BYTES[where] // 4
    a, b, c = (torch.rand(elements, device=where) for _ in range(3))
    seconds = _best(partial(torch.add, b, c, alpha=3.0, out=a), where)
    return Ceiling(
        resource="dram",
        rate=3 * 4 * elements / seconds,
        silicon="memory",
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
