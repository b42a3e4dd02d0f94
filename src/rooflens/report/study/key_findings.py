"""The answers in sentences, each with its numbers and with what it is taken over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

from rooflens import units
from rooflens.checks import SEVERITIES
from rooflens.compare import phase_ratios, sweeps
from rooflens.compare.throughput import KNEE
from rooflens.compare.timed_cases import quantity_of
from rooflens.errors import Incomparable
from rooflens.records import MEMORY_CAUSES
from rooflens.report.study.agreement import pairs
from rooflens.report.study.cases import count, spread
from rooflens.report.study.content import Section, Sentences
from rooflens.report.study.view import StudyView
from rooflens.report.table import percent

_MOST = 8
"""Devices and messages that sentences are about."""


def key_findings(view: StudyView) -> Section | None:
    """What a reader should take home."""
    said = tuple(sentence for tell in _TELLERS for sentence in _told(tell, view))
    return Section(key="key-findings", title="Key findings", blocks=(Sentences(said),)) if said else None


def _told(tell: Callable[[StudyView], Iterator[str]], view: StudyView) -> tuple[str, ...]:
    try:
        return tuple(tell(view))
    except Incomparable:  # the study holds nothing that this is about
        return ()


def _verdicts(view: StudyView) -> Iterator[str]:
    for verdict in view.verdicts:
        yield f"“{verdict.hypothesis.text}”: {verdict.sentence}"


def _state(view: StudyView) -> Iterator[str]:
    """What is missing; a study that is whole needs no word for it."""
    left, failed = len(view.status.cells("left", "running")), view.status.count("failed")
    cells = len(view.status.states)
    if left:
        yield f"The study is not complete: {left} of {cells} cells are not run yet."
    if failed:
        kinds = Counter(failure.kind for failure in view.records.failures)
        why = ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common())
        yield f"{failed} of {cells} cells failed: {why}."


def _efficiency(view: StudyView) -> Iterator[str]:
    found = sorted(pairs(view.evidence), key=lambda pair: pair.bound / pair.seconds)
    if not found:
        return
    shares = [pair.bound / pair.seconds for pair in found]
    said = f"Measured steps reach {percent(median(shares))} of what their bound allows (median of {len(found)})"
    low, high = found[0], found[-1]
    ends = f"{percent(shares[0])} ({low.item.case.label()}) to {percent(shares[-1])} ({high.item.case.label()})"
    yield f"{said}, from {ends}." if len(found) > 1 else f"{said}."


def _devices(view: StudyView) -> Iterator[str]:
    found = view.devices
    if found is None:
        return
    speedups: dict[str, list[float]] = {}
    for row in found.rows:
        if row.speedup is not None and row.case.device not in (None, found.baseline):
            speedups.setdefault(row.case.device or "", []).append(row.speedup)
    time = "by measured time" if found.rows[0].time == "measured" else "at the bound"
    for device, ratios in list(speedups.items())[:_MOST]:
        yield (
            f"{device} is {median(ratios):.3g} times as fast as {found.baseline} {time}"
            f" (median of {count(len(ratios), 'step')}{spread(ratios)})."
        )


def _bound_by(view: StudyView) -> Iterator[str]:
    """What holds most of the bound in most steps of each device, in one sentence per resource."""
    held: dict[str, Counter[str]] = {}
    for item in view.evidence:
        total = item.total()
        if total is not None and total.bound_by and item.case.device is not None:
            held.setdefault(item.case.device, Counter())[total.bound_by] += 1
    said: dict[str, list[str]] = {}
    for device, counted in held.items():
        ((resource, n),) = counted.most_common(1)
        said.setdefault(resource, []).append(f"{device} ({n} of {counted.total()})")
    for resource, devices in said.items():
        yield f"The bound is mostly that of {resource} in most steps on {', '.join(devices)}."


def _correlated(view: StudyView) -> Iterator[str]:
    found: dict[str, list[float]] = {}
    for item in view.correlations:
        if (rho := item.coefficients.get("spearman")) is not None:
            found.setdefault(quantity_of(item.quantity).title, []).append(rho.value)
    if not found:
        return
    ranked = sorted(found.items(), key=lambda entry: -median(entry[1]))
    said = ", ".join(f"{name} {median(values):.2f}" for name, values in ranked)
    settings = max(map(len, found.values()))
    over = f", median of {settings} settings" if settings > 1 else ""
    yield f"Rank correlation with latency over models{over}: {said}."


def _knees(view: StudyView) -> Iterator[str]:
    found = sweeps(view.evidence, view.records.failures)
    measured = [sweep for sweep in found if sweep.origin == "measured"] or list(found)
    knees = [sweep.knee for sweep in measured if sweep.knee is not None]
    if knees:
        what = "Measured throughput" if measured[0].origin == "measured" else "The throughput that the bound allows"
        over = f"median of {count(len(knees), 'sweep')}{spread(knees)}"
        yield f"{what} reaches {100 * KNEE:.0f} % of its highest at batch {median(knees):g} ({over})."


def _phases(view: StudyView) -> Iterator[str]:
    found = phase_ratios(view.records)
    for name, words in (("time", "measured"), ("bound", "at the bound")):
        ratios = [1 / ratio for item in found if (ratio := getattr(item, name))]
        if ratios:
            over = f"median of {count(len(ratios), 'step')}"
            yield f"Backward takes {median(ratios):.3g} times as long as forward, {words} ({over})."


def _memory(view: StudyView) -> Iterator[str]:
    known = [(item.work.memory, item.case) for item in view.evidence if item.work is not None and item.work.memory]
    peaks = [(memory.peak, memory, case) for memory, case in known if memory is not None and memory.peak]
    if not peaks:
        return
    peak, memory, case = max(peaks, key=lambda entry: entry[0])
    causes = {cause: getattr(memory, cause) or 0 for cause in MEMORY_CAUSES}
    largest = max(causes, key=lambda cause: causes[cause])
    said = f"Most memory is estimated for {replace(case, device=None).label()}: {units.show(peak, 'B')}"
    share = causes[largest] / peak
    yield f"{said}, {percent(share)} of it {largest.replace('_', ' ')}." if share else f"{said}."


def _doubts(view: StudyView) -> Iterator[str]:
    counted = Counter(finding.severity for finding in view.findings)
    if counted:
        said = ", ".join(count(counted[severity], severity) for severity in reversed(SEVERITIES) if counted[severity])
        gravest = view.findings[0]
        yield f"The checks doubt some numbers ({said}), first of all {gravest.subject}: {gravest.message}"


_TELLERS: tuple[Callable[[StudyView], Iterator[str]], ...] = (
    _verdicts,
    _state,
    _efficiency,
    _devices,
    _bound_by,
    _correlated,
    _knees,
    _phases,
    _memory,
    _doubts,
)
