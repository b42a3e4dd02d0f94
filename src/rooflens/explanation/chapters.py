"""What an explanation consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rooflens.costs import Calculation, arithmetic_of, calculate
from rooflens.predict import Form
from rooflens.records import Bound, Call, Device, Floor, KvCache, Phase, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """The expected time of one call on one device, and what it was made of.

    Attributes:
        calls: how many are made in this layout.
        seconds: with the ends of its band, `low` and `high`, which is None where FLOP are unknown: it is that of bytes.
        level: how the constants are known; `generation`: of the devices that they were read off.
        form: the effect, and the terms of its seconds; None of a call that takes no time.
        constants: those that made the seconds, by name; `sources`: where each of them comes from.
    """

    device: Device
    calls: int
    seconds: float
    low: float
    high: float | None
    level: str
    generation: str
    form: Form | None
    constants: Mapping[str, float]
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One operation: how its formula gives its work, and how long that takes.

    Attributes:
        calculation: call, words, and the arithmetic of FLOP and bytes.
        path: the module that makes the call; None for an operation with shapes.
        phase: forward, backward or optimizer.
        calls: how often the same call is made there.
        work: what counts: the calculation's, unless the record holds something else (then a note says so).
        kernel_work: what a kernel needs for it, where that is less.
        floor: what every implementation needs, where the code as written does more.
        devices: where a time is asked for.
        expected: the expected time of a call there, in each of its layouts.
        notes: what a reader must know.
    """

    calculation: Calculation
    path: str | None = None
    phase: Phase = "forward"
    calls: int = 1
    work: Work
    kernel_work: Work | None = None
    floor: Floor | None = None
    devices: tuple[Device, ...] = ()
    expected: tuple[ExpectedCall, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def executed(self) -> Work:
        """The work that the bound takes."""
        return self.floor.work if self.floor is not None else self.kernel_work or self.work


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """How a training step uses a device.

    Attributes:
        flops: matrix FLOP of the model by unit; `repeated`: those that checkpointing runs again.
        bound: seconds; None where FLOP of some operation are unknown.
        measured: seconds; None where nothing was measured.
    """

    device: Device
    flops: Mapping[str, float]
    repeated: Mapping[str, float]
    bound: float | None
    measured: float | None = None

    def seconds(self, flops: Mapping[str, float]) -> float:
        """Return the time that FLOP take at the peaks of their units."""
        return sum(n / self.device.require(unit).rate for unit, n in flops.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAnswer:
    """What people ask of a step, and how the number comes about.

    Attributes:
        name: its name in JSON.
        unit: of its value; empty for a rate or a price.
    """

    name: str
    title: str
    formula: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersOnDevice:
    """What people ask of a step or of a whole answer, on one device.

    Attributes:
        measured: its times are measured, and not bounds.
        steps: of a whole answer: tokens in the cache of a step of decode, how many steps it stands for, its bound.
    """

    device: str
    measured: bool
    formulas: tuple[ExplainedAnswer, ...]
    steps: tuple[tuple[int, int, float | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedOnDevice:
    """The expected time of a step, or of a part of it, on one device, and what it consists of.

    Attributes:
        seconds: with the ends of its band, `low` and `high`.
        waits_for: the regime of a step; of a part `pieces`.
        families: seconds on the device by family of operations; `busy` is all of them together.
        host: seconds in which the host launches them; None where it has no part.
    """

    device: str
    seconds: float
    low: float
    high: float
    waits_for: str
    families: Mapping[str, float]
    busy: float
    host: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedPart:
    """Some operations of a step, added up: calls, FLOP, DRAM bytes and the seconds of their bounds."""

    name: str
    calls: int
    flops: float | None
    bytes: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSum:
    """The operations of a step, or of a part of it, added up.

    Attributes:
        device: where, with `seconds` and `bound_by` of the bound; None where none is named.
        work: all that the bound counts.
        families: the operations by family; `modules`: by the modules in the part, the longest first.
        whole: the bound of `work` as if it were one operation.
    """

    device: Device | None
    work: Work
    families: tuple[SummedPart, ...]
    modules: tuple[SummedPart, ...]
    seconds: float | None
    bound_by: str
    whole: Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The operations of one case; `title` is empty for an operation with shapes.

    Attributes:
        sums: of many operations, on each device.
        expected: of all its operations, on each device.
        kv_cache, utilisations, answers: of a whole model: its cache, how a training step uses each device, and what
            people ask of it.
    """

    title: str
    operations: tuple[Explained, ...]
    sums: tuple[ExplainedSum, ...] = ()
    expected: tuple[ExpectedOnDevice, ...] = ()
    kv_cache: KvCache | None = None
    utilisations: tuple[Utilisation, ...] = ()
    answers: tuple[AnswersOnDevice, ...] = ()


def calculations(call: Call, dtype: str, devices: Sequence[Device]) -> Iterator[tuple[Calculation, tuple[Device, ...]]]:
    """How a call is computed, and where: under some dtypes a device with TF32 takes another unit than one without."""
    by_units: dict[frozenset[str], tuple[Calculation, list[Device]]] = {}
    for device in devices or (None,):
        calculation = calculate(call, arithmetic_of(dtype, device))
        _, at = by_units.setdefault(frozenset(calculation.cost.work.flops), (calculation, []))
        at += [] if device is None else [device]
    for calculation, at in by_units.values():
        yield calculation, tuple(at)
