"""What a prediction knows of a device: rates of its data sheet, and constants of its generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rooflens.predict.constants import Constants, Level, constants_of, generation_of
from rooflens.predict.terms import Told
from rooflens.records import Ceiling, Device

FLOPS_OF_A_CYCLE = 256
"""FLOP in fp32 of one unit in one cycle, where units and clock are not known: 128 lanes with a multiply-add each."""
CLOCK = 1.5e9
"""Cycles of a second, where units are not known: between those of the catalogue's GPUs."""
PROCESSOR = "cpu"
"""The kind of device that launches its work itself. No data sheet tells enough of one: a suite has to run on it."""


@dataclass(frozen=True, slots=True, eq=False)
class Card:
    """A device as the effects see it. Rates of a generation scale with units x clock.

    Attributes:
        device: whose ceilings count.
        constants: of its generation, or measured.
        dram: bytes per second.
        l2: bytes of the last-level cache, 0 where they are not known.
        units: multiprocessors.
        cycles: units x clock: what one constant "per unit and cycle" is multiplied with.
        rates: FLOP/s by resource.
        power: watts it may take; None where that is not known.
    """

    device: Device
    constants: Constants
    dram: float
    l2: float
    units: float
    cycles: float
    rates: Mapping[str, float]
    power: float | None
    _values: Mapping[str, float] = field(repr=False)

    @property
    def launches_itself(self) -> bool:
        """True of a processor: host and device are one."""
        return self.device.kind == PROCESSOR

    @property
    def level(self) -> Level:
        """How the constants are known."""
        return self.constants.level

    def __getitem__(self, name: str) -> float:
        """A constant by its name, like ``stream.start``."""
        return self._values[name]

    def per_second(self, name: str) -> float:
        """A constant per unit and cycle, as a rate of this device."""
        return self._values[name] * self.cycles

    def of_a_unit(self, cycles: float) -> float:
        """Seconds of cycles of one unit, which works alone."""
        return cycles * self.units / self.cycles


def card_of(device: Device, constants: Constants | None = None) -> Card | None:
    """Return what a prediction needs of a device; None where it cannot be made: neither a GPU nor a
    processor with a suite of its own, or no bandwidth.

    Args:
        constants: other ones than those of the device's generation.
    """
    if constants is not None:
        return _card(device, constants)
    known = _KNOWN.get(id(device))
    if known is None or known[0] is not device:  # an id may come again; hashing ceilings would cost more than all else
        known = _KNOWN[id(device)] = (device, _card(device, constants_of(device)))
    return known[1]


@lru_cache(maxsize=32)
def telling(card: Card) -> Card:
    """Return the same card with constants that know their names: effects on it tell the terms of their seconds."""
    told = {name: Told.constant(name, value) for name, value in card.constants.values.items()}
    return replace(card, _values=told)


_KNOWN: dict[int, tuple[Device, Card | None]] = {}
"""Cards of devices that are in use, by identity: each is made once."""


SHARES = {"dram": "stream.share_wide", "matmul.fp32": "product.rate_fp32", "matmul.tf32": "product.rate_tf32"}
SHARES |= dict.fromkeys(("matmul.bf16", "matmul.fp16"), "product.rate_half") | {"matmul.int8": "product.rate_int8"}
"""The share of each rate that is reached at best."""
PUBLISHED = {"dram": "dram_copy"} | {name: f"{name.replace('.', '_')}_steady" for name in SHARES if name != "dram"}
"""The fact of a device file that tells what others have measured of a rate on such a card."""


def _full(ceiling: Ceiling, device: Device) -> float:
    """The rate of which effects reach a share: that of a data sheet. What was measured on a GPU is a share already."""
    reached = _reached(ceiling, device)
    if device.kind == PROCESSOR or reached is None or ceiling.resource not in SHARES:
        return ceiling.rate
    return reached / generation_of(device).values[SHARES[ceiling.resource]]


def _reached(ceiling: Ceiling, device: Device) -> float | None:
    """The best rate that was seen on such a card; None where nobody has told."""
    if ceiling.origin == "measured":
        return ceiling.rate
    published = device.facts.get(PUBLISHED.get(ceiling.resource, ""))
    return None if published is None else published.value


def _ahead(device: Device) -> float:
    """The clock over that of the data sheet: a card that multiplies faster than its peak runs at a higher one."""
    products = (its for its in device.ceilings if its.origin != "measured" and its.resource.startswith("matmul."))
    return max([1.0, *((_reached(its, device) or 0.0) / its.rate for its in products)])


def _card(device: Device, constants: Constants) -> Card | None:
    rates = {ceiling.resource: _full(ceiling, device) for ceiling in device.ceilings}
    known = device.kind == "gpu" or (device.kind == PROCESSOR and constants.level == "calibrated")
    if not known or device.count != 1 or "dram" not in rates:
        return None
    facts = {name: fact.value for name, fact in device.facts.items()}
    vector = rates.get("vector.fp32") or max(rates.values())
    known_clock = {"units", "clock"} <= facts.keys()
    cycles = facts["units"] * facts["clock"] * _ahead(device) if known_clock else vector / FLOPS_OF_A_CYCLE
    return Card(
        device=device,
        constants=constants,
        dram=rates["dram"],
        l2=facts.get("l2", 0.0),
        units=facts.get("units") or max(1.0, cycles / CLOCK),
        cycles=cycles,
        rates=rates,
        power=facts.get("power"),
        _values=constants.values,
    )
