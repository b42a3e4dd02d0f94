"""What arithmetic says of a step: the right values beside which stated, counted and measured figures are held.

They come from the estimates that a caller hands over, and for torchvision's classification models at their own image
size from a packaged table (``scripts/right_values.py`` writes it), so that a check needs no torch.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from rooflens.records import AS_IS, Bound, Case, Device, Phase, Work
from rooflens.reported.fast_convolutions import fewest_flops
from rooflens.reported.figures import GENERATION, ReportedFigure, mode_of
from rooflens.results import RecordSet, Total
from rooflens.runs.options import COUNTING, RUNNING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

AMOUNTS = ("matmul", "flops", "bytes", "weights", "operations")
"""The amounts of a phase in the table, each ``fixed + per_sample * batch``."""
COLUMNS = (
    "model",
    "image",
    "parameters",
    "mode",
    "phase",
    *(f"{amount}_{part}" for amount in AMOUNTS for part in ("fixed", "per_sample")),
    "fewest_share",
)
TABLE: Traversable = files("rooflens.reported") / "right_values.csv"
CHANNELS = 3
FEWEST_TOKENS = 1
HALF = frozenset({"fp16", "bf16"})
"""Element types of two bytes; autocast keeps weights of four."""
_IN_FP32 = frozenset({"matmul.fp32", "matmul.tf32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What arithmetic says of a step. None is unknown.

    Attributes:
        matmul: FLOP of the matrix work.
        fewest: those if fast algorithms do every convolution that they can do.
        flops: all FLOP.
        nbytes: compulsory DRAM bytes: those of every operation on its own, added up.
        weights: bytes of the weights that the step reads.
        inputs: bytes of its inputs.
        operations: operations that do work; each is at least one kernel in eager mode.
        parts: work, and how often it is done; their bounds add up to the bound of the step.
        exact: the parts name the precision in which each product runs.
    """

    matmul: float | None
    fewest: float | None
    flops: float | None
    nbytes: float | None
    weights: float | None
    inputs: float | None
    operations: int
    parameters: int | None
    parts: tuple[tuple[Work, int], ...] = field(default=(), repr=False)
    exact: bool = False

    def bound(self, device: Device, precision: str, bound: Callable[[Work, Device], Bound]) -> float | None:
        """Seconds of the bound on a device; None where the device has no rate for the matrix work.

        Args:
            precision: in which products run, where the parts do not name it, or the device has no rate for it.
            bound: gives the bound of a part.
        """
        has_rate = frozenset(c.resource for c in device.ceilings)
        of_case = has_rate if self.exact else has_rate - _IN_FP32
        works = [(_in(work, precision, of_case), calls) for work, calls in self.parts]
        if any(unit not in has_rate for work, _ in works for unit in work.flops if unit.startswith("matmul.")):
            return None
        return sum(bound(work, device).seconds * calls for work, calls in works)

    @property
    def compulsory(self) -> float | None:
        """Bytes that a step must read at least: weights and inputs, once."""
        return None if self.weights is None or self.inputs is None else self.weights + self.inputs


def precision_of(dtype: str, device: Device) -> str | None:
    """The quickest precision in which a device may run the products of a case's dtype.

    Where fp16 is slower than fp32 (Pascal but for the P100), libraries compute in fp32. Of a dtype without a rate (bf16
    on a T4) nobody knows how it ran: in no other precision quicker than in the quickest of all.
    """
    either, half = ("tf32", "fp32"), ("fp16", "fp32")
    several = {"default": either, AS_IS: either, "": either, "fp16": half, "amp-fp16": half}
    possible = several.get(dtype, (dtype.removeprefix("amp-"),))
    every = {c.resource.partition(".")[2]: c.rate for c in device.ceilings if c.resource.startswith("matmul.")}
    rates = {p: every[p] for p in possible if p in every} or {p: r for p, r in every.items() if "int" not in p}
    return max(rates, key=lambda p: rates[p]) if rates else None


def item_bytes(dtype: str) -> int:
    """Bytes of one element of weights and inputs."""
    return 2 if dtype in HALF else 4


class RightValues:
    """Answers what arithmetic says of the step of a figure, from estimates first and the packaged table second."""

    def __init__(self, estimates: RecordSet) -> None:
        self._estimates: dict[Case, RecordSet] = {}
        for case, source, part in estimates.split():
            if source == "estimate":
                self._estimates.setdefault(step_of(case), part)
        self._answers: dict[tuple[object, ...], Expected | None] = {}

    def of(self, figure: ReportedFigure, phases: tuple[Phase, ...] | None = None) -> Expected | None:
        """The right values of the figure's step, in its own phases or in others; None where they are not known."""
        asked = figure.phases if phases is None else phases
        key = (figure.recorded, *figure.step, asked)
        if key not in self._answers:
            self._answers[key] = self._answer(figure, asked) if asked and figure.batch is not None else None
        return self._answers[key]

    def shortest(self, figure: ReportedFigure) -> Expected | None:
        """The right values of the shortest step that a figure without a length may be of: a longer one does more."""
        return self.of(of_shortest(figure)) if figure.lacks_length else None

    def parameters(self, figure: ReportedFigure) -> int | None:
        """Parameters of the figure's model."""
        known = (part.parameters for case, part in self._estimates.items() if case.model == figure.model)
        own = _own(figure.model)
        return next((n for n in known if n is not None), None if own is None else own.parameters)

    def _answer(self, figure: ReportedFigure, phases: tuple[Phase, ...]) -> Expected | None:
        if figure.recorded is not None:
            part = self._estimates.get(step_of(figure.recorded))
        else:
            fitting = [part for case, part in self._estimates.items() if _answers(case, figure, phases)]
            # Where a figure does not say how long its sequences are, one of several estimates may be of others.
            is_clear = len(fitting) == 1 or (fitting and figure.mode not in GENERATION)
            part = fitting[0] if is_clear else None
        return from_table(figure, phases) if part is None else from_estimate(part, phases)


def of_shortest(figure: ReportedFigure) -> ReportedFigure:
    """Return a figure of a language model's step with the fewest tokens."""
    return replace(figure, tokens=FEWEST_TOKENS)


def step_of(case: Case) -> Case:
    """What a case computes: without its device, and without options that say how it was run or counted."""
    return replace(case.without(COUNTING | RUNNING), device=None)


def _answers(case: Case, figure: ReportedFigure, phases: tuple[Phase, ...]) -> bool:
    """True if an estimate is that of a typed figure: of its model, batch, dtype, mode and image size."""
    if figure.mode in GENERATION and phases != figure.phases:
        return False
    mode = figure.mode if phases == figure.phases else mode_of(phases)
    image, tokens = (dict(case.options).get(name) for name in ("img_size", "seq_len"))
    same = (case.model, case.batch, image) == (figure.model, figure.batch, figure.image)
    as_long = figure.tokens == tokens or (figure.tokens is None and tokens != FEWEST_TOKENS)
    return same and as_long and case.dtype == (figure.dtype or "fp32") and case.mode == mode


def from_estimate(part: RecordSet, phases: Iterable[Phase]) -> Expected:
    """The right values in an estimate of one case."""
    wanted = set(phases)
    records = [r for r in part if r.phase in wanted and r.work is not None]
    total = Total(records, None)
    memory = part.memory
    # Each weight once: a step reads no more of them than the model holds.
    read = sum(r.traffic.weights * r.calls for r in records if r.traffic is not None)
    return Expected(
        matmul=None if total.missing else total.matmul_flops,
        fewest=None if total.missing else fewest_flops(r for r in records if not r.recomputed),
        flops=None if total.missing else total.flops,
        nbytes=total.bytes.get("dram"),
        weights=None if memory is None or memory.parameters is None else min(read, memory.parameters),
        inputs=None if memory is None else memory.inputs,
        operations=total.coverage.operations,
        parameters=part.parameters,
        parts=tuple((work, r.calls) for r in records if (work := r.bound_work) is not None),
        exact=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelPhase:
    """One phase of a model in the table."""

    image: int
    parameters: int
    amounts: Mapping[str, tuple[int, int]]
    fewest_share: float

    def at(self, amount: str, batch: int) -> int:
        fixed, per_sample = self.amounts[amount]
        return fixed + per_sample * batch


@cache
def _table() -> Mapping[tuple[str, str, str], _ModelPhase]:
    """The packaged table by model, mode and phase."""
    with TABLE.open(encoding="utf-8") as file:
        return {
            (line["model"], line["mode"], line["phase"]): _ModelPhase(
                image=int(line["image"]),
                parameters=int(line["parameters"]),
                amounts={a: (int(line[f"{a}_fixed"]), int(line[f"{a}_per_sample"])) for a in AMOUNTS},
                fewest_share=float(line["fewest_share"]),
            )
            for line in csv.DictReader(file)
        }


def _own(model: str) -> _ModelPhase | None:
    """The forward pass of a model of the table."""
    return _table().get((model, "inference", "forward"))


def spelled_like(model: str) -> str | None:
    """The model of the table that differs in case and punctuation alone: ``ResNet-18`` is like ``resnet18``."""
    return next((name for name, _, _ in _table() if name != model and _plainly(name) == _plainly(model)), None)


def _plainly(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def own_image(model: str) -> int | None:
    """Height and width of the images that a model of the table takes unless told otherwise."""
    own = _own(model)
    return None if own is None else own.image


def from_table(figure: ReportedFigure, phases: Iterable[Phase]) -> Expected | None:
    """The right values of a model of the table at its own image size; bytes of 16-bit types are half of fp32's."""
    recorded, own = figure.recorded, own_image(figure.model)
    if figure.batch is None or own is None or figure.image not in (None, own):
        return None
    # Of the options of a recorded case this one alone leaves the step as it is.
    if recorded is not None and not {name for name, _ in step_of(recorded).options} <= {"channels_last"}:
        return None
    mode = figure.mode if recorded is None and figure.mode in GENERATION else mode_of(phases)
    mode = mode if recorded is None else recorded.mode
    rows = [_table().get((figure.model, mode, phase)) for phase in phases]
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    matmul, flops, nbytes, weights, operations = (sum(row.at(a, figure.batch) for row in known) for a in AMOUNTS)
    size = item_bytes(figure.dtype)
    # Vector work has no part in the bound: the table does not say how much of it is special functions.
    work = Work(flops={"matmul.fp32": matmul}, bytes={"dram": nbytes * size / 4})
    return Expected(
        matmul=matmul,
        fewest=sum(row.at("matmul", figure.batch) * row.fewest_share for row in known),
        flops=flops,
        nbytes=nbytes * size / 4,
        weights=min(weights, 4 * known[0].parameters) * size / 4,
        inputs=CHANNELS * known[0].image ** 2 * figure.batch * size,
        operations=operations,
        parameters=known[0].parameters,
        parts=((work, 1),),
    )


def _in(work: Work, precision: str, known: Container[str]) -> Work:
    """The work with its products in another precision, but those in units that are known."""
    other = {unit: n for unit, n in work.flops.items() if unit.startswith("matmul.") and unit not in known}
    moved = sum(other.values())
    rest, unit = {unit: n for unit, n in work.flops.items() if unit not in other}, f"matmul.{precision}"
    return replace(work, flops=rest | ({unit: rest.get(unit, 0) + moved} if moved else {}))
