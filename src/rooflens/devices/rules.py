"""Rules that make ceilings of the values of a device file; they stand only here.

- Without ``matmul.p`` in the file, it is the vector rate of p: products run on the general lanes, and their time adds
  to that of vector work (silicon ``fma``).
- Without ``torch_memory``, it is what the card that is known to keep least for ECC and its driver has left of as many
  GiB as the maker prints GB (:func:`torch_memory`).
- Without ``special.fp32``, it is 16 results per SM and clock on NVIDIA GPUs (CUDA C++ Programming Guide, throughput of
  native arithmetic instructions), else an eighth of ``vector.fp32``, an assumption. Neither holds for every
  architecture, so both are unverified.

What a rule gives has the origin ``derived``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rooflens.records import LEVELS, LINKS, PRECISIONS, UNITS, Ceiling, CeilingOrigin, Device, Fact, Silicon

SILICON: Mapping[str, Silicon] = {
    "matmul": "tensor",
    "vector": "fma",
    "special": "special",
    **dict.fromkeys(LEVELS, "memory"),
    **dict.fromkeys(LINKS, "link"),
}
"""The silicon of a unit, level or link, unless a file names another."""
SPECIAL_PER_SM_AND_CLOCK = 16
VECTOR_PER_SPECIAL = 8
GIB_OF_GB = 1.024**3
"""Makers print GB and build GiB."""
LEAST_LEFT = 0.91
"""Of its GiB, what a GPU has left beside ECC and the driver: 14.56 of 16 on a T4, on other cards of the catalogue whose
memory torch has told 0.92 to 0.99."""
DRIVERS = 1.015
"""By how much one driver leaves more than another: 14.56 to 14.76 GiB on a T4."""
RESOURCES = (*(f"{unit}.{precision}" for unit in UNITS for precision in PRECISIONS), *LEVELS, *LINKS)
"""Every resource, in the order in which ceilings are listed."""
_STREAMS = tuple(f"dram_{stream}" for stream in ("copy", "triad", "read", "write"))
_PER_DEVICE_FACTS = ("memory", "torch_memory", "l2", "power", "units", *_STREAMS)
"""Facts that double for two devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedValue:
    """A value of a device file, in base units."""

    value: float
    origin: CeilingOrigin
    reference: str
    verified: bool = True
    accumulate: str | None = None
    silicon: Silicon | None = None


def ceilings(
    rates: Mapping[str, SourcedValue], *, vendor: str, kind: str, facts: Mapping[str, Fact]
) -> tuple[Ceiling, ...]:
    """The ceilings of a device: those of its file, and those that follow by rule."""
    given = {resource: _ceiling(resource, rate) for resource, rate in rates.items()}
    for precision in PRECISIONS:
        vector = given.get(f"vector.{precision}")
        if vector is not None:
            given.setdefault(f"matmul.{precision}", _products_on_lanes(vector, precision))
    special = _special(given.get("vector.fp32"), vendor, kind, facts)
    if special is not None:
        given.setdefault("special.fp32", special)
    return tuple(given[resource] for resource in RESOURCES if resource in given)


def torch_memory(kind: str, facts: Mapping[str, Fact]) -> Fact | None:
    """The memory that torch finds on a GPU at least, of which only the maker's figure is known; None for others."""
    made = facts.get("memory")
    if kind != "gpu" or made is None or made.origin != "datasheet" or made.value % 1e6:
        return None
    reference = f"rule: {LEAST_LEFT} of as many GiB as the maker prints GB"
    return Fact(value=_least_left(made), origin="derived", reference=reference, verified=False)


def memory_seen(device: Device) -> tuple[int, int] | None:
    """Bytes that programs can have of a device's memory, at least and at most; None where nothing is known of it.

    A memory that was measured, or that a user names, is all theirs; so is one that a caller has put in place of the one
    that ``torch_memory`` belongs to.
    """
    made, seen = device.facts.get("memory"), device.facts.get("torch_memory")
    if made is None:
        return None if seen is None else (int(seen.value), int(seen.value))
    most = GIB_OF_GB * made.value
    of_this = seen is not None and _least_left(made) <= seen.value <= most
    if seen is None or not of_this or made.origin in ("measured", "user"):
        return int(made.value), int(made.value)
    return int(seen.value), int(most if seen.origin == "derived" else min(most, seen.value * DRIVERS))


def _least_left(made: Fact) -> int:
    return math.floor(LEAST_LEFT * GIB_OF_GB * made.value)


def _ceiling(resource: str, rate: SourcedValue) -> Ceiling:
    return Ceiling(
        resource=resource,
        rate=rate.value,
        silicon=rate.silicon or SILICON[resource.partition(".")[0]],
        origin=rate.origin,
        reference=rate.reference,
        verified=rate.verified,
        accumulate=rate.accumulate,
    )


def _products_on_lanes(vector: Ceiling, precision: str) -> Ceiling:
    """The matrix rate of a precision without a matrix unit; a multiply-add sums in its own precision."""
    return replace(
        vector,
        resource=f"matmul.{precision}",
        origin="derived",
        reference=f"rule: products run on the general lanes, so {vector.resource}",
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
    """`count` equal devices as one: rates and amounts are sums over them.

    Links are summed too, since each device has its own: work counts link bytes at the port of every device that sends
    or receives them. Clock and year stay. Working together costs nothing: the bound is that of a perfect split.
    """
    if count == 1:
        return device
    name, title = f"{count}x {device.name}", f"{count}x {device.title}"
    return scaled(device, lambda value: value * count, name=name, title=title, count=device.count * count)


def scaled(device: Device, scale: Callable[[float], float], *, name: str, title: str, count: int) -> Device:
    """The device under another name, with every rate and amount scaled."""
    return replace(
        device,
        name=name,
        title=title,
        ceilings=tuple(replace(ceiling, rate=scale(ceiling.rate)) for ceiling in device.ceilings),
        facts={
            key: replace(fact, value=scale(fact.value)) if key in _PER_DEVICE_FACTS else fact
            for key, fact in device.facts.items()
        },
        aliases=(),
        count=count,
    )
