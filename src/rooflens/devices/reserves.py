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
from rooflens.devices.rules import scaled
from rooflens.records import Device, Memory
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
    """Where a reserve must stay free, and of whose devices it was measured.

    Attributes:
        modes: None for all.
    """

    kinds: Collection[str]
    vendors: Collection[str]
    modes: Collection[str] | None
    reserve: Reserve

    def of(self, device: Device) -> Reserve:
        verified = device.vendor.casefold() in map(str.casefold, self.vendors)
        return self.reserve if verified else replace(self.reserve, verified=False)


def reserves(device: Device, mode: str) -> tuple[Reserve, ...]:
    """What must stay free on a device for a step of this mode."""
    rules = (rule for rule in _rules() if rule.modes is None or mode in rule.modes)
    return tuple(rule.of(device) for rule in rules if device.kind in rule.kinds)


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            kinds=rule["kinds"],
            vendors=rule["vendors"],
            modes=rule.get("modes"),
            reserve=Reserve(
                what=rule["what"],
                nbytes=int(parse(rule.get("bytes", "0 B"), "B")),
                of_transient=rule.get("of_transient", 0.0),
                of_memory=rule.get("of_memory", 0.0),
                reference=rule["reference"],
            ),
        )
        for rule in _table()["reserve"]
    )


def needed(held: Memory, memory: int, free: Sequence[Reserve]) -> int:
    """Bytes that a step needs of a device with `memory`: its peak, workspaces, and what must stay free."""
    assert held.peak is not None  # an estimate knows it
    return held.peak + (held.workspace or 0) + sum(reserve.amount(held, memory) for reserve in free)


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
    return scaled(device, lambda value: value / count, name=name, title=f"{device.title}, one of {count}", count=1)


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("rooflens.devices") / "capacity.toml").read_text(encoding="utf-8"))
