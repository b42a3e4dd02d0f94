"""Fit and Fits: the largest batch, or the longest context, that fits into a device's memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rooflens.devices.reserves import Reserve, needed
from rooflens.errors import AmbiguousResult
from rooflens.notebook import Displayed
from rooflens.records import Case, Device, Memory
from rooflens.results.factors import Time
from rooflens.results.quantity import Quantity
from rooflens.results.recordset import RecordSet
from rooflens.results.totals import Total

CAP = 2**20
"""Larger batches and longer contexts are not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """The most seconds that a time of a token may take; `found`: what it takes at the answer, or at one."""

    quantity: Quantity
    seconds: float
    found: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The largest batch of a step on one device, or its longest context.

    For several devices (``2x t4``), all but `throughput` and `count` is per device: each holds the whole model and a
    batch of its own (data parallel).

    Attributes:
        name: the device as it was asked for.
        device: one device.
        count: number of devices.
        of: what was searched for: `batch`, or `seq_len`, the tokens of a context.
        case: the step on one device, at the largest size, or at 1 if not even that fits.
        size: the largest one: 0 if not even 1 fits, None if unknown.
        positions: the longest context that the model knows by its configuration; None where that is not known.
        in_memory: the size that memory would hold, where positions or a time limit it; else, or if unknown, None.
        capped: larger sizes were not tried, so that `size` is a lower bound of what fits.
        memory: bytes of the device; None if unknown.
        reserves: what must stay free.
        held: peak memory of `case`, by cause; None if it was not searched for.
        total: of `case`; None if nothing fits.
        reason: why the size is 0 or unknown, else "".
        time_limits: what times of a token may take.
        timed_by: the time that keeps them: the expected one, or the bound where none is expected.
        by_bound: the size in memory whose bound keeps them: without overlapping, no engine has a larger one.
        late: the limit that one more would break; None where memory or positions end the search.
    """

    name: str
    device: Device
    count: int = 1
    case: Case
    of: Literal["batch", "seq_len"] = "batch"
    size: int | None = None
    positions: int | None = None
    in_memory: int | None = None
    capped: bool = False
    memory: int | None = None
    reserves: tuple[Reserve, ...] = ()
    held: Memory | None = None
    total: Total | None = None
    reason: str = ""
    time_limits: tuple[TimeLimit, ...] = ()
    timed_by: Time | None = None
    by_bound: int | None = None
    late: TimeLimit | None = None

    @property
    def batch(self) -> int | None:
        """The largest batch, where it was searched for, else that of the step."""
        return self.size if self.of == "batch" else self.case.batch

    @property
    def context(self) -> int | None:
        """The longest context in tokens, where it was searched for."""
        return self.size if self.of == "seq_len" else None

    @property
    def words(self) -> str:
        """What was searched for, in words."""
        return "largest batch" if self.of == "batch" else "longest context"

    @property
    def unit(self) -> str:
        """One of what was searched for."""
        return "sample" if self.of == "batch" else "token"

    @property
    def limited_by(self) -> str | None:
        """What keeps the size from being larger: a limit of time, memory, or the positions; None if unknown."""
        if self.late is not None:
            return self.late.quantity.name
        if self.size is None or (self.capped and self.positions is None):
            return None
        return "positions" if self.capped else "memory"

    @property
    def fits(self) -> bool | None:
        """True if any size fits; None if unknown."""
        return None if self.size is None else self.size > 0

    @property
    def needed(self) -> int | None:
        """Bytes that `case` needs: its peak, workspaces and the reserves."""
        return None if self.memory is None or self.held is None else needed(self.held, self.memory, self.reserves)

    @property
    def reserved(self) -> int | None:
        """Bytes of the reserves."""
        peak = None if self.held is None else self.held.with_workspace
        return None if self.needed is None or peak is None else self.needed - peak

    @property
    def cause(self) -> str | None:
        """The largest cause of the peak."""
        if self.held is None:
            return None
        amounts = self.held.causes
        return max(amounts, key=lambda cause: amounts[cause] or 0)

    @property
    def throughput(self) -> float | None:
        """Samples per second that the bound allows at most, on all devices together."""
        if not self.size or self.case.samples is None or self.total is None or not self.total.seconds:
            return None
        return self.count * self.case.samples / self.total.seconds


class Fits(Displayed):
    """The largest batch or the longest context on each of some devices: a :class:`Fit` for each, in the order asked.

    Attributes:
        answers: the same as a tuple.
        records: the estimates at these batches; devices without one are among its failures.
    """

    def __init__(self, answers: Iterable[Fit], records: RecordSet) -> None:
        self.answers = tuple(answers)
        self.records = records

    def __iter__(self) -> Iterator[Fit]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __repr__(self) -> str:
        shown = ", ".join(f"{fit.name}: {fit.size}" for fit in self.answers[:5])
        return f"Fits({shown}{', ...' if len(self) > 5 else ''})"

    @property
    def batch(self) -> int | None:
        """The batch of the only answer; several are an error that lists their devices."""
        return self._only().batch

    @property
    def context(self) -> int | None:
        """The longest context of the only answer, likewise."""
        return self._only().context

    def _only(self) -> Fit:
        if len(self.answers) != 1:
            names = ", ".join(fit.name for fit in self.answers) or "none"
            raise AmbiguousResult(f"this needs one answer, there are {len(self.answers)} ({names}); go through them")
        return self.answers[0]

    def save(self, path: str | Path) -> Path:
        """Write the record file of the estimates."""
        return self.records.save(path)
