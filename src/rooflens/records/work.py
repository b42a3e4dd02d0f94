"""Work: a vector of demands on the units and levels of a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rooflens.errors import InvalidValue

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4")
UNITS = ("matmul", "vector", "special")
LEVELS = ("dram", "l2", "l1")
LINKS = ("nvlink", "pcie", "network")

COMPUTE_RESOURCES = frozenset(f"{unit}.{precision}" for unit in UNITS for precision in PRECISIONS)
DATA_RESOURCES = frozenset(LEVELS + LINKS)

Origin = Literal["algorithmic", "executed", "stated"]
"""Where work comes from: a formula, hardware counters, or figures that the user stated. Origins are never added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an operation asks of a device.

    Attributes:
        flops: FLOP per compute resource, like ``{"matmul.fp32": 2 * m * n * k}``. One multiply-add is 2 FLOP. A
            resource that is not named is not used.
        bytes: bytes per level, like ``{"dram": 4096}``. A level that is not named was *not counted*: it is unknown.
        origin: how the numbers were obtained.
        missing: names of the operations in this work whose FLOP are unknown. With any, a total is a lower bound.
    """

    flops: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[str, float] = field(default_factory=dict)
    origin: Origin = "algorithmic"
    missing: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for amounts, known, unit, what in (
            (self.flops, COMPUTE_RESOURCES, "FLOP", "compute resource"),
            (self.bytes, DATA_RESOURCES, "bytes", "level"),
        ):
            for resource, n in amounts.items():
                if resource not in known:
                    raise InvalidValue(f"unknown {what} {resource!r}; known: {', '.join(sorted(known))}")
                if not 0 <= n < math.inf:
                    raise InvalidValue(f"work cannot have {n} {unit} of {resource!r}; leave out what is unknown")

    def __hash__(self) -> int:
        return hash((frozenset(self.flops.items()), frozenset(self.bytes.items())))

    def __add__(self, other: Work) -> Work:
        """Unite the units, intersect the levels: a level that one side did not count has no total."""
        return Work.of_calls([(self, 1), (other, 1)]) or self

    def __mul__(self, times: int) -> Work:
        """Return the same work, `times` times."""
        return Work.of_calls([(self, times)]) or self

    __rmul__ = __mul__

    @staticmethod
    def sum(parts: Iterable[Work]) -> Work | None:
        """Return the sum of `parts`; None if there are none, since no work seen is not the same as no work done."""
        return Work.of_calls((part, 1) for part in parts)

    @staticmethod
    def of_calls(parts: Iterable[tuple[Work, int]]) -> Work | None:
        """Return the sum of the works of some calls, each with how often it was called; None if there are none.

        InvalidValue if they are of different origins.
        """
        items = list(parts)  # summed in one go: a total over many operations makes no work in between
        if not items:
            return None
        origins = dict.fromkeys(work.origin for work, _ in items)
        if len(origins) > 1:
            raise InvalidValue(f"cannot add {' work to '.join(origins)} work: they are different quantities")
        levels = [level for level in items[0][0].bytes if all(level in work.bytes for work, _ in items)]
        flops: dict[str, float] = {}
        for work, times in items:
            for resource, n in work.flops.items():
                flops[resource] = flops.get(resource, 0) + n * times
        return Work(
            flops=flops,
            bytes={level: sum(work.bytes[level] * times for work, times in items) for level in levels},
            origin=items[0][0].origin,
            missing=frozenset().union(*(work.missing for work, _ in items)),
        )

    @property
    def matmul_flops(self) -> float:
        """FLOP of products, convolutions, attention and recurrent gates: what MFU and most counters mean."""
        return sum(n for resource, n in self.flops.items() if resource.startswith("matmul."))

    @property
    def total_flops(self) -> float:
        """All FLOP: matrix work, element-wise work and special functions."""
        return sum(self.flops.values())


def united(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return FLOP by resource, added up: a resource that one part does not name is not used there."""
    total: dict[str, float] = {}
    for part in parts:
        for resource, n in part.items():
            total[resource] = total.get(resource, 0) + n
    return total
