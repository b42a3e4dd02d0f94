"""What fast algorithms leave of the multiplications of convolutions: Winograd's, and FFT of large kernels."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from rooflens.records import Call, Record, Tensor

TILE = 4
"""Results along a side that Winograd's algorithm makes at once, or as many as the kernel has taps: F(4 x 4, 3 x 3) of
Lavin and Gray (arXiv:1509.09308), with 36 multiplications for 144. Assumed to be the largest tile in use."""
USUALLY_LEFT = 0.25
"""What is left of a convolution whose sizes are not kept: 4 x 4 results of 3 x 3 taps are the usual case."""


def fewest_flops(records: Iterable[Record]) -> float:
    """Return the matrix FLOP of some operations if fast algorithms do every convolution that they can do."""
    worked = ((r, r.work.matmul_flops * r.calls) for r in records if r.work is not None)
    return sum(flops * (_left(r.call) if r.kind == "convolution" else 1) for r, flops in worked)


def _left(call: Call | None) -> float:
    """The share that is left of a convolution: m + k - 1 multiplications along a side for m results of k taps."""
    weight = None if call is None else call.get("weight")
    if call is None or not isinstance(weight, Tensor):
        return USUALLY_LEFT
    stride = call.get("stride")
    if isinstance(stride, tuple) and any(step != 1 for step in stride):
        return 1.0
    return prod(left_of(taps) for taps in weight.shape[2:])


def left_of(taps: int) -> float:
    """Return the share that is left along one side of a kernel.

    >>> left_of(1), left_of(3), left_of(5)
    (1.0, 0.5, 0.36)
    """
    results = max(TILE, taps)
    return 1.0 if taps == 1 else (results + taps - 1) / (results * taps)
