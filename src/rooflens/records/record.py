"""Case, Record and what they hold: the one form in which every source reports its observations."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeVar

from rooflens.errors import InvalidValue
from rooflens.records.floor import Floor
from rooflens.records.folders import without_folders
from rooflens.records.kv_cache import KvCache
from rooflens.records.operation import Call, HostCalls, Phase
from rooflens.records.scaling import Scaling
from rooflens.records.timing import Timing
from rooflens.records.traced_module import TracedModule
from rooflens.records.work import Work

Scope = Literal["model", "module", "op", "kernel"]
Source = Literal["estimate", "measure", "counters", "profile", "replay"]
Scalar = str | int | float | bool

BOUND = "bound"
"""The stage of a failure where the work is known, and the device has no rate for it."""
FailureKind = Literal["out of memory", "timeout", "crash", "unsupported", "device lost", "error"]

DTYPES = ("default", "fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
AS_IS = "as-is"
"""Element type of a module handed in from Python: whatever its tensors are."""
MODES = ("inference", "train", "prefill", "decode", "generate")
MOST_CALLS = 2**53
"""Beyond this a count is no longer exact in a file."""
_MOST_SIZE = 2**63 - 1
"""The largest size, in samples, elements or bytes, that torch knows."""


def _check_sizes(sizes: Mapping[str, Scalar | None]) -> None:
    """Raise InvalidValue if a whole number is none that a program can have: no float holds it either."""
    for name, size in sizes.items():
        if isinstance(size, int) and abs(size) > _MOST_SIZE:
            raise InvalidValue(f"{name} cannot be a number of {len(str(size))} digits; the most is {_MOST_SIZE}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of a study, and the key by which evidence is joined.

    Attributes:
        model: the name as the user gave it.
        device: canonical device name, or None where the record holds on any device.
        batch: samples that one device reads at a time, or None where the inputs were handed in.
        dtype: one of `DTYPES`, or `AS_IS`.
        mode: one of `MODES`.
        options: further options as sorted (name, value) pairs.
    """

    model: str
    device: str | None = None
    batch: int | None = None
    dtype: str = "fp32"
    mode: str = "inference"
    options: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        for what, value, known in (("dtype", self.dtype, (*DTYPES, AS_IS)), ("mode", self.mode, MODES)):
            if value not in known:
                raise InvalidValue(f"unknown {what} {value!r}; known: {', '.join(known)}")
        if self.batch is not None and self.batch < 1:
            raise InvalidValue(f"batch {self.batch} cannot be a case; it has at least 1 sample")
        _check_sizes({"batch": self.batch, **dict(self.options)})

    @property
    def samples(self) -> int | None:
        """Samples of a step: a batch for each device that trains, and for each micro-batch; None without a batch."""
        options = dict(self.options)
        times = (options.get(name, 1) for name in ("gpus", "accumulation_steps"))
        return None if self.batch is None else self.batch * math.prod(n for n in times if isinstance(n, int))

    def without(self, options: Container[str]) -> Case:
        """Return the case without some of its options."""
        return replace(self, options=tuple(option for option in self.options if option[0] not in options))

    def label(self) -> str:
        """The case as text, for tables, captions and messages."""
        parts = [self.model, f"batch {self.batch}" if self.batch is not None else "", self.dtype, self.mode]
        parts += [short_list(f"{name}={value}") for name, value in self.options]
        parts += [f"on {self.device}" if self.device else ""]
        return " ".join(filter(None, parts))


_WHOLE = 60
"""Characters of a list that is shown whole."""


def short_list(word: str) -> str:
    """Return a list with commas as titles show it: of a long one the first names, and how many more there are.

    >>> short_list("weights_except=lm_head,model.layers.0.mlp.up_proj,model.layers.1.mlp.gate,embed")
    'weights_except=lm_head,model.layers.0.mlp.up_proj,+2'
    """
    names = word.split(",")
    if len(word) <= _WHOLE or len(names) < 3:
        return word
    shown = [n for n in range(1, len(names) - 1) if len(",".join(names[:n])) <= _WHOLE]
    first = max(shown, default=1)
    return ",".join([*names[:first], f"+{len(names) - first}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of memory. None is unknown.

    Attributes:
        peak: bytes allocated at the moment of the peak; the known causes below add up to it. None on a processor,
            where only `monitor` is known.
        activations: kept from forward for backward.
        temporaries: everything that lives shorter than a phase, outputs included.
        workspace: what libraries take beside the tensors (estimated): with it, `peak` is what the device reports.
        reserved: peak bytes that the caching allocator held (measured).
        monitor: what a system monitor shows: all bytes in use on the card; on a processor the peak of resident memory.
        before: what it showed before the model was loaded.
    """

    peak: int | None = None
    parameters: int | None = None
    buffers: int | None = None
    inputs: int | None = None
    activations: int | None = None
    gradients: int | None = None
    optimizer: int | None = None
    kv_cache: int | None = None
    temporaries: int | None = None
    workspace: int | None = None
    reserved: int | None = None
    monitor: int | None = None
    before: int | None = None

    def __post_init__(self) -> None:
        negative = [f.name for f in fields(self) if (getattr(self, f.name) or 0) < 0]
        if negative:
            raise InvalidValue(f"memory cannot be {getattr(self, negative[0])} bytes ({negative[0]})")
        _check_sizes({f"memory ({f.name})": getattr(self, f.name) for f in fields(self)})

    @property
    def with_workspace(self) -> int | None:
        """Bytes that the device reports at the peak: tensors, and what libraries take as far as it is known."""
        return None if self.peak is None else self.peak + (self.workspace or 0)

    @property
    def causes(self) -> dict[str, int | None]:
        """Bytes of each of `MEMORY_CAUSES`; None where they are not known."""
        return {cause: getattr(self, cause) for cause in MEMORY_CAUSES}


MEMORY_CAUSES = ("parameters", "buffers", "inputs", "activations", "gradients", "optimizer", "kv_cache", "temporaries")
WITH_THE_BATCH = ("inputs", "activations", "kv_cache", "temporaries")
"""Causes that grow with the batch; the others do not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The DRAM bytes of one call, by what is moved."""

    weights: float
    inputs: float
    outputs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The state of a machine right before and right after a run, by name, in base units.

    ``clock`` and ``memory clock`` in Hz, ``power`` in W, ``temperature`` in degrees Celsius, ``utilisation`` 0 to 1.
    """

    before: dict[str, Scalar]
    after: dict[str, Scalar]


_DOUBTFUL = re.compile(
    "^(noisy|not steady|partial): |^the card's clock was |^the (card|processor) was busy|^the profile is partial"
    "|which cannot be|contradict each other|did not agree|can be read in two ways|contradicts itself"
)
"""What notes say that tell why a number is to be doubted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One observation of one piece of one case. None means unknown and is never zero.

    Attributes:
        case: the case that was observed.
        source: which kind of evidence this is.
        scope: the size of the piece.
        path: dotted module path; ``""`` is the whole model.
        kind: operation family (convolution, attention ...), "" for a whole.
        name: operation or kernel name, "" for a whole.
        operation: the operation that launched a kernel, "" where it is not known.
        phase: forward, backward or optimizer, of a whole answer prefill or decode; None where the piece spans several.
        tokens: in decode of a whole answer, those in the cache when the step begins.
        work: work of one call.
        kernel_work: what a kernel executes, where that is less: a causal attention call is counted in full.
        floor: what every implementation needs, where the code as written does more, and why it does.
        traffic: the DRAM bytes of one call, weights, inputs and outputs apart.
        timing: seconds of one call.
        call: what was called, with which shapes; None for a whole, and where only a name is known.
        shapes: sizes of the tensors that a profiled call takes; None where they were not recorded, or differ by step.
        calls: how many calls are this same observation; in decode of a whole answer also those of steps around this
            one, whose sum is that of as many calls like this one.
        layouts: a call of each layout and how many there are, where `calls` have several.
        recomputed: the work repeats forward work during backward.
        parameters: parameter elements of a model, shared ones once.
        memory: peak memory of a model.
        kv_cache: what a language model's cache holds after prefill or a decoding step.
        host_calls: views and calls of modules in a model, by module and phase.
        modules: every module of a model, parents first.
        conditions: the state of the machine around a measured run of a model.
        scaling: how a training step on several devices compares with one.
        busy: seconds in which any piece of a profiled model ran, a sample for each step; those at the same time count
            once. Iterating over timings never counts it.
        span: seconds from the start of the first piece on the device to the end of the last, a sample for each step.
        notes: what a reader must know before using the numbers.
    """

    case: Case
    source: Source
    scope: Scope
    path: str = ""
    kind: str = ""
    name: str = ""
    operation: str = ""
    phase: Phase | None = None
    tokens: int | None = None
    work: Work | None = None
    kernel_work: Work | None = None
    floor: Floor | None = None
    traffic: Traffic | None = None
    timing: Timing | None = None
    call: Call | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    calls: int = 1
    layouts: tuple[tuple[Call, int], ...] = ()
    recomputed: bool = False
    parameters: int | None = None
    memory: Memory | None = None
    kv_cache: KvCache | None = None
    host_calls: tuple[HostCalls, ...] | None = None
    modules: tuple[TracedModule, ...] | None = None
    conditions: Conditions | None = None
    scaling: Scaling | None = None
    busy: Timing | None = None
    span: Timing | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.calls <= MOST_CALLS:
            raise InvalidValue(f"a record cannot stand for {self.calls} calls; it stands for 1 to {MOST_CALLS}")
        if self.parameters is not None and self.parameters < 0:
            raise InvalidValue(f"a model cannot have {self.parameters} parameters")
        _check_sizes({"parameters": self.parameters})
        if self.notes:
            object.__setattr__(self, "notes", tuple(map(without_folders, self.notes)))

    @property
    def seconds(self) -> float | None:
        """Median seconds of all calls together; None where they were not timed."""
        return None if self.timing is None else self.timing.median * self.calls

    @property
    def bound_work(self) -> Work | None:
        """What one call needs in every implementation: the bound is that of it."""
        return self.written if self.floor is None else self.floor.work

    @property
    def written(self) -> Work | None:
        """What one call does as the code is written: what its kernel executes."""
        return self.work if self.kernel_work is None else self.kernel_work

    @property
    def doubts(self) -> tuple[str, ...]:
        """The notes that say why its numbers are to be doubted; others say how they were taken."""
        return tuple(filter(_DOUBTFUL.search, self.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that failed. It is data, so that a sweep goes on.

    Attributes:
        case: the cell.
        source: what was being done.
        stage: start, build, place, forward, backward, optimizer ...
        kind: out of memory, timeout, crash, unsupported, device lost or error.
        message: what happened, in one sentence; files are named without their folders.
    """

    case: Case
    source: Source
    stage: str
    kind: FailureKind
    message: str

    @property
    def skipped(self) -> bool:
        """True if nothing went wrong: the device has no rate for the step."""
        return self.stage == BOUND

    @property
    def reason(self) -> str:
        """Why, in few words: what the device lacks, else the kind."""
        return self.message.partition(":")[0] if self.skipped else self.kind

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_folders(self.message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where and how the records of a file were made. No host and no user name.

    Attributes:
        rooflens: version of this package.
        created: UTC time, ISO 8601.
        command: the command line, less what is not known to be harmless.
        versions: package name to version (python, torch, torchvision ...).
        machine: facts about hardware and drivers (cpu, card, driver, threads ...).
        flags: switches that change results (TF32, cudnn benchmark ...).
        commit: revision of the working tree that the user ran in, if it is a git checkout.
    """

    rooflens: str
    created: str
    command: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Scalar] = field(default_factory=dict)
    flags: dict[str, Scalar] = field(default_factory=dict)
    commit: str | None = None

    def common(self, other: Environment) -> Environment | None:
        """Return what both say alike, with the earlier moment; None where they come from different versions.

        Where one used no card of the same machine, what the other tells of it stays.
        """
        if self.rooflens != other.rooflens:
            return None
        machine = _alike(self.machine, other.machine)
        for with_card, without in ((self.machine, other.machine), (other.machine, self.machine)):
            if "card" in with_card and "card" not in without and with_card.get("cpu") == without.get("cpu"):
                machine |= {name: value for name, value in with_card.items() if name not in without}
        return replace(
            self,
            created=min(self.created, other.created),
            command=self.command if self.command == other.command else (),
            versions=_alike(self.versions, other.versions),
            machine=machine,
            flags=_alike(self.flags, other.flags),
            commit=self.commit if self.commit == other.commit else None,
        )


Told = TypeVar("Told")


def _alike(one: Mapping[str, Told], other: Mapping[str, Told]) -> dict[str, Told]:
    return {name: value for name, value in one.items() if other.get(name) == value}
