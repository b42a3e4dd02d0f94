"""The shortest time in which a device can do some work."""

from __future__ import annotations

from collections.abc import Iterable

from rooflens.records import Bound, Device, Work


def bound(work: Work, device: Device) -> Bound:
    """The bound of one piece of work: the largest time over silicon and levels.

    Raises:
        MissingCeiling: the work has matrix FLOP of a precision for which the device has no rate.
    """
    busy: dict[str, float] = {}
    shares: dict[str, float] = {}
    skipped = set()
    for resource, flops in work.flops.items():
        if not flops:
            continue
        ceiling = device.require(resource) if resource.startswith("matmul.") else device.ceiling(resource)
        if ceiling is None:
            skipped.add(resource)
            continue
        shares[resource] = flops / ceiling.rate
        busy[ceiling.silicon] = busy.get(ceiling.silicon, 0.0) + shares[resource]
    for level, nbytes in work.bytes.items():
        ceiling = device.ceiling(level)
        if ceiling is None:
            skipped.add(level)
            continue
        shares[level] = nbytes / ceiling.rate
        busy[level] = shares[level]
    seconds = max(busy.values(), default=0.0)
    return Bound(
        seconds=seconds, bound_by=_holder(shares, busy, seconds, device), shares=shares, skipped=frozenset(skipped)
    )


def _holder(shares: dict[str, float], busy: dict[str, float], seconds: float, device: Device) -> str:
    """The resource with the largest share on the silicon or level that sets the bound."""
    if not seconds:
        return ""

    def place(resource: str) -> str:
        ceiling = device.ceiling(resource)
        return resource if ceiling is None or resource in busy else ceiling.silicon

    binding = max(busy, key=lambda name: busy[name])
    return max((r for r in shares if place(r) == binding), key=lambda r: shares[r])


def serial_bound(parts: Iterable[Bound]) -> Bound:
    """The bound of parts that run one after the other: seconds add; `bound_by` holds the largest part of the sum."""
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
