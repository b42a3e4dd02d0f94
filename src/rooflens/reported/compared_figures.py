"""Ours beside theirs: each reported figure, what records and catalogue say of the same, and the findings on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Protocol

from rooflens.devices import catalogued_or_none
from rooflens.records import Case, Phase, Source
from rooflens.reported.correlated_models import ModelCorrelations
from rooflens.reported.figures import (
    CORRELATION,
    FOOTPRINTS,
    GENERATION,
    OF_A_DEVICE,
    OF_A_TOTAL,
    DeviceAliases,
    OurNumber,
    ReportedFigure,
)
from rooflens.reported.right_values import own_image
from rooflens.results import Quantity, RecordSet, Total
from rooflens.results.quantities import BOUND, MATMUL_FLOPS

CaseRecords = tuple[Case, Source, RecordSet]
"""The records of one case and source."""
OVER_BACKWARD: Mapping[str, tuple[Quantity, str]] = {
    "flop_ratio": (MATMUL_FLOPS, "matmul FLOP of forward over backward"),
    "time_ratio": (BOUND, "bounds of forward over backward"),
}
UNDER_CEILINGS = frozenset({"time", "estimated_time", "time_ratio", "performance"})
"""What follows from the ceilings of a device, which must be that of the figure."""


class Doubted(Protocol):
    """A finding, as far as it says which figure it doubts."""

    @property
    def code(self) -> str: ...
    @property
    def subject(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """A reported figure and ours.

    Attributes:
        ours: what arithmetic, or the catalogue, says of it; where these cannot, what was measured on the same device.
        measured: the same as it was measured or counted, maybe on another device.
        codes: of the findings on the figure.
        why: what is missing where there is nothing of ours.
    """

    figure: ReportedFigure
    ours: OurNumber | None = None
    measured: OurNumber | None = None
    codes: tuple[str, ...] = ()
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Reported over ours; None where either is unknown."""
        if self.ours is None or self.figure.value is None or not self.ours.value:
            return None
        return self.figure.value / self.ours.value


def compare_figures(
    figures: Iterable[ReportedFigure],
    records: RecordSet,
    *,
    findings: Iterable[Doubted] = (),
    aliases: DeviceAliases | None = None,
) -> tuple[ComparedFigure, ...]:
    """Return each reported figure beside ours, in the order of the figures.

    Amounts and bounds are those of the estimate of the same model, batch, image size and phases. fp32 that somebody
    reports was run with torch's own switches, so the estimate of dtype ``default`` comes first where there is one. A
    correlation is held against the rank correlation over the models of the records.

    Args:
        findings: on these figures.
        aliases: the devices that words of the figures like ``cpu`` stand for.
    """
    findings, aliases = tuple(findings), aliases or {}
    parts, over_models = records.split(), ModelCorrelations(records)
    compared = []
    for figure in figures:
        devices = _devices(figure, aliases)
        if figure.quantity.startswith(CORRELATION):
            ours, measured = over_models.of(figure, devices)
        else:
            ours, measured = _ours(figure, parts, devices), next(_observed(figure, parts), None)
        codes = (each.code for each in findings if figure.place and f"{figure.place}:" in each.subject)
        compared.append(
            ComparedFigure(
                figure=figure,
                ours=ours,
                measured=measured if measured != ours else None,
                codes=tuple(dict.fromkeys(codes)),
                why="" if ours is not None else _why(figure, parts, devices),
            )
        )
    return tuple(compared)


def _devices(figure: ReportedFigure, aliases: DeviceAliases) -> frozenset[str]:
    """The devices that a figure may mean; none where it names none, or one that nobody knows."""
    device = catalogued_or_none(figure.device)
    return aliases.get(figure.device, frozenset()) if device is None else frozenset({device.name})


def _ours(figure: ReportedFigure, parts: Sequence[CaseRecords], devices: frozenset[str]) -> OurNumber | None:
    """The number of the catalogue or of an estimate, else what was observed on the device of the figure."""
    ours = _of_device(figure) if figure.quantity in OF_A_DEVICE else next(_estimated(figure, parts, devices), None)
    return ours or next(_observed(figure, parts, devices), None)


def _of_device(figure: ReportedFigure) -> OurNumber | None:
    """A rate of the catalogue; the peak is that of products in the dtype of the figure."""
    device = catalogued_or_none(figure.device)
    if device is None:
        return None
    peak, dram = device.ceiling(f"matmul.{figure.dtype or 'fp32'}"), device.ceiling("dram")
    if figure.quantity == "peak" and peak is not None:
        return OurNumber(value=peak.rate, of=f"{peak.resource} of {device.name}")
    if figure.quantity == "bandwidth" and dram is not None:
        return OurNumber(value=dram.rate, of=f"dram of {device.name}")
    if figure.quantity == "ridge" and peak is not None and dram is not None:
        return OurNumber(value=peak.rate / dram.rate, of=f"{peak.resource} over dram of {device.name}")
    return None


def _estimated(figure: ReportedFigure, parts: Sequence[CaseRecords], devices: frozenset[str]) -> Iterator[OurNumber]:
    """What estimates say, the one that fits best first."""
    dtypes = dict.fromkeys((figure.loose_dtype, figure.dtype or "fp32"))
    for mode in _modes(figure):
        for dtype in dtypes:
            for case, source, part in parts:
                if source != "estimate" or case.dtype != dtype or not _is_of(case, figure, mode):
                    continue
                if figure.quantity in UNDER_CEILINGS and case.device not in devices:
                    continue
                value, what = _of_estimate(figure, part)
                if value is not None:
                    yield OurNumber(value=value, of=f"{what}, {_in_words(case, device=False)}")


def _modes(figure: ReportedFigure) -> tuple[str, ...]:
    """The modes whose steps hold the phases of a figure; forward is part of both."""
    if figure.quantity in OVER_BACKWARD or not figure.phases:
        return ("train",)
    first = figure.mode
    return (first,) if figure.quantity in FOOTPRINTS or first in GENERATION else tuple(dict.fromkeys((first, "train")))


def _is_of(case: Case, figure: ReportedFigure, mode: str) -> bool:
    """True if a case is of the model, image size, mode and batch of a figure; parameters are those of any."""
    if figure.quantity == "parameters":
        return case.model == figure.model
    options, own = dict(case.options), own_image(case.model)
    image = options.get("img_size")
    same = (case.model, case.batch, image or own) == (figure.model, figure.batch, figure.image or own)
    return same and case.mode == mode and figure.tokens in (None, options.get("seq_len"))


def _of_estimate(figure: ReportedFigure, part: RecordSet) -> tuple[float | None, str]:
    """The quantity of a figure in an estimate, and what it is called."""
    if figure.quantity == "parameters":
        return part.parameters, "parameters"
    if figure.quantity in FOOTPRINTS:
        return (None if part.memory is None else part.memory.peak), "peak memory"
    if figure.quantity in OVER_BACKWARD:
        quantity, what = OVER_BACKWARD[figure.quantity]
        forward, backward = (quantity.of(_total(part, (phase,))).value for phase in ("forward", "backward"))
        return (forward / backward if forward and backward else None), what
    total = _total(part, figure.phases)
    if figure.quantity == "performance" and total.seconds and total.matmul_flops is not None:
        return total.matmul_flops / total.seconds, "most that the bound allows"
    if figure.quantity not in OF_A_TOTAL:
        return None, ""
    quantity, what = OF_A_TOTAL[figure.quantity]
    return quantity.of(total).value, what


def _total(part: RecordSet, phases: Sequence[str]) -> Total:
    """Some phases of a case, under the ceilings of its device."""
    return part.sum([record for record in part if record.phase in phases], part.device())


def _observed(
    figure: ReportedFigure, parts: Sequence[CaseRecords], devices: frozenset[str] | None = None
) -> Iterator[OurNumber]:
    """The same as it was measured or counted, on some devices or on any; fp32 may have run in TF32."""
    device = catalogued_or_none(figure.device)
    may_be_tf32 = figure.loose_dtype == "default" and (device is None or device.ceiling("matmul.tf32") is not None)
    for dtype in ("default", "tf32", "fp32") if may_be_tf32 else (figure.dtype,):
        for case, source, part in parts:
            if source == "estimate" or case.dtype != dtype or (devices is not None and case.device not in devices):
                continue
            if any(_is_of(case, figure, mode) for mode in _modes(figure)):
                value = _counted(figure, case, part) if source == "counters" else _timed(figure, part)
                if value is not None:
                    what = "counted" if source == "counters" else "measured"
                    yield OurNumber(value=value, of=f"{what}, {_in_words(case, device=True)}")


def _timed(figure: ReportedFigure, part: RecordSet) -> float | None:
    """The times of the phases, added; a step that lacks one of them has none."""
    if figure.quantity in FOOTPRINTS:
        return None if part.memory is None else part.memory.peak
    medians = {r.phase: r.timing.median for r in part if r.scope == "model" and r.timing is not None}
    if figure.quantity == "time_ratio":
        forward, backward = medians.get("forward"), medians.get("backward")
        return forward / backward if forward is not None and backward else None
    if figure.quantity != "time" or not figure.phases or not medians.keys() >= set(figure.phases):
        return None
    return fsum(medians[phase] for phase in figure.phases)


def _counted(figure: ReportedFigure, case: Case, part: RecordSet) -> float | None:
    """What counters saw of a whole step, which must be that of the figure: a counter file knows no phases."""
    if figure.phases != _counted_phases(case):
        return None
    total = part.total()
    known = {"counted_flops": total.flops, "bytes": total.bytes.get("dram"), "time": total.measured_seconds}
    return known.get(figure.quantity)


def _counted_phases(case: Case) -> tuple[Phase, ...]:
    """The phases of the step that was counted."""
    if case.mode != "train":
        return ("forward",)
    return ("forward", "backward") if dict(case.options).get("optimizer") == "none" else ()


def _in_words(case: Case, *, device: bool) -> str:
    """A case in the words that tell where a number comes from."""
    size = dict(case.options).get("img_size")
    words = [case.dtype, case.mode, f"{size}x{size}" if size else "", f"on {case.device}" if device else ""]
    return " ".join(filter(None, words))


def _why(figure: ReportedFigure, parts: Sequence[CaseRecords], devices: frozenset[str]) -> str:
    """What is missing for a number of ours."""
    unknown = bool(figure.device) and catalogued_or_none(figure.device) is None
    recorded = any(case.device in devices for case, _, _ in parts)
    over_models = figure.quantity.startswith(CORRELATION)
    reasons = {
        "a failure has no number": figure.quantity == "failure",
        f"no source gives {figure.device} such a rate": figure.quantity in OF_A_DEVICE,
        "the batch is not stated": figure.batch is None and not over_models,
        f"nothing was recorded on a {figure.device}, and no source gives its rates": unknown and not recorded,
        "too few models have a time": over_models,
        "the study holds no such model": all(case.model != figure.model for case, _, _ in parts),
    }
    return next((why for why, holds in reasons.items() if holds), "the study holds no such case")
