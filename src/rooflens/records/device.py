"""Device and Ceiling: a vector of rates over the same names as work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from rooflens.errors import InvalidValue, MissingCeiling
from rooflens.notebook import Displayed
from rooflens.records.work import COMPUTE_RESOURCES

CeilingOrigin = Literal["datasheet", "derived", "measured", "user"]
LEAST_RATE, MOST_RATE = 1.0, 1e30
Silicon = Literal["tensor", "fma", "special", "memory", "link"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The highest rate of one resource.

    Attributes:
        resource: ``matmul.bf16``, ``vector.fp32``, ``dram``, ``nvlink`` ...
        rate: FLOP/s or B/s; dense, per torch device.
        silicon: the hardware that provides it. Times on one silicon add, different silicon overlaps.
        origin: how the rate is known.
        reference: the document, rule or run that it comes from.
        verified: False where the source was not checked.
        accumulate: type in which products are summed, where it matters.
    """

    resource: str
    rate: float
    silicon: Silicon
    origin: CeilingOrigin
    reference: str
    verified: bool = True
    accumulate: str | None = None

    @property
    def computes(self) -> bool:
        """True for a compute unit (FLOP/s), False for a level or a link (B/s)."""
        return self.resource in COMPUTE_RESOURCES

    def __post_init__(self) -> None:
        if not LEAST_RATE <= self.rate <= MOST_RATE:
            raise InvalidValue(
                f"ceiling {self.resource!r} has rate {self.rate}, and hardware has {LEAST_RATE:g} to {MOST_RATE:g} a"
                " second; leave out a rate that is not known"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A number of a device that is not a rate: memory, clock, power ... in base units."""

    value: float
    origin: CeilingOrigin = "datasheet"
    reference: str = ""
    verified: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Displayed):
    """A device, or several equal ones (`count`), and its ceilings.

    Attributes:
        name: canonical name, a slug like ``a100-sxm4-40gb``; ``2x a100-sxm4-40gb`` for two of them.
        title: the name as its maker writes it.
        kind: gpu, cpu, tpu, soc or accelerator.
        facts: memory (bytes), clock (Hz), power (W), l2 (bytes), units (count), year.
        constants: of predictions, by name, where a suite has measured them on the device.
    """

    name: str
    title: str
    vendor: str
    kind: str
    arch: str
    ceilings: tuple[Ceiling, ...]
    facts: dict[str, Fact]
    aliases: tuple[str, ...] = ()
    notes: str = ""
    count: int = 1
    constants: dict[str, float] = field(default_factory=dict)

    def ceiling(self, resource: str) -> Ceiling | None:
        """The ceiling of `resource`, or None."""
        return next((c for c in self.ceilings if c.resource == resource), None)

    def ridge(self, resource: str, level: str = "dram") -> float | None:
        """FLOP per byte of a level at which a compute unit begins to bind; None where the device lacks either.

        >>> import rooflens as rl
        >>> round(rl.device("a100-sxm4-40gb").ridge("matmul.bf16"), 1)
        200.6
        """
        compute, memory = self.ceiling(resource), self.ceiling(level)
        if compute is None or memory is None or not compute.computes or memory.computes:
            return None
        return compute.rate / memory.rate

    def require(self, resource: str) -> Ceiling:
        """The ceiling of `resource`; MissingCeiling names those that the device has."""
        ceiling = self.ceiling(resource)
        if ceiling is None:
            has = ", ".join(c.resource for c in self.ceilings) or "none"
            raise MissingCeiling(
                f"no {resource.rpartition('.')[2]}: device {self.name!r} has no ceiling for {resource!r}; it has {has}."
                " Choose another dtype, or give a device file that has one"
            )
        return ceiling

    def joined(self, other: Device) -> Device:
        """Return the device with the facts of both: a later version of the catalogue knows more of it.

        Raises:
            InvalidValue: they disagree.
        """
        facts = self.facts | other.facts
        disagree = any(other.facts.get(key, fact) != fact for key, fact in self.facts.items())
        both = replace(self, facts=facts)
        if disagree or both != replace(other, facts=facts):
            raise InvalidValue(
                f"the sets hold two devices called {self.name!r} with different rates (measured twice, or from two"
                " files); look at them one by one, or measure both with one device file (roof=)"
            )
        return both
