"""Activations that are brought to codes before a product: their scale is found, they are scaled, rounded and cast.

Each of these passes can be part of what makes the activations or of the product that reads them, so it moves nothing of
its own, and the product reads the activations. Their FLOP stay.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rooflens.records import Access, Operation

CODES = frozenset(("int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
_STEPS = frozenset(
    (
        *("abs", "amax", "amin", "aminmax", "max", "min", "minimum", "maximum", "zeros_like", "full_like", "ones_like"),
        *("_to_copy", "clone", "clamp", "clamp_min", "clamp_max", "round", "reciprocal", "neg", "mul", "div", "add"),
        *("sub", "copy_", "where", "isnan", "bitwise_and", "exp2", "log2", "floor", "ceil"),
    )
)


@dataclass(frozen=True, slots=True)
class Recoded:
    """A value that follows from one other alone by steps that bring it to codes.

    Attributes:
        root: what it follows from.
        steps: indices of the operations between them.
        coded: it has been codes.
    """

    root: Access
    steps: frozenset[int]
    coded: bool


@dataclass(slots=True)
class CodedActivations:
    """Follows values to the products that read them as codes."""

    known: dict[int, Recoded] = field(default_factory=dict)

    def of(self, access: Access) -> Recoded | None:
        """What a value follows from, if it is or was codes."""
        found = self.known.get(access.block)
        return found if found is not None and found.coded else None

    def scale_of(self, access: Access, roots: frozenset[int]) -> bool:
        """True if a value follows from one of these alone, as the scale of its codes does."""
        found = self.known.get(access.block)
        return found is not None and found.root.block in roots

    def follow(self, index: int, operation: Operation, stored: Collection[int]) -> None:
        """Take an operation down; a number that is `stored` beside a value does not matter."""
        made = self._made(index, operation, stored) if operation.call.name.removesuffix("_") in _STEPS else None
        for access in operation.writes:
            self.known.pop(access.block, None)
            if made is not None:
                self.known[access.block] = made

    def _made(self, index: int, operation: Operation, stored: Collection[int]) -> Recoded | None:
        reads = [access for access in operation.reads if access.elements > 1 or access.block not in stored]
        parts = [self.known.get(access.block) for access in reads]
        roots = {
            (access.block if part is None else part.root.block): (access if part is None else part.root)
            for access, part in zip(reads, parts, strict=True)
        }
        if len(roots) != 1:
            return None
        known = [part for part in parts if part is not None]
        coded = any(part.coded for part in known) or any(out.dtype in CODES for out in operation.call.outputs)
        return Recoded(next(iter(roots.values())), frozenset({index}).union(*(part.steps for part in known)), coded)
