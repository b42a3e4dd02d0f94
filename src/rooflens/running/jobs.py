"""What a worker is asked, and what it answers: one line of JSON each. Results travel as files."""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflens.records import Device
from rooflens.runs.run import Run

JobKind = Literal["estimate", "measure", "profile", "rank"]
"""What the jobs of a worker are."""


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A line between a worker and its caller."""


class Start(Message, frozen=True, kw_only=True):
    """The first line to a worker.

    Attributes:
        command: the command line that its records name.
        where: torch's device type, where anything is run.
    """

    kind: JobKind
    command: tuple[str, ...] = ()
    where: str = "cpu"


class Estimate(Message, frozen=True, kw_only=True):
    """Estimate a run on devices, in one trace; without devices, work and memory only."""

    run: Run
    devices: tuple[Device, ...]
    out: str


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
    """Run a step under torch's profiler; its trace is kept too."""

    run: Run
    device: str
    trace: str
    out: str


class Count(Message, frozen=True, kw_only=True):
    """Run a step between the marks of Nsight Compute: the one job of a process that ncu started."""

    run: Run


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


Job = Estimate | Measure | Profile | Count | Rank


class Ready(Message, frozen=True, kw_only=True):
    """The worker can be given jobs."""


class StageEntered(Message, frozen=True, kw_only=True):
    """What the worker does from now on."""

    name: str


class Share(Message, frozen=True, kw_only=True):
    """How much of a job is done, 0 to 1."""

    done: float


class Refused(Message, frozen=True, kw_only=True):
    """A job that rooflens refused, before :class:`Done`.

    Attributes:
        by_model: what the model raised, and not what it was asked.
    """

    message: str
    by_model: bool


class Done(Message, frozen=True, kw_only=True):
    """The job is over.

    Attributes:
        fit: the worker can be given another.
    """

    fit: bool


Answer = Ready | StageEntered | Share | Refused | Done
