"""The shortest time in which a device can do some work, and where work stands under the ceilings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rooflens.records import Bound, Ceiling, Device, Point, Work


def bound(work: Work, device: Device) -> Bound:
    """Return the bound of one piece of work: the largest time over silicon and levels.

    Raises:
        MissingCeiling: the work has matrix FLOP of a precision for which the device has no rate.
    """
    shares: dict[str, float] = {}
    places: dict[str, str] = {}
    busy: dict[str, float] = {}
    skipped = set()
    ceilings = {ceiling.resource: ceiling for ceiling in device.ceilings}
    demands = [*((name, flops) for name, flops in work.flops.items() if flops), *work.bytes.items()]
    for resource, amount in demands:
        ceiling = ceilings.get(resource)
        if ceiling is None:
            if resource.startswith("matmul."):
                device.require(resource)  # which says what the device has
            skipped.add(resource)
            continue
        # Times on one silicon add; each level is a place of its own.
        places[resource] = ceiling.silicon if resource in work.flops else resource
        shares[resource] = amount / ceiling.rate
        busy[places[resource]] = busy.get(places[resource], 0.0) + shares[resource]
    seconds = max(busy.values(), default=0.0)
    binding = max(busy, key=lambda name: busy[name]) if seconds else None
    holders = [resource for resource, place in places.items() if place == binding]
    return Bound(
        seconds=seconds,
        bound_by=max(holders, key=lambda resource: shares[resource], default=""),
        shares=shares,
        skipped=frozenset(skipped),
    )


@dataclass(slots=True)
class Bounds:
    """Bounds of works on devices, each computed once."""

    _known: dict[int, tuple[Device, dict[Work, Bound]]] = field(default_factory=dict)

    def of(self, work: Work, device: Device) -> Bound:
        """Return the bound of a work on a device, as :func:`bound` does."""
        _, bounds = self._known.setdefault(id(device), (device, {}))  # the device is kept, so that its id stays its own
        known = bounds.get(work)
        if known is None:
            known = bounds[work] = bound(work, device)
        return known


def serial_bound(parts: Iterable[Bound]) -> Bound:
    """Return the bound of parts that run one after the other: seconds add; `bound_by` holds most of the sum."""
    seconds = 0.0
    held: dict[str, float] = {}
    skipped: frozenset[str] = frozenset()
    for part in parts:
        seconds += part.seconds
        if part.bound_by:
            held[part.bound_by] = held.get(part.bound_by, 0.0) + part.seconds
        skipped |= part.skipped
    return Bound(
        seconds=seconds, bound_by=max(held, key=lambda name: held[name], default=""), shares=held, skipped=skipped
    )


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
