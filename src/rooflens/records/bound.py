"""Bound and Point: derived from work, a device and a time; never stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The shortest time in which a device can do some work.

    Attributes:
        seconds: the bound.
        bound_by: the resource that holds the largest share of it, ``""`` if there is no work.
        shares: seconds that each resource needs on its own.
        skipped: resources without a rate that were left out of the bound.
    """

    seconds: float
    bound_by: str
    shares: dict[str, float]
    skipped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One mark on a roofline.

    Attributes:
        intensity: FLOP per byte of `level`; None where FLOP or bytes are zero or unknown.
        performance: FLOP/s; None without a time.
        attainable: FLOP/s that the bound allows.
        efficiency: bound over measured time; defined for a copy too.
    """

    level: str
    intensity: float | None
    performance: float | None
    attainable: float | None
    efficiency: float | None
