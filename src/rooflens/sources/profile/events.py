"""What a profiler saw, whoever it was: host operations, launches, device activities and named ranges.

All times are in seconds since the first event. A thread is a small number of our own that tells threads of all
processes apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ActivityKind = Literal["kernel", "memcpy", "memset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """A stretch of time on a thread of the host."""

    name: str
    start: float
    seconds: float
    thread: int

    @property
    def end(self) -> float:
        """Seconds, as its start."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOperation(HostEvent):
    """A call that the host made: an ATen operation, a step of the autograd engine, a custom function.

    Attributes:
        identity: number by which device activities name the operation that launched them ("External id").
        sequence: autograd sequence number: of the node that it may create, or of the node that it runs.
        backward: whether it runs a node of the autograd graph.
        forward_thread: the thread that created the node that it runs, None where that is not known.
        shapes: sizes of the inputs that have a size, those in lists too; None where they were not recorded.
    """

    identity: int | None = None
    sequence: int | None = None
    backward: bool = False
    forward_thread: int | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCall(HostEvent):
    """A call of the driver or runtime; `correlation` is the number that it shares with what it started."""

    correlation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRange(HostEvent):
    """A stretch of host time that somebody named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActivity:
    """A kernel, copy or fill on a device.

    Attributes:
        correlation: number of the launch, None where the profiler gives none.
        identity: number of the operation that launched it, None where the profiler gives none.
        process: the process whose stream it is, None where the file holds one only.
        shape: blocks of the grid and threads of a block in three dimensions each, () where the file lacks them.
    """

    name: str
    kind: ActivityKind
    start: float
    seconds: float
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    identity: int | None = None
    process: int | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Everything that a profiler saw, in the order of its file; `notes` say what of it could not be taken."""

    operations: tuple[HostOperation, ...] = ()
    launches: tuple[LaunchCall, ...] = ()
    ranges: tuple[NamedRange, ...] = ()
    activities: tuple[DeviceActivity, ...] = ()
    notes: tuple[str, ...] = ()
