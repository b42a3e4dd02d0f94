"""Roofs by the names that people give them, as ceilings of a device."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rooflens.devices.files import slug
from rooflens.devices.rules import SourcedValue, ceilings
from rooflens.errors import FileError
from rooflens.records import CeilingOrigin, Device, Record
from rooflens.records.device import LEAST_RATE, MOST_RATE
from rooflens.units import show

GIGA = 1e9
_SMALLEST, _LARGEST = 1e-40, 1e40
"""Beyond what any machine has or does, and such that quotients of two of them are floats."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WORD = re.compile(r"[a-z]+\d*|\d+")
_LEVELS = {
    "l1": "l1",
    "l2": "l2",
    **dict.fromkeys(("hbm", "hbm2", "hbm3", "dram", "ddr", "mcdram", "mem", "memory"), "dram"),
    "pcie": "pcie",
    "nvlink": "nvlink",
}
_PRECISIONS = {
    **dict.fromkeys(("fp64", "f64", "dp", "double"), "fp64"),
    **dict.fromkeys(("fp32", "f32", "sp", "single"), "fp32"),
    **dict.fromkeys(("fp16", "f16", "hp", "half"), "fp16"),
    **{name: name for name in ("tf32", "bf16", "fp8", "int8")},
}
_PRODUCTS = frozenset({"tensor", "tc", "wmma", "mma", "matrix", "mfma"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRoof:
    """One roof of a file: its name and place there, and its rate in FLOP/s or B/s."""

    name: str
    place: str
    rate: float
    resource: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """The roofs of a file as a device, None where it has none, and its points as records."""

    device: Device | None = None
    records: tuple[Record, ...] = ()


def level_of(name: str) -> str | None:
    """Return the memory level or link that a name tells, None if it tells none or several.

    >>> level_of("HBM Theo"), level_of("L2 cache"), level_of("L3")
    ('dram', 'l2', None)
    """
    levels = {_LEVELS[word] for word in _WORD.findall(name.lower()) if word in _LEVELS}
    return levels.pop() if len(levels) == 1 else None


def unit_of(name: str) -> tuple[str, bool]:
    """Return the compute resource that a name means, and True if it tells the precision.

    Both tools were made for double precision. NERSC's tensor roofs are those of the V100, which has 16-bit ones only.

    >>> unit_of("FMA"), unit_of("FP32 GFLOPs"), unit_of("Tensor")
    (('vector.fp64', False), ('vector.fp32', True), ('matmul.fp16', False))
    """
    words = _WORD.findall(name.lower())
    precision = next((_PRECISIONS[word] for word in words if word in _PRECISIONS), None)
    if _PRODUCTS.isdisjoint(words):
        return f"vector.{precision or 'fp64'}", precision is not None
    return f"matmul.{precision or 'fp16'}", precision is not None


def named_roof(name: str, place: str, speed: float, *, computes: bool) -> NamedRoof:
    """Return a roof in FLOP/s of the unit that its name means, or one in B/s of the level that it tells."""
    return NamedRoof(name=name, place=place, rate=speed, resource=unit_of(name)[0] if computes else level_of(name))


def number(text: str, place: str) -> float:
    """Return a number as C and Python print it; `place` names it in errors."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (value == 0 or _SMALLEST < abs(value) < _LARGEST):
        raise FileError(f"{place} holds {text[:40]!r}, which is no number of this world")
    return value


def rate(text: str, place: str) -> float:
    """Return a rate in base units; it is written in GB/s or GFLOP/s."""
    value = number(text, place) * GIGA
    if not LEAST_RATE <= value <= MOST_RATE:
        raise FileError(f"{place} holds {text[:40]!r}, which is no rate; leave out what is not known")
    return value


def device_of(
    roofs: Sequence[NamedRoof],
    *,
    title: str,
    told: Device | None,
    suffix: str,
    kind: str,
    origin: CeilingOrigin,
    notes: Iterable[str],
) -> Device | None:
    """Return a device with the highest roof of each resource, and the rates that follow as they do for a device file.

    Its notes list the other roofs of the file.

    Args:
        title: what it is called if the user named no device.
        suffix: the end of its name, which differs so from the catalogue's entry of the same device.
    """
    best: dict[str, NamedRoof] = {}
    for roof in sorted(roofs, key=lambda roof: -roof.rate):
        if roof.resource is not None:
            best.setdefault(roof.resource, roof)
    if not best:
        return None
    rest = [roof for roof in roofs if roof.resource is None or best[roof.resource] is not roof]
    title = f"{told.title if told is not None else title} {suffix}"
    vendor, kind = (told.vendor, told.kind) if told is not None else ("unknown", kind)
    stated = {
        resource: SourcedValue(value=roof.rate, origin=origin, reference=f"{roof.place}: {roof.name}")
        for resource, roof in best.items()
    }
    return Device(
        name=slug(title),
        title=title,
        vendor=vendor,
        kind=kind,
        arch=told.arch if told is not None else "",
        ceilings=ceilings(stated, vendor=vendor, kind=kind, facts={}),
        facts={},
        notes=". ".join([*notes, *_left_out(rest)]),
    )


def _left_out(rest: Sequence[NamedRoof]) -> list[str]:
    if not rest:
        return []
    shown = (
        f"{roof.name} {show(roof.rate, 'B/s' if roof.resource is None or '.' not in roof.resource else 'FLOP/s')}"
        for roof in rest
    )
    return [f"Lower roofs, or of no resource that rooflens has: {', '.join(shown)}"]
