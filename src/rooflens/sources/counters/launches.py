"""One launch of a kernel as a counter file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from rooflens.sources.counters.printed_numbers import CounterNumbers, CounterValue, Deferred


@dataclass(frozen=True, slots=True, eq=False)
class CounterNames:
    """The counters of a launch by name, one object for all launches with the same: what follows from them is kept."""

    all: tuple[str, ...]


@lru_cache(maxsize=4096)
def names_of(names: tuple[str, ...]) -> CounterNames:
    """Return the one object for these names."""
    return CounterNames(names)


@dataclass(slots=True, kw_only=True)
class KernelLaunch:
    """A launch, or a row that stands for several.

    Attributes:
        line: where it begins in its file.
        key: process, number and device: what tells it apart.
        ranges: names of its NVTX ranges, from outside in.
        cc: compute capability, None where the file lacks it.
        values: counters by full name, in base units. None is a counter without a value here; one that is not there was
            not collected.
        facts: what the file says of device and run, by name.
        calls: how many launches the values are the mean of.
        waits: whether a value can still be read in two ways.
    """

    line: int
    key: tuple[str, ...]
    name: str
    device: str = ""
    cc: str | None = None
    ranges: tuple[str, ...] = ()
    values: dict[str, CounterValue | Deferred] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    calls: int = 1
    waits: bool = False
    _names: CounterNames | None = None

    @property
    def names(self) -> CounterNames:
        """The names of its counters."""
        if self._names is None:
            self._names = names_of(tuple(self.values))
        return self._names

    @property
    def counters(self) -> Mapping[str, CounterValue]:
        """The values of a settled launch."""
        return cast("Mapping[str, CounterValue]", self.values)

    def take(self, names: CounterNames, values: dict[str, CounterValue | Deferred]) -> None:
        """Have these values and no others."""
        self.values, self._names = values, names

    def add(self, name: str, value: CounterValue | Deferred) -> bool:
        """Have one more value; False if there is another one of this name."""
        self._names = None
        self.waits |= isinstance(value, Deferred)
        return self.values.setdefault(name, value) == value

    def settled(self, numbers: CounterNumbers) -> KernelLaunch:
        """Decide every number."""
        for name, value in self.values.items():
            if isinstance(value, Deferred):
                self.values[name] = numbers.settle(value, name)
        self.waits = False
        return self
