"""Two queues: the host launches operations one after the other, and the device runs them in that order.

So their order decides who waits: long kernels let the host get ahead, and what it launches then costs nothing. The
device waits where short kernels come first, and no later operation brings that time back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

TURNS = 64
"""Of equal layers as many are walked through; the time of more is spread over these."""


class Launched(NamedTuple):
    """Equal calls of an operation.

    Attributes:
        host: seconds in which the host launches all of them.
        device: seconds in which the device runs all of them.
        calls: how many they are.
    """

    host: float
    device: float
    calls: int


def two_queues(launched: Sequence[Launched]) -> tuple[float, float]:
    """Return the seconds after which the device has done all, and after which the host has launched all."""
    done = issued = 0.0
    for host, device, _ in _in_turn(launched) if any(its.calls > 1 for its in launched) else launched:
        issued += host
        done = max(issued, done) + device
    return done, issued


def _in_turn(launched: Sequence[Launched]) -> Iterator[Launched]:
    """What is launched one after the other: operations of equal layers, which a trace has once, take turns."""
    for several, group in groupby(launched, key=lambda its: its.calls > 1):
        layer = list(group)
        turns = min(TURNS, *(its.calls for its in layer)) if several else 1
        once = [Launched(its.host / turns, its.device / turns, 1) for its in layer]
        for _ in range(turns):
            yield from once
