"""What must stay free of a device's memory beside the tensors of a step, and what one torch device is."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from rooflens.devices.names import catalogue
from rooflens.devices.rules import PER_DEVICE_FACTS
from rooflens.records import MODES, Device, Memory
from rooflens.units import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Memory that must stay free beside the tensors of a step; its three amounts add.

    Attributes:
        what: what needs it.
        nbytes: bytes, whatever runs.
        of_transient: share of the activations and temporaries at the peak.
        of_memory: share of the device's memory.
        reference: where the figures come from.
        verified: False if they were not measured on a device of this vendor.
    """

    what: str
    nbytes: int = 0
    of_transient: float = 0.0
    of_memory: float = 0.0
    reference: str
    verified: bool = True

    def amount(self, held: Memory, memory: int) -> int:
        """Bytes to keep free beside the memory `held` at the peak, on a device with `memory`."""
        transient = (held.activations or 0) + (held.temporaries or 0)
        return self.nbytes + math.ceil(self.of_transient * transient) + math.ceil(self.of_memory * memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One entry of capacity.toml."""

    kinds: frozenset[str]
    vendors: frozenset[str]
    modes: frozenset[str]
    only: str
    reserve: Reserve

    def applies(self, device: Device, mode: str, demands: Collection[str]) -> bool:
        return device.kind in self.kinds and mode in self.modes and (not self.only or self.only in demands)


def reserves(device: Device, mode: str, demands: Collection[str]) -> tuple[Reserve, ...]:
    """What must stay free on a device for a step.

    Args:
        demands: families of the step's operations with their precision, like ``convolution.fp32``.
    """
    return tuple(
        replace(rule.reserve, verified=device.vendor.casefold() in rule.vendors)
        for rule in _rules()
        if rule.applies(device, mode, demands)
    )


def needed(held: Memory, memory: int, free: Sequence[Reserve]) -> int:
    """Bytes that a step needs of a device with `memory`: its peak and what must stay free."""
    assert held.peak is not None  # an estimate knows it
    return held.peak + sum(reserve.amount(held, memory) for reserve in free)


def one_of(device: Device) -> tuple[Device, int]:
    """One torch device of an entry that is several (``2x t4``, a board with two dies), and their number."""
    if device.count > 1:
        one, parts = one_of(_share(device, device.count, device.name.removeprefix(f"{device.count}x ")))
        return one, device.count * parts
    board = _table()["parts"].get(device.name)
    if board is None:
        return device, 1
    return _share(device, board["count"], board.get("one", f"{device.name}-one-of-{board['count']}")), board["count"]


def _share(device: Device, count: int, name: str) -> Device:
    """One of several equal devices: the entry of that name, or an equal share of everything."""
    known = next((entry for entry in catalogue() if entry.name == name), None)
    if known is not None:
        return known
    return replace(
        device,
        name=name,
        title=f"{device.title}, one of {count}",
        ceilings=tuple(replace(ceiling, rate=ceiling.rate / count) for ceiling in device.ceilings),
        facts={
            fact: replace(value, value=value.value / count) if fact in PER_DEVICE_FACTS else value
            for fact, value in device.facts.items()
        },
        aliases=(),
        count=1,
    )


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("rooflens.devices") / "capacity.toml").read_text(encoding="utf-8"))


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            kinds=frozenset(entry["kinds"]),
            vendors=frozenset(vendor.casefold() for vendor in entry["vendors"]),
            modes=frozenset(entry.get("modes", MODES)),
            only=entry.get("only", ""),
            reserve=Reserve(
                what=entry["what"],
                nbytes=int(parse(entry.get("bytes", "0 B"), "B")),
                of_transient=entry.get("of_transient", 0.0),
                of_memory=entry.get("of_memory", 0.0),
                reference=entry["reference"],
            ),
        )
        for entry in _table()["reserve"]
    )
