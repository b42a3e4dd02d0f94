"""What to do with the iterations of a loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rooflens.errors import InvalidValue
from rooflens.machine import roof_of, this_machine
from rooflens.records import Case, Device, check_writable

SKIP, ITERATIONS = 10, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The arguments of :func:`rooflens.region`; None is the default.

    Attributes:
        counts: count the work of one more iteration.
    """

    name: str
    skip: int | None = None
    iterations: int | None = None
    batch: int | None = None
    mode: str | None = None
    dtype: str
    device: str | None = None
    roof: str | Device | None = None
    save: str | Path | None = None
    show: bool = False
    counts: bool = False

    def checked(self) -> Plan:
        """The same plan with its roof looked up.

        Raises:
            InvalidValue: an argument cannot be used.
            UnknownDevice: `roof` names no device.
            OutputError: `save` cannot be written.
        """
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidValue(f"a region cannot be called {self.name!r}; give it a name, like 'train step'")
        roof = None if self.roof is None else roof_of(self.roof)
        for name, least in (("skip", 0), ("iterations", 1), ("batch", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InvalidValue(f"{name} is {value!r}; it has to be a whole number of at least {least}")
        Case(model=self.name, batch=self.batch, dtype=self.dtype, mode=self.mode or "train")  # which checks its words
        if self.device is not None:
            this_machine(self.device)
        if self.save is not None:
            check_writable(Path(self.save))
        return replace(self, roof=roof)

    @property
    def skipped(self) -> int:
        """Iterations before the first one that is timed."""
        return SKIP if self.skip is None else self.skip

    @property
    def wanted(self) -> int:
        """Iterations to time."""
        return ITERATIONS if self.iterations is None else self.iterations

    @property
    def only_alone(self) -> tuple[str, ...]:
        """The arguments given that only a region with iterations of its own can have."""
        plain = Plan(name=self.name, dtype=self.dtype)
        names = ("skip", "iterations", "batch", "save", "show")
        return tuple(name for name in names if getattr(self, name) != getattr(plain, name))
