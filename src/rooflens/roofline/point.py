"""Points and ridges of a roofline."""

from __future__ import annotations

from rooflens.records import Bound, Ceiling, Point, Work


def ridge(compute: Ceiling, level: Ceiling) -> float:
    """The intensity in FLOP/byte at which a compute ceiling and a level's bandwidth meet: peak over bandwidth."""
    return compute.rate / level.rate


def point(work: Work, bound: Bound | None, seconds: float | None, level: str = "dram") -> Point:
    """The point of `work` done in `seconds`, under `bound`.

    Args:
        bound: the bound of the work on a device, or None without a device.
        seconds: measured (or bound) time of the work, or None.
        level: memory level of the intensity.
    """
    flops = work.total_flops
    nbytes = work.bytes.get(level)
    return Point(
        level=level,
        intensity=flops / nbytes if flops and nbytes else None,
        performance=flops / seconds if seconds else None,
        attainable=flops / bound.seconds if bound is not None and bound.seconds else None,
        efficiency=bound.seconds / seconds if bound is not None and seconds else None,
    )
