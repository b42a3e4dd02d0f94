"""The header of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rooflens.sources.counters.launches import KernelLaunch

RANGES = ("thread Domain:Push/Pop_Range", "Id:Domain:Start/Stop_Range")
IDENTITY = ("Process ID", "ID", "Device", "Kernel Name", "CC")


class Header:
    """Where the columns of a table are."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.size = len(self.names)
        self._places = {name: i for i, name in enumerate(self.names)}
        self._identity = [self._places.get(name) for name in IDENTITY]
        self._ranges = [i for i, name in enumerate(self.names) if name.startswith(RANGES)]

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str) -> int:
        return self._places[name]

    def get(self, row: Sequence[str], name: str) -> str:
        """Return a field by the name of its column, "" where there is none."""
        i = self._places.get(name)
        return "" if i is None or i >= len(row) else row[i]

    def longest(self, beginnings: tuple[str, ...]) -> slice:
        """Return the longest run of columns whose names begin in one of these ways."""
        runs = groupby(range(self.size), lambda i: self.names[i].startswith(beginnings))
        places = max((list(run) for begins, run in runs if begins), key=len, default=[])
        return slice(places[0], places[-1] + 1) if places else slice(self.size, self.size)

    def launch(self, row: Sequence[str], line: int, key: tuple[str, ...] | None = None) -> KernelLaunch:
        """Return the launch of a row without its counters; its `key` is process, number and device."""
        size = len(row)
        cells = ["" if i is None or i >= size else row[i] for i in self._identity]
        process, number, device, name, cc = cells
        return KernelLaunch(
            line=line,
            key=key or (process, number, device),
            name=name,
            device=device,
            cc=cc or None,
            ranges="  ".join([row[i] for i in self._ranges if i < size and row[i].strip()]),
        )
