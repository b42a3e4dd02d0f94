"""Figure: one number that somebody states about a case or a device, typed in or taken from records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rooflens.devices import catalogued_or_none
from rooflens.records import PHASES, Case, Phase, Record
from rooflens.results import Quantity, RecordSet, Total
from rooflens.results.quantities import BOUND, BYTES, INTENSITY, MATMUL_FLOPS

FigureOrigin = Literal["typed", "measure", "counters"]

OF_A_TOTAL: Mapping[str, tuple[Quantity, str]] = {
    "flops": (MATMUL_FLOPS, "matmul FLOP"),
    "counted_flops": (MATMUL_FLOPS, "matmul FLOP"),
    "bytes": (BYTES, "compulsory DRAM bytes"),
    "intensity": (INTENSITY, "FLOP over compulsory DRAM bytes"),
    "time": (BOUND, "bound"),
    "estimated_time": (BOUND, "bound"),
}
"""What an estimate says of a reported quantity, and what a sentence calls that."""
QUANTITIES: Mapping[str, str] = {
    **{name: quantity.unit for name, (quantity, _) in OF_A_TOTAL.items()},
    "read_bytes": "B",
    "memory": "B",
    "allocated_memory": "B",
    "parameters": "",
    "performance": "FLOP/s",
    "peak": "FLOP/s",
    "bandwidth": "B/s",
    "ridge": "FLOP/B",
    "clock": "Hz",
    "time_ratio": "",
    "flop_ratio": "",
    "failure": "",
}
"""Quantities that are understood, with their base units."""
CORRELATION = "correlation"
"""Also understood: ``correlation``, followed by what is correlated."""
OF_A_DEVICE = frozenset({"peak", "bandwidth", "ridge", "clock"})
FOOTPRINTS = ("memory", "allocated_memory")
STEPS: Mapping[str, tuple[Phase, ...]] = {
    "forward": ("forward",),
    "inference": ("forward",),
    "backward": ("backward",),
    "optimizer": ("optimizer",),
    "forward+backward": ("forward", "backward"),
    # Without the optimizer, which nobody states: bounds and FLOP are then never too high.
    "train": ("forward", "backward"),
    "forward+backward+optimizer": PHASES,
    "forward:backward": (),
    "prefill": ("forward",),
    "decode": ("forward",),
}
"""The words for phases; those of `GENERATION` are modes of their own."""
GENERATION = frozenset({"prefill", "decode"})
DeviceAliases = Mapping[str, frozenset[str]]
"""Words for a machine, like ``cpu``, and the devices that they stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFigure:
    """One number about a case or a device, in base units.

    Attributes:
        value: None where the cell is empty: the figure is unknown.
        group: figures of one group (a report, a file) are compared with each other.
        phase: one of `STEPS`, "" where it is not said.
        tokens: of each sequence, those in the cache of a decode step; None where that is not said.
        digits: significant digits in which it was written; None for a number that was not typed.
        precision: the largest relative error that rounding to these digits can have made.
        unit: as it was written.
        how: how it was obtained, in the author's words.
        place: file and line, "" for a record.
        recorded: the case of the records that it was taken from, None for one that was typed in.
    """

    quantity: str
    value: float | None
    group: str = ""
    model: str = ""
    device: str = ""
    batch: int | None = None
    dtype: str = ""
    phase: str = ""
    image: int | None = None
    tokens: int | None = None
    digits: int | None = None
    precision: float = 0.0
    unit: str = ""
    how: str = ""
    place: str = ""
    origin: FigureOrigin = "typed"
    recorded: Case | None = None

    @property
    def lacks_length(self) -> bool:
        """True if it was typed in for a step of a language model, and nobody said of how many tokens."""
        return self.recorded is None and self.mode in GENERATION and self.tokens is None

    @property
    def subject(self) -> str:
        """The figure in words."""
        words = [
            self.model,
            f"batch {self.batch}" if self.batch is not None else "",
            self.dtype,
            self.phase,
            f"on {self.device}" if self.device and self.model else self.device,
        ]
        named = " ".join(filter(None, [*words, self.quantity]))
        return f"{self.place}: {named}" if self.place else named

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that it spans, none where that is not said."""
        return STEPS.get(self.phase, ())

    @property
    def mode(self) -> str:
        """The mode in which its phases occur."""
        return self.phase if self.phase in GENERATION else mode_of(self.phases)

    @property
    def case(self) -> tuple[object, ...]:
        """What two figures share that are about the same run."""
        return (*self.step, self.machine)

    @property
    def step(self) -> tuple[object, ...]:
        """What two figures share that are about the same computation, on whatever device."""
        phases = self.phase if self.phase in GENERATION else self.phases or self.phase
        return (self.group, self.model, self.batch, self.dtype, phases, self.image, self.tokens)

    @property
    def loose_dtype(self) -> str:
        """The dtype that may have run: an author's ``fp32`` may have left torch's switches on."""
        return "default" if self.recorded is None and self.dtype == "fp32" else self.dtype

    @property
    def machine(self) -> str:
        """The device by one name, however it was spelled."""
        known = catalogued_or_none(self.device)
        return self.device if known is None else known.name


@dataclass(frozen=True, slots=True, kw_only=True)
class OurNumber:
    """A number of ours, in the base unit of the figure that it stands beside.

    Attributes:
        of: what it is and of which case, in words.
    """

    value: float
    of: str


def mode_of(phases: Iterable[Phase]) -> str:
    """The mode in which these phases occur."""
    return "inference" if tuple(phases) == ("forward",) else "train"


def recorded(records: RecordSet) -> Iterator[ReportedFigure]:
    """The figures of measured and counted cases: times, FLOP, bytes and memory, of phases and of whole steps."""
    for case, source, part in records.split():
        if source == "counters":
            yield from _counted(case, part)
        for record in part if source == "measure" else ():
            phase = _phase(case, [record], part)
            if record.scope == "model" and record.timing is not None:
                yield _figure(case, "measure", "time", record.timing.median, phase)
            if record.memory is not None and record.memory.peak is not None:
                yield _figure(case, "measure", "allocated_memory", record.memory.peak, phase)


def _counted(case: Case, part: RecordSet) -> Iterator[ReportedFigure]:
    """The totals of what was counted; a total over kernels of which one lacks a number is unknown."""
    pieces = [r for r in part if r.scope != "model"]
    if not pieces:
        return
    total, phase = Total(pieces, None), _phase(case, pieces, part)
    work = total.work
    if work is not None and work.origin == "executed" and all(r.work is not None for r in pieces):
        if not work.missing:
            yield _figure(case, "counters", "counted_flops", work.total_flops, phase)
        if "dram" in work.bytes:
            yield _figure(case, "counters", "bytes", work.bytes["dram"], phase)
    if total.measured_seconds is not None:
        yield _figure(case, "counters", "time", total.measured_seconds, phase)


def _figure(case: Case, origin: FigureOrigin, quantity: str, value: float, phase: str) -> ReportedFigure:
    image, tokens = (dict(case.options).get(name) for name in ("img_size", "seq_len"))
    return ReportedFigure(
        quantity=quantity,
        value=value,
        model=case.model,
        device=case.device or "",
        batch=case.batch,
        dtype=case.dtype,
        phase=phase,
        image=image if isinstance(image, int) else None,
        tokens=tokens if isinstance(tokens, int) else None,
        group=" ".join(f"{name}={value}" for name, value in case.options),
        origin=origin,
        recorded=case,
    )


def _phase(case: Case, records: Iterable[Record], part: RecordSet) -> str:
    """The word for the phases of some records of a part; a record without one spans what the part saw."""
    if case.mode in GENERATION:
        return case.mode
    own = {record.phase for record in records}
    phases = set(part.phases) if own == {None} else own - {None}
    if not phases and case.mode == "inference":
        return "forward"
    spanned = tuple(phase for phase in PHASES if phase in phases)
    return next((word for word, phases in STEPS.items() if phases == spanned and phases), "")
