"""Rules that turn the values of a device file into ceilings. They are written here once and nowhere else.

- ``matmul.p`` that a file does not state is the vector rate of p: products then run on the general lanes, and their
  time adds to that of vector work (silicon ``fma``).
- ``special.fp32`` that a file does not state is 16 results per SM and clock on NVIDIA GPUs (CUDA C++ Programming Guide,
  throughput of native arithmetic instructions), else an eighth of ``vector.fp32``, an assumption. Neither holds for
  every architecture, so both are marked unverified.

What a rule yields has the origin ``derived``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rooflens.records import LEVELS, LINKS, PRECISIONS, UNITS, Ceiling, CeilingOrigin, Device, Fact, Silicon

SILICON: Mapping[str, Silicon] = {
    "matmul": "tensor",
    "vector": "fma",
    "special": "special",
    **dict.fromkeys(LEVELS, "memory"),
    **dict.fromkeys(LINKS, "link"),
}
"""The silicon of a unit, level or link where a file does not name another."""
SPECIAL_PER_SM_AND_CLOCK = 16
VECTOR_PER_SPECIAL = 8
RESOURCES = (*(f"{unit}.{precision}" for unit in UNITS for precision in PRECISIONS), *LEVELS, *LINKS)
"""Every resource, in the order in which ceilings are listed."""
_STREAMS = tuple(f"dram_{stream}" for stream in ("copy", "triad", "read", "write"))
PER_DEVICE_FACTS = ("memory", "l2", "power", "units", *_STREAMS)
"""Facts of which two devices have twice as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedValue:
    """A value as a device file states it, in base units."""

    value: float
    origin: CeilingOrigin
    reference: str
    verified: bool = True
    accumulate: str | None = None
    silicon: Silicon | None = None


def ceilings(
    stated: Mapping[str, SourcedValue], *, vendor: str, kind: str, facts: Mapping[str, Fact]
) -> tuple[Ceiling, ...]:
    """The ceilings of a device: what is stated, and what follows from it."""
    found = {resource: _ceiling(resource, value) for resource, value in stated.items()}
    for precision in PRECISIONS:
        vector = found.get(f"vector.{precision}")
        if vector is not None:
            found.setdefault(f"matmul.{precision}", _products_on_lanes(vector, precision))
    special = _special(found.get("vector.fp32"), vendor, kind, facts)
    if special is not None:
        found.setdefault("special.fp32", special)
    return tuple(found[resource] for resource in RESOURCES if resource in found)


def _ceiling(resource: str, stated: SourcedValue) -> Ceiling:
    return Ceiling(
        resource=resource,
        rate=stated.value,
        silicon=stated.silicon or SILICON[resource.partition(".")[0]],
        origin=stated.origin,
        reference=stated.reference,
        verified=stated.verified,
        accumulate=stated.accumulate,
    )


def _products_on_lanes(vector: Ceiling, precision: str) -> Ceiling:
    """The matrix rate of a precision without a matrix unit; a multiply-add sums in its own precision."""
    return Ceiling(
        resource=f"matmul.{precision}",
        rate=vector.rate,
        silicon=vector.silicon,
        origin="derived",
        reference=f"rule: products run on the general lanes, so {vector.resource}",
        verified=vector.verified,
        accumulate=vector.accumulate or precision,
    )


def _special(vector: Ceiling | None, vendor: str, kind: str, facts: Mapping[str, Fact]) -> Ceiling | None:
    multiprocessors, clock = facts.get("units"), facts.get("clock")
    if vendor.casefold() == "nvidia" and kind in ("gpu", "soc") and multiprocessors is not None and clock is not None:
        rate = SPECIAL_PER_SM_AND_CLOCK * multiprocessors.value * clock.value
        rule = f"rule: {SPECIAL_PER_SM_AND_CLOCK} per SM and clock"
    elif vector is not None:
        rate, rule = vector.rate / VECTOR_PER_SPECIAL, f"rule: {vector.resource} / {VECTOR_PER_SPECIAL}"
    else:
        return None
    return Ceiling(
        resource="special.fp32", rate=rate, silicon="special", origin="derived", reference=rule, verified=False
    )


def times(device: Device, count: int) -> Device:
    """`count` equal devices as one: every rate and every amount is the sum over them.

    Links are summed too, as every device brings its own: work that names link bytes counts them at the port of every
    device that sends or receives them. Clock and year stay. Nothing is taken off for working together: the bound is
    that of a perfect split.
    """
    if count == 1:
        return device
    return replace(
        device,
        name=f"{count}x {device.name}",
        title=f"{count}x {device.title}",
        ceilings=tuple(replace(ceiling, rate=ceiling.rate * count) for ceiling in device.ceilings),
        facts={
            name: replace(fact, value=fact.value * count) if name in PER_DEVICE_FACTS else fact
            for name, fact in device.facts.items()
        },
        aliases=(),
        count=device.count * count,
    )
