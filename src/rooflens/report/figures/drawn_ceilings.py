"""Which ceilings a figure draws, and the segments of them that are seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rooflens.records import Ceiling, Device, Work
from rooflens.report.figures.roofline_data import XY, Axis, CeilingLine, Ridge
from rooflens.roofline import ridge

FEW_DEVICES = 3
"""Up to so many devices every ceiling in use is drawn, beyond it one of each: thirty flats are a hatching."""

_VECTOR = "vector.fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The ceilings of one device that a figure draws.

    Attributes:
        levels: bandwidths of the figure's levels, as far as the device has them.
        compute: compute ceilings, highest first; empty for a device without any.
    """

    device: int
    levels: tuple[Ceiling, ...]
    compute: tuple[Ceiling, ...]


def roofs(devices: Sequence[Device], works: Mapping[str, Sequence[Work]], levels: Sequence[str]) -> tuple[Roof, ...]:
    """The ceilings to draw of each device.

    Args:
        works: by device name, the work of the marks on it: its units choose the compute ceilings. A device without
            marks is drawn for comparison: the units of all marks choose.
    """
    every = [work for found in works.values() for work in found]
    many = len(devices) > FEW_DEVICES
    common = _most_common(devices)
    found = []
    for number, device in enumerate(devices):
        used = _used(works.get(device.name) or every, device)
        available = [c.resource for c in device.ceilings if _is_default(c.resource)]
        one = [*used, *(r for r in (common, *_by_rate(device)) if r in available)][:1]
        wanted = one if many else used or available
        compute = [c for c in device.ceilings if c.resource in wanted]
        found.append(
            Roof(
                device=number,
                levels=tuple(c for level in levels if (c := device.ceiling(level)) is not None),
                compute=tuple(sorted(compute, key=lambda c: -c.rate)),
            )
        )
    return tuple(found)


def _by_rate(device: Device) -> list[str]:
    """The compute ceilings of a device, products and the highest first."""
    ranked = sorted(device.ceilings, key=lambda c: (not c.resource.startswith("matmul."), -c.rate))
    return [ceiling.resource for ceiling in ranked]


def _is_default(resource: str) -> bool:
    return resource.startswith("matmul.") or resource == _VECTOR


def _used(works: Iterable[Work], device: Device) -> list[str]:
    """Compute resources that the works use and the device has, most FLOP first, matrix units before the others.

    Lanes of another precision than fp32 count where they do most of a piece of work. The special-function rate is left
    out: nothing comes near it.
    """
    flops: dict[str, float] = defaultdict(float)
    for work in works:
        most = max(work.flops, key=lambda resource: work.flops[resource], default="")
        lanes = {most} if most.startswith("vector.") else set()
        for resource, n in work.flops.items():
            if n and (_is_default(resource) or resource in lanes) and device.ceiling(resource) is not None:
                flops[resource] += n
    return sorted(flops, key=lambda resource: (not resource.startswith("matmul."), -flops[resource]))


def _most_common(devices: Sequence[Device]) -> str | None:
    """The matrix precision that most devices have: the fairest to compare them by. Ties go to the higher rates."""
    rates: dict[str, list[float]] = defaultdict(list)
    for device in devices:
        for ceiling in device.ceilings:
            if ceiling.resource.startswith("matmul."):
                rates[ceiling.resource].append(ceiling.rate)
    return max(rates, key=lambda resource: (len(rates[resource]), sum(rates[resource])), default=None)


def ridges(roof: Roof) -> tuple[Ridge, ...]:
    """Where the compute ceilings of a device meet its memory diagonals."""
    return tuple(
        Ridge(device=roof.device, resource=c.resource, level=level.resource, x=ridge(c, level), y=c.rate)
        for level in roof.levels
        for c in roof.compute
    )


def lines(roof: Roof, x: Axis, y: Axis) -> tuple[CeilingLine, ...]:
    """The segments of a roof inside the axes: diagonals up to the highest flat, each flat from its first ridge on."""
    found = []
    top = min(roof.compute[0].rate if roof.compute else y.high, y.high)
    for level in roof.levels:
        start, end = max(x.low, y.low / level.rate), min(x.high, top / level.rate)
        found.append(_line(roof, level, (start, start * level.rate), (end, end * level.rate)))
    for ceiling in roof.compute:
        first = min((ridge(ceiling, level) for level in roof.levels), default=x.low)
        found.append(_line(roof, ceiling, (max(x.low, first), ceiling.rate), (x.high, ceiling.rate)))
    return tuple(found)


def _line(roof: Roof, ceiling: Ceiling, start: XY, end: XY) -> CeilingLine:
    return CeilingLine(
        device=roof.device,
        kind="memory" if ceiling in roof.levels else "compute",
        resource=ceiling.resource,
        rate=ceiling.rate,
        origin=ceiling.origin + ("" if ceiling.verified else ", unverified"),
        start=start,
        end=end,
    )
