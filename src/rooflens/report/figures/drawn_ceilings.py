"""Which ceilings a figure draws, and the visible segments of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rooflens.records import Ceiling, Device, Work
from rooflens.report.figures.axes import Axis
from rooflens.report.figures.roofline_data import CeilingLine, Ridge
from rooflens.roofline import ridge

FEW_DEVICES = 3
"""Up to so many devices every ceiling in use is drawn; beyond it one of each, since thirty flats are a hatching."""

_USUAL = ("matmul.", "vector.fp32")
"""How the ceilings begin that are drawn without work, and that any work may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRoof:
    """The ceilings of one device that a figure draws.

    Attributes:
        levels: bandwidths of the figure's levels, as far as the device has them.
        compute: compute ceilings, highest first; empty for a device without any.
        ridges: where they meet.
    """

    device: int
    levels: tuple[Ceiling, ...]
    compute: tuple[Ceiling, ...]
    ridges: tuple[Ridge, ...]


def roofs(devices: Sequence[Device], works: Mapping[str, Sequence[Work]], levels: Sequence[str]) -> list[DeviceRoof]:
    """Return the ceilings to draw of each device: all that its marks use, of many devices the highest of these.

    Args:
        works: by device name, the work of the marks on it: its units choose the compute ceilings. A device without
            marks is drawn for comparison: the units of all marks choose.
    """
    every = [work for some in works.values() for work in some]
    many = len(devices) > FEW_DEVICES
    common = _most_common(devices) if many else None
    drawn = []
    for number, device in enumerate(devices):
        wanted = used(works.get(device.name) or every, device)
        if wanted and many:  # the highest, so that no mark stands above what is drawn for it
            wanted.sort(key=lambda resource: -device.require(resource).rate)
        if not wanted:
            usual = [c for c in device.ceilings if c.resource.startswith(_USUAL)]
            usual.sort(key=lambda c: (c.resource != common, not c.resource.startswith("matmul."), -c.rate))
            wanted = [c.resource for c in usual]
        chosen = wanted[:1] if many else wanted
        diagonals = [c for level in levels if (c := device.ceiling(level)) is not None]
        flats = sorted((c for c in device.ceilings if c.resource in chosen), key=lambda c: -c.rate)
        ridges = tuple(
            Ridge(device=number, resource=c.resource, level=level.resource, x=ridge(c, level), y=c.rate)
            for level in diagonals
            for c in flats
        )
        drawn.append(DeviceRoof(device=number, levels=tuple(diagonals), compute=tuple(flats), ridges=ridges))
    return drawn


def used(works: Iterable[Work], device: Device) -> list[str]:
    """Return the compute resources that the works use and the device has: matrix units first, then by FLOP.

    Lanes of another precision than fp32 count where they do most of a piece of work. The special-function rate is left
    out: nothing comes near it.
    """
    flops: dict[str, float] = defaultdict(float)
    for work in works:
        most = max(work.flops, key=lambda resource: work.flops[resource], default="")
        lanes = {most} if most.startswith("vector.") else set()
        for resource, n in work.flops.items():
            if n and (resource.startswith(_USUAL) or resource in lanes):
                flops[resource] += n
    known = (resource for resource in flops if device.ceiling(resource) is not None)
    return sorted(known, key=lambda resource: (not resource.startswith("matmul."), -flops[resource]))


def _most_common(devices: Sequence[Device]) -> str | None:
    """Return the matrix precision that most devices have: the fairest to compare them by. Ties go to higher rates."""
    rates: dict[str, list[float]] = defaultdict(list)
    for device in devices:
        for ceiling in device.ceilings:
            if ceiling.resource.startswith("matmul."):
                rates[ceiling.resource].append(ceiling.rate)
    return max(rates, key=lambda resource: (len(rates[resource]), sum(rates[resource])), default=None)


def ceiling_lines(roof: DeviceRoof, x: Axis, y: Axis) -> Iterator[CeilingLine]:
    """Yield the segments inside the axes: diagonals up to the highest flat, each flat from its first ridge on."""
    top = min(roof.compute[0].rate if roof.compute else y.high, y.high)
    for ceiling in (*roof.levels, *roof.compute):
        rate = ceiling.rate
        if ceiling in roof.levels:
            left, right = max(x.low, y.low / rate), min(x.high, top / rate)
            start, end = (left, left * rate), (right, right * rate)
        else:
            first = min((ridge.x for ridge in roof.ridges if ridge.resource == ceiling.resource), default=x.low)
            start, end = (max(x.low, first), rate), (x.high, rate)
        yield CeilingLine(
            device=roof.device,
            kind="memory" if ceiling in roof.levels else "compute",
            resource=ceiling.resource,
            rate=rate,
            origin=ceiling.origin + ("" if ceiling.verified else ", unverified"),
            start=start,
            end=end,
        )
