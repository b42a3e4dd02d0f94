"""One row per case: work, bound, measured time, and how near the two are; what failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rooflens.records import Case, Phase
from rooflens.report.case_names import differing, name_of
from rooflens.report.columns import (
    BOUND,
    CASE,
    PHASE,
    SOURCE,
    WORK,
    above_the_roof,
    at_least,
    bound_cells,
    case_cells,
    efficiency_cell,
    work_cells,
)
from rooflens.report.notes import FASTER, coverage_notes, device_notes, total_notes
from rooflens.report.sweep_notes import batch_notes
from rooflens.report.table import COUNT, PERCENT, Column, Entries, Entry, Table, build
from rooflens.results import RecordSet, Total
from rooflens.results.evidence import Evidence, Measured, join
from rooflens.results.quantities import efficiency, hfu, mfu, throughput

NOISY = 0.10
"""Interquartile range over the median above which a time is marked: torch.utils.benchmark warns there too."""
STEP = "step"
"""The phases of a step together."""

_TIME = (
    *BOUND,
    Column(key="whole_model_seconds", header="whole-model roofline", unit="s", group="time", show="room"),
    Column(key="predicted_seconds", header="predicted", unit="s", group="time"),
    Column(key="predicted_low", header="predicted low", unit="s", group="time", show="files"),
    Column(key="predicted_high", header="predicted high", unit="s", group="time", show="files"),
    Column(key="measured_seconds", header="measured", unit="s", group="time"),
    Column(key="measured_spread", header="+-", unit=PERCENT, group="time", show="room"),
    Column(key="measured_low", header="low", unit="s", group="time", show="files"),
    Column(key="measured_high", header="high", unit="s", group="time", show="files"),
    Column(key="measured_noise", header="noise", unit=PERCENT, group="time", show="files"),
    Column(key="measured_samples", header="samples", unit=COUNT, group="time", show="files"),
    Column(key="measured_cold", header="first call", unit="s", group="time", show="room"),
    Column(key="measured_compiling", header="compiling", unit="s", group="time", show="room"),
    Column(key="efficiency", header="efficiency", unit=PERCENT, group="time"),
    Column(key="mfu", header="MFU", unit=PERCENT, group="time", show="files"),
    Column(key="hfu", header="HFU", unit=PERCENT, group="time", show="files"),
    Column(key="throughput", header="samples /s", group="time"),
    Column(key="throughput_from", header="throughput from", align="left", group="time", show="files"),
)
_PARAMETERS = Column(key="parameters", header="parameters", group="work", show="room")
_SUMMARY = (*CASE, SOURCE, PHASE, _PARAMETERS, *WORK, *_TIME)

_FAILURE = (
    SOURCE,
    Column(key="stage", header="stage", align="left"),
    Column(key="kind", header="kind", align="left"),
    Column(key="message", header="message", align="left"),
)


def summary(rs: RecordSet) -> Table:
    """One row per case and source, and per phase where a step has several; the step as a whole comes last.

    An estimate and the measurement of its case share a row, so that bound, measured time and efficiency (bound over
    measured) stand beside each other. Throughput is batch over measured seconds; without a measurement it is batch over
    the bound, an upper bound marked ``<=``.
    """
    evidence = join(rs)
    return build(
        "Summary",
        _SUMMARY,
        [row for item in evidence for row in _rows(item)],
        notes=[*_notes(evidence), *_notes_of_cases(evidence), *batch_notes(evidence, rs.failures)],
    )


def failures(rs: RecordSet) -> Table:
    """The cells that failed, one row each."""
    rows = [
        case_cells(failed.case)
        | {"source": failed.source, "stage": failed.stage, "kind": failed.kind, "message": failed.message}
        for failed in rs.failures
    ]
    return build("Failed", (*CASE, *_FAILURE), rows)


def _rows(item: Evidence) -> Iterator[Entries]:
    phases: list[tuple[Phase | None, str]] = [(None, item.phases[0] if len(item.phases) == 1 else STEP)]
    if len(item.phases) > 1:
        phases = [*((phase, phase) for phase in item.phases), *phases]
    for phase, name in phases:
        total, measured = item.total(phase), item.measured(phase)
        row = case_cells(item.case) | {"source": " + ".join(item.sources), "phase": name, "parameters": item.parameters}
        row |= work_cells(total) | bound_cells(total) | _prediction(total)
        row |= _measured_cells(measured) | _utilisation_cells(total, measured)
        if phase is None:
            row |= _throughput(item.case, total, measured)
        yield row


def _notes_of_cases(evidence: Sequence[Evidence]) -> Iterator[str]:
    """The notes on records; one that does not hold for every case says for which."""
    noted: dict[str, list[Evidence]] = {}
    for item in evidence:
        for note in item.notes:
            noted.setdefault(note, []).append(item)
    fields = differing([item.case for item in evidence])
    for note, items in noted.items():
        whose = "" if len(items) == len(evidence) else f"{', '.join(name_of(item.case, fields) for item in items)}: "
        yield whose + note


def _prediction(total: Total | None) -> Entries:
    if total is None:
        return {}
    return {
        "whole_model_seconds": None if total.whole_bound is None else total.whole_bound.seconds,
        "predicted_seconds": total.predicted_seconds,
        "predicted_low": total.predicted_low,
        "predicted_high": total.predicted_high,
    }


def _measured_cells(measured: Measured | None) -> Entries:
    if measured is None:
        return {}
    low, high = measured.interval
    return {
        "measured_seconds": Entry(measured.seconds, mark="~" if _noisy(measured) else ""),
        "measured_spread": measured.spread,
        "measured_low": low,
        "measured_high": high,
        "measured_noise": measured.noise,
        "measured_samples": measured.samples,
        "measured_cold": measured.cold,
        "measured_compiling": measured.compiling,
    }


def _utilisation_cells(total: Total | None, measured: Measured | None) -> Entries:
    if total is None or measured is None:
        return {}
    reached = efficiency(total, measured.seconds)
    lower = bool(total.missing)
    return {
        "efficiency": efficiency_cell(reached, lower),
        "mfu": at_least(mfu(total, measured.seconds), lower),
        "hfu": at_least(hfu(total, measured.seconds), lower),
    }


def _throughput(case: Case, total: Total | None, measured: Measured | None) -> Entries:
    rate, origin = throughput(case, total, measured)
    return {"throughput": Entry(rate, "<=" if origin == "bound" else ""), "throughput_from": origin}


def _noisy(measured: Measured | None) -> bool:
    return measured is not None and measured.noise is not None and measured.noise > NOISY


def _notes(evidence: Iterable[Evidence]) -> Iterator[str]:
    items = list(evidence)
    yield from coverage_notes(items)
    yield from device_notes(items)
    pairs = [(item.total(phase), item.measured(phase)) for item in items for phase in (None, *item.phases)]
    yield from total_notes(total for total, _ in pairs if total is not None)
    if any(total is not None and total.bound is not None for total, _ in pairs):
        yield "bound: operation by operation, operands from DRAM; whole-model roofline: all work as one operation"
    if any(throughput(item.case, item.total(), item.measured())[1] == "bound" for item in items):
        yield "<= samples per second that the bound allows"
    if any(_noisy(measured) for _, measured in pairs):
        yield f"~ noisy: the middle half of the samples spreads over more than {100 * NOISY:.0f} % of the median"
    if any(above_the_roof(efficiency(total, m.seconds)) for total, m in pairs if m is not None):
        yield FASTER
    for item in items:
        measured = item.measured()
        if measured is not None and measured.pooled > 1:
            yield f"{item.case.label()}: samples of {measured.pooled} measurements pooled"
