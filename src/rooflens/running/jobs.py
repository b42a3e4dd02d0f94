"""What a worker is asked, and what it answers: one line of JSON each. Results travel as files."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from rooflens.errors import LONGEST_MESSAGE, RooflensError, as_told, cut
from rooflens.machine import FoundDevice
from rooflens.records import Device
from rooflens.running.process import ANYWHERE
from rooflens.runs.run import Place, Request, Run

ROOM = 0.9
"""Share of a card's free memory that processes may take together."""
JobKind = Literal["estimate", "measure", "profile", "rank"]
"""What the jobs of a worker are."""


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A line between a worker and its caller."""


class Start(Message, frozen=True, kw_only=True):
    """The first line to a worker.

    Attributes:
        command: the command line that its records name.
        where: torch's device type, where anything is run; `ANYWHERE` lets torch choose.
        beside: workers that share the memory of this machine, with this one.
    """

    kind: JobKind
    command: tuple[str, ...] = ()
    where: str = "cpu"
    beside: int = 1


def place_of(start: Start) -> str | None:
    """Torch's device type, or None where torch chooses."""
    return None if start.where == ANYWHERE else start.where


class FindDevice(Message, frozen=True, kw_only=True):
    """Say which device the worker runs on."""


class ReadModel(Message, frozen=True, kw_only=True):
    """Look up the model that a request names, and say what it asks to run."""

    asked: Request


class Estimate(Message, frozen=True, kw_only=True):
    """Estimate a run on devices, in one trace; without devices, work and memory only.

    Attributes:
        place: where a function of the user's is called.
    """

    run: Run
    devices: tuple[Device, ...]
    out: str
    place: Place = "meta"


class Measure(Message, frozen=True, kw_only=True):
    """Time a run.

    Attributes:
        device: the name of the worker's device in cases.
        budget: seconds of sampling; None only asks whether the run fits.
    """

    run: Run
    device: str
    budget: float | None
    out: str


class Profile(Message, frozen=True, kw_only=True):
    """Run a step under torch's profiler; its trace is kept too.

    Attributes:
        free: the file whose coming says that nobody else works on the card, once :class:`Warmed` was told.
        launches: where to write the kernels by the calls that launched them, for :class:`Count`.
    """

    run: Run
    device: str
    free: str
    trace: str
    out: str
    launches: str


class Count(Message, frozen=True, kw_only=True):
    """Run a step between the marks of Nsight Compute: the one job of a process that ncu started.

    Attributes:
        loaded: the file that it writes once torch's libraries are loaded on the card.
        build: the file whose coming says that the card is free for the step.
        warm: the file that it writes once the step was run as often as it is before it is counted.
        rounds: the file that will say what is counted in each run of the step; all of one run if nothing.
    """

    run: Run
    loaded: str
    build: str
    warm: str
    rounds: str


class Rank(Message, frozen=True, kw_only=True):
    """Be one of several devices that train together.

    Attributes:
        folder: where they meet, and put their results.
    """

    run: Run
    device: str
    budget: float
    rank: int
    folder: str


Job = FindDevice | ReadModel | Estimate | Measure | Profile | Count | Rank


class Ready(Message, frozen=True, kw_only=True):
    """The worker can be given jobs."""


class StageEntered(Message, frozen=True, kw_only=True):
    """What the worker does from now on."""

    name: str


class PartEntered(Message, frozen=True, kw_only=True):
    """What the worker's wall time goes to from now on.

    Attributes:
        at: when it began, by the clock of :func:`time.monotonic`, which all processes of a machine share.
    """

    name: str
    at: float = msgspec.field(default_factory=time.monotonic)


class Warmed(Message, frozen=True, kw_only=True):
    """The step was run as often as it is before it is profiled; the worker waits for the card."""


class Profiled(Message, frozen=True, kw_only=True):
    """The run whose times count is over, and one follows.

    Attributes:
        held: the most bytes of the card that the step takes.
        beside: bytes that the driver takes for this process and for others.
        free: bytes of the card that nobody holds.
    """

    held: int
    beside: int
    free: int

    def has_room_for(self, others: int) -> bool:
        """True if so many other processes, which have loaded their libraries, can build the step too."""
        each = self.held + self.beside / (others + 1)
        return 0 < others * each < ROOM * self.free


class Share(Message, frozen=True, kw_only=True):
    """How much of a job is done, 0 to 1."""

    done: float


class DeviceFound(Message, frozen=True, kw_only=True):
    """The device that the worker runs on, before :class:`Done`."""

    found: FoundDevice


class ModelRead(Message, frozen=True, kw_only=True):
    """What a request asks to run, checked, before :class:`Done`."""

    runs: tuple[Run, ...]


class Refused(Message, frozen=True, kw_only=True):
    """The error that a job came to, before :class:`Done`; or instead of :class:`Ready`, and the worker ends.

    Attributes:
        kind: the name of its class, one of :mod:`rooflens.errors`.
    """

    kind: str
    message: str
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: RooflensError) -> Refused:
        """Return an error as a message."""
        known = next(each for each in type(error).__mro__ if each.__module__ == RooflensError.__module__)
        notes = tuple(getattr(error, "__notes__", ()))
        return cls(kind=known.__name__, message=cut(str(error), LONGEST_MESSAGE), notes=notes)

    @property
    def error(self) -> RooflensError:
        """The error, to be raised here."""
        return as_told(self.kind, self.message, self.notes)


class CallElsewhere(Message, frozen=True, kw_only=True):
    """The function of the user's has to be called at another place, by a new worker, before :class:`Done`."""

    place: Place


class Done(Message, frozen=True, kw_only=True):
    """The job is over.

    Attributes:
        fit: the worker can be given another.
    """

    fit: bool


Answer = (
    Ready
    | StageEntered
    | PartEntered
    | Warmed
    | Profiled
    | Share
    | DeviceFound
    | ModelRead
    | CallElsewhere
    | Refused
    | Done
)
