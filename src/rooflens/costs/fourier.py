"""Fast Fourier transforms."""

from __future__ import annotations

from math import log2, prod

from rooflens.costs.registry import Demand, register
from rooflens.costs.units import pointwise
from rooflens.records import Call

COMPLEX, REAL = 5.0, 2.5
"""FLOP per element and doubling of the length: the count by which transforms are compared (FFTW's benchFFT)."""


@register("fourier", "_fft_c2c", "_fft_r2c", "_fft_c2r")
def transform(call: Call) -> Demand:
    """5 n log2 n for a complex transform of n points, half of it where one side is real; n spans all its dimensions."""
    whole = max((call.tensor("self"), call.outputs[0]), key=lambda t: t.elements)
    points = prod(whole.shape[dim] for dim in call.integers("dim"))
    factor = COMPLEX if call.name == "_fft_c2c" else REAL
    real = next((t for t in (call.tensor("self"), call.outputs[0]) if not t.dtype.startswith("complex")), whole)
    flops = pointwise(real, vector=factor * whole.elements * log2(max(points, 1)))
    # A complex operand stands for two real lanes in `pointwise`; here the count is of real operations already.
    scale = 2 if real.dtype.startswith("complex") else 1
    return Demand(flops={resource: n / scale for resource, n in flops.items()})
