"""Measures matrix rates: products of random numbers, by precision, shape and layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from rooflens.models import switches
from rooflens.records import Fact, Silicon
from rooflens.sources.calibrate.trial import (
    STEADY_SECONDS,
    Action,
    Bench,
    Best,
    Candidate,
    MeasuredRates,
    fact,
    race,
    rate_of,
)
from rooflens.sources.calibrate.trial_sizes import ProductShape

PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8", "fp64")
LAYOUTS = ("nn", "nt", "tn")
"""Which of the two factors is stored transposed."""
ACCUMULATE = {"fp64": "fp64", "int8": "int32"}
"""By precision, where it is not fp32."""
_TYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def precisions(where: str) -> tuple[str, ...]:
    """Precisions that torch multiplies here without emulating them."""
    if where == "cpu":
        return ("bf16", "fp16", "fp32", "int8", "fp64")
    amd = torch.version.hip is not None
    capability = torch.cuda.get_device_capability()
    missing = {
        "bf16": not torch.cuda.is_bf16_supported(including_emulation=False),
        "tf32": amd or capability < (8, 0),
        "fp8": not amd and capability < (8, 9),
        "int8": not amd and capability < (7, 5),
    }
    return tuple(precision for precision in PRECISIONS if not missing.get(precision, False))


def matrix(precision: str, bench: Bench, seconds: float) -> MeasuredRates:
    """The ceiling ``matmul.PRECISION``."""
    with switches("tf32" if precision == "tf32" else "fp32"), torch.no_grad():
        best = race(list(_candidates(precision, bench)), seconds, bench.timer)
        kept_up = _kept_up(precision, best, bench)
    resource = f"matmul.{precision}"
    accumulate = ACCUMULATE.get(precision, "fp32")
    rates = {resource: rate_of(best, silicon=_silicon(resource, bench), accumulate=accumulate)}
    return MeasuredRates(rates=rates, facts=kept_up)


def _kept_up(precision: str, best: Best, bench: Bench) -> dict[str, Fact]:
    """The rate of the best product without a pause, where a power limit may lower it."""
    if bench.steady is None or best.candidate is None:
        return {}
    rate = best.candidate.amount / bench.steady(best.candidate.make(), STEADY_SECONDS)
    how = f"median of {STEADY_SECONDS} s without a pause, {best.how.removeprefix('best of ')}"
    return {f"matmul_{precision}_steady": fact(rate, how)}


def _silicon(resource: str, bench: Bench) -> Silicon:
    """The silicon in the catalogue; else the general lanes, for a CPU and for full precision on a card."""
    ceiling = bench.known.ceiling(resource) if bench.known is not None else None
    if ceiling is not None:
        return ceiling.silicon
    return "fma" if bench.where == "cpu" or resource in ("matmul.fp32", "matmul.fp64") else "tensor"


def _candidates(precision: str, bench: Bench) -> Iterator[Candidate]:
    """Products, the smallest first, so that a slow precision is known before a large product is tried."""
    for shape in sorted(bench.sizes.products, key=_flops):
        sizes = " x ".join(map(str, shape))
        if precision == "int8":
            yield Candidate(
                how=f"best of torch._int_mm, {sizes}", amount=_flops(shape), make=partial(_int8, shape, bench)
            )
        elif precision == "fp8":
            for fast in (True, False):
                how = f"best of torch._scaled_mm of e4m3, {sizes}, {'fast' if fast else 'full'} accumulation"
                yield Candidate(how=how, amount=_flops(shape), make=partial(_fp8, shape, bench, fast))
        else:
            for layout in LAYOUTS:
                how = f"best of torch.mm, {sizes}, {layout}"
                yield Candidate(
                    how=how, amount=_flops(shape), make=partial(_product, shape, layout, _TYPES[precision], bench)
                )
    if bench.sizes.convolution is not None and precision in _TYPES:
        yield _convolution(bench.sizes.convolution, _TYPES[precision])


def _flops(shape: ProductShape) -> int:
    m, n, k = shape
    return 2 * m * n * k


def _product(shape: ProductShape, layout: str, dtype: torch.dtype, bench: Bench) -> Action:
    m, n, k = shape
    a = _random(m, k, layout[0] == "t", bench).to(dtype)
    b = _random(k, n, layout[1] == "t", bench).to(dtype)
    return partial(torch.mm, a, b, out=torch.empty(m, n, dtype=dtype, device=bench.where))


def _random(rows: int, columns: int, transposed: bool, bench: Bench) -> torch.Tensor:
    """Normal random numbers: on zeros a card draws less power and runs faster than on any real input."""
    values = torch.randn(columns if transposed else rows, rows if transposed else columns, device=bench.where)
    return values.t() if transposed else values


def _int8(shape: ProductShape, bench: Bench) -> Action:
    m, n, k = shape
    a, b = (torch.randint(-127, 128, size, dtype=torch.int8, device=bench.where) for size in ((m, k), (n, k)))
    return partial(torch._int_mm, a, b.t())


def _fp8(shape: ProductShape, bench: Bench, fast: bool) -> Action:
    m, n, k = shape
    a, b = (torch.randn(size, device=bench.where).to(torch.float8_e4m3fn) for size in ((m, k), (n, k)))
    one = torch.ones((), device=bench.where)
    more: dict[str, Any] = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": fast}
    return partial(torch._scaled_mm, a, b.t(), **more)


def _convolution(sizes: tuple[int, int, int, int], dtype: torch.dtype) -> Candidate:
    """A convolution on the CPU, with the FLOP of its direct algorithm."""
    batch, channels, size, kernel = sizes

    def make() -> Action:
        layout = torch.channels_last
        x = torch.randn(batch, channels, size, size).to(dtype, memory_format=layout)
        w = torch.randn(channels, channels, kernel, kernel).to(dtype, memory_format=layout)
        return partial(torch.conv2d, x, w, padding=kernel // 2)

    shape = " x ".join(map(str, (batch, channels, size, size)))
    return Candidate(
        how=f"best of conv2d, {shape} with {kernel} x {kernel} kernels",
        amount=2 * batch * channels**2 * size**2 * kernel**2,
        make=make,
    )
