"""A study: a question, and the grid of cases and sources that answers it. Plain data, whatever file it came from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Literal

from rooflens.records import Case, Scalar, file_name
from rooflens.runs.option import Option
from rooflens.runs.options import OPTIONS as TABLE
from rooflens.runs.run import recorded_name
from rooflens.runs.time_limits import BUDGET, LIMIT

SourceName = Literal["estimate", "measure", "counters", "replay"]
SOURCES: tuple[SourceName, ...] = ("estimate", "measure", "counters", "replay")
"""What can be done with a case, in the order in which a study does it: nothing else runs while something is timed."""
MEASURED = "measured"
"""The word for this machine with ceilings that were measured."""
HERE = ("cpu", "cuda", MEASURED)
"""Words for the machine that runs a cell, where a study names no device of the catalogue."""
_AXES = ("img_size", "seq_len")
OPTIONS: Mapping[str, Option] = {
    name: line for name, line in TABLE.items() if name not in _AXES and line.kind is not dict
}
"""Options that a grid lists; image size and length are axes of their own."""
_LONGEST = 80


def is_open(device: str) -> bool:
    """True if the records of a device may name it otherwise than the study: a word for this machine, or a file."""
    return device in HERE or device.lower().endswith(".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case and what is done with it: the unit of work, of resuming and of distribution.

    Attributes:
        case: as the study names it. The records may say more: the device that ``cuda`` turned out to be, the length of
            a sequence that a model chose itself.
        file: of a replay, the recorded file as the study names it.
    """

    case: Case
    source: SourceName
    file: str | None = None

    @property
    def key(self) -> str:
        """Its name, and that of its record file: some words for people, and a hash of the case and the source.

        It depends on nothing else, so that a study that grows keeps what it has.
        """
        case = self.case
        batch = "" if case.batch is None else f"b{case.batch}"
        model = recorded_name(self.file or case.model, below_here=False)
        device = "" if case.device is None else file_name(case.device, below_here=False)
        names = (self.source, model, batch, case.dtype, case.mode, device)
        words = "-".join(filter(None, (re.sub(r"[^a-z0-9_.]+", "-", name.lower()).strip("-.") for name in names)))
        identity = {f.name: getattr(case, f.name) for f in fields(case)} | {"source": self.source, "file": self.file}
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return f"{words[:_LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def needs(self) -> str | None:
        """The device that this cell must run on, None if any machine will do."""
        if self.source == "replay" or (self.source == "estimate" and self.case.device not in HERE):
            return None
        return self.case.device

    def label(self) -> str:
        """The cell in words."""
        return f"{self.source} {self.file or self.case.label()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the sources work. None of it tells cells apart.

    Attributes:
        budget: seconds of sampling per measured case.
        limits: seconds per case of a source in a worker process; it is killed after that.
        fresh: a new worker process for each measured case.
        roofs: whose ceilings hold for what a source sees: a device, a file beside the study file, or ``measured``.
        cache: of counters: ``all`` empties the caches before each kernel, ``none`` does not.
    """

    budget: float = BUDGET
    limits: Mapping[str, float] = field(
        default_factory=lambda: dict.fromkeys(("estimate", "measure", "counters"), LIMIT)
    )
    fresh: bool = False
    roofs: Mapping[str, str] = field(default_factory=dict)
    cache: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Axes whose product is a set of cells. An empty axis leaves the choice to the model.

    Attributes:
        options: further options of a case, each with its values.
        devices_of: devices of single sources, where these are not `devices`.
    """

    models: tuple[str, ...]
    devices: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ("fp32",)
    modes: tuple[str, ...] = ("inference",)
    seq_lens: tuple[int, ...] = ()
    img_sizes: tuple[int, ...] = ()
    options: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    sources: tuple[SourceName, ...] = ("estimate",)
    devices_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many cells its axes have before any is left out."""
        axes = (self.batches, self.seq_lens, self.img_sizes, *self.options.values())
        devices = sum(len(self.devices_of.get(source, self.devices)) or 1 for source in self.sources)
        return prod((len(self.models), len(self.dtypes), len(self.modes), devices, *(len(axis) or 1 for axis in axes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Cells that are left out: those that meet every condition.

    Attributes:
        conditions: field or option to what it may be: values, patterns (``vgg*``) or comparisons (``>= 512``).
        why: shown wherever the gap shows.
    """

    conditions: Mapping[str, tuple[Scalar, ...]]
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Files that somebody recorded: record files, counters of Nsight Compute, traces.

    Attributes:
        files: patterns, relative to the study file.
        case: fields of their cases, for files that do not name them.
    """

    files: tuple[str, ...]
    case: Mapping[str, Scalar] = field(default_factory=dict)


Relation = Literal["<", "<=", ">", ">=", "="]
Amount = Literal["every", "most", "some"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a claim: a number in base units, or a quantity of the cases that meet the conditions, times a factor.

    Attributes:
        quantity: where it is not the claim's own.
        conditions: fields of the case, options, ``phase`` or ``source``.
    """

    value: float | None = None
    quantity: str | None = None
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    times: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement that records can support or reject: for each pair of cases, ``left relation right``.

    Attributes:
        every: what the claim is made for: a field of the case, or ``case``.
        amount: whether it holds for every one of these, for most (more than half), or for some (at least one).
        margin: by which share the sides must differ (``<``, ``>``), or may (``<=``, ``>=``, ``=``).
        where: which cases the claim is about.
    """

    quantity: str
    left: Side
    relation: Relation
    right: Side
    every: str = "case"
    amount: Amount = "every"
    margin: float = 0.0
    where: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """What somebody expects, in words and as a claim; without a claim it is left to the reader."""

    text: str
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How a Slurm cluster wants its jobs: a ``[cluster.NAME]`` table.

    Attributes:
        time: limit of a job in minutes.
        memory: as ``sbatch --mem`` takes it.
        parallel: most jobs of an array that run at once.
        setup: shell lines before the run, like ``module load cuda``.
        prefix: in front of the interpreter, like ``singularity exec --nv IMAGE``.
        python: the interpreter; default is the one that submits.
        options: further options of sbatch by their long names.
        devices: what differs for a device: its own partition and gres, mostly.
    """

    name: str
    partition: str | None = None
    gres: str | None = None
    account: str | None = None
    time: int | None = None
    cpus: int | None = None
    memory: str | None = None
    parallel: int | None = None
    setup: tuple[str, ...] = ()
    prefix: str = ""
    python: str | None = None
    options: Mapping[str, Scalar] = field(default_factory=dict)
    devices: Mapping[str, Cluster] = field(default_factory=dict)

    def on(self, device: str | None) -> Cluster:
        """The options of jobs that need a device: its own first, then the cluster's."""
        own = self.devices.get(device or "")
        if own is None:
            return self
        empty = Cluster(name=own.name)
        given = {f.name: getattr(own, f.name) for f in fields(own) if getattr(own, f.name) != getattr(empty, f.name)}
        return replace(self, **given | {"options": {**self.options, **own.options}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a study file says.

    Attributes:
        budget: seconds after which a run begins no further cell.
        figures: a CSV of reported figures that stand beside ours, relative to the study file.
    """

    title: str
    question: str = ""
    method: str = ""
    grids: tuple[Grid, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    settings: Settings = field(default_factory=Settings)
    budget: float | None = None
    figures: str | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
