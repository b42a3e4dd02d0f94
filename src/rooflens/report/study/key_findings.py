"""The answers in sentences, each with its numbers and with what it is taken over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from statistics import median

from rooflens import units
from rooflens.checks import SEVERITIES
from rooflens.compare.doubts import listed
from rooflens.compare.throughput import KNEE, ORIGINS
from rooflens.compare.timed_cases import quantity_of
from rooflens.compare.uncertainty import LEVEL
from rooflens.report.kernel_names import with_short_names
from rooflens.report.study.agreement import pairs
from rooflens.report.study.cases import count, spread
from rooflens.report.study.content import Section, Sentences
from rooflens.report.study.view import StudyView
from rooflens.report.table import percent
from rooflens.results import Time
from rooflens.results.totals import grouped_by

_MOST = 8
"""Devices and messages that sentences are about."""
_BY: Mapping[Time, str] = {"measured": "by measured time", "predicted": "by expected times", "bound": "at the bound"}
_RATES: Mapping[Time, str] = {
    "measured": "Measured throughput",
    "predicted": "Expected throughput",
    "bound": "The throughput that the bound allows",
}


def key_findings(view: StudyView) -> Section | None:
    """What a reader should take home."""
    sentences = tuple(sentence for make in _SENTENCES for sentence in make(view))
    return Section(key="key-findings", title="Key findings", blocks=(Sentences(sentences),)) if sentences else None


def _verdicts(view: StudyView) -> Iterator[str]:
    for verdict in view.verdicts:
        yield f"“{verdict.hypothesis.text}”: {verdict.sentence}"


def _state(view: StudyView) -> Iterator[str]:
    """What is missing; of a study that is complete nothing is said."""
    left, failed = len(view.status.cells("left", "running")), view.status.count("failed")
    cells = len(view.status.states)
    if left:
        yield f"The study is not complete: {left} of {cells} cells are not run yet."
    if failed:
        kinds = Counter(failure.kind for failure in view.records.failures if not failure.skipped)
        why = ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common())
        yield f"{failed} of {cells} cells failed: {why}."
    lacks = Counter(f"{each.case.device} has {each.reason}" for each in view.records.failures if each.skipped)
    if lacks:
        why = ", ".join(f"{what} ({n})" for what, n in lacks.most_common())
        yield f"{lacks.total()} of {cells} cells were skipped: {why}."


def _efficiency(view: StudyView) -> Iterator[str]:
    ranked = sorted((pair.bound / pair.seconds, n, pair.item.case) for n, pair in enumerate(pairs(view.evidence)))
    if not ranked:
        return
    shares = [share for share, _, _ in ranked]
    ends = (f"{percent(share)} ({case.label()})" for share, _, case in (ranked[0], ranked[-1]))
    over = f", from {' to '.join(ends)}" if len(ranked) > 1 else ""
    yield f"Measured steps reach {percent(median(shares))} of what their bound allows (median of {len(ranked)}){over}."


def _without_estimate(view: StudyView) -> Iterator[str]:
    """Measured steps of which nothing tells the work, and so neither bound nor efficiency."""
    measured = [item for item in view.evidence if item.time is not None and "measure" in item.time.sources]
    alone = [item.case for item in measured if item.work is None]
    if alone:
        asked = any(cell.source == "estimate" for cell in view.status.states)
        remedy = "" if asked else "; write “estimate” among the sources of the study"
        yield (
            f"No estimate stands beside {len(alone)} of {count(len(measured), 'measured step')}, so that bound and"
            f" efficiency are unknown ({listed(alone)}){remedy}."
        )


def _devices(view: StudyView) -> Iterator[str]:
    compared = view.devices
    if compared is None:
        return
    speedups: dict[str, list[float]] = {}
    for row in compared.rows:
        if row.speedup is not None and row.case.device not in (None, compared.baseline):
            speedups.setdefault(row.case.device or "", []).append(row.speedup)
    used = compared.rows[0].time
    time = _BY[used]
    for device, ratios in list(speedups.items())[:_MOST]:
        over, fold = f"median of {count(len(ratios), 'step')}{spread(ratios)}", f"{median(ratios):.3g}"
        if fold == "1":
            yield f"{device} is as fast as {compared.baseline} ({median(ratios):.2f}x, {time}; {over})."
        else:
            yield f"{device} is {fold} times as fast as {compared.baseline} {time} ({over})."


def _bound_by(view: StudyView) -> Iterator[str]:
    """What most often holds the largest part of the bound on each device, in one sentence per resource."""
    held: dict[str, Counter[str]] = {}
    for item in view.evidence:
        total = item.total()
        if total is not None and total.bound_by and item.case.device is not None:
            held.setdefault(item.case.device, Counter())[total.bound_by] += 1
    devices: dict[str, list[str]] = {}
    for device, counted in held.items():
        often = max(counted.values())
        for resource in (resource for resource, n in counted.items() if n == often):
            devices.setdefault(resource, []).append(f"{often} of {count(counted.total(), 'step')} on {device}")
    for resource, named in devices.items():
        yield f"The largest part of the bound is that of {resource} in {', in '.join(named)}."


def _correlated(view: StudyView) -> Iterator[str]:
    """Rank correlations that so many models can tell from chance."""
    ranks = [(item, rho) for item in view.correlations if (rho := item.coefficients.get("spearman")) is not None]
    told = [(item, rho.value) for item, rho in ranks if rho.p is not None]
    if told:
        by_quantity = grouped_by(told, lambda each: quantity_of(each[0].quantity).title)
        middles = [(median(value for _, value in values), name) for name, values in by_quantity.items()]
        models, settings = [len(item.points) for item, _ in told], max(map(len, by_quantity.values()))
        over = f"{min(models)} models" if min(models) == max(models) else f"{min(models)} to {max(models)} models"
        over += f", median of {settings} settings" if settings > 1 else ""
        values = ", ".join(f"{name} {middle:.2f}" for middle, name in sorted(middles, key=lambda each: -each[0]))
        yield f"Rank correlation with latency, {_BY[told[0][0].time]}, over {over}: {values}."
    elif ranks:
        most = max(len(item.points) for item, _ in ranks)
        yield (
            f"What goes with latency over {most} models is not told from chance: so few cannot give a p below"
            f" {LEVEL:g}."
        )


def _knees(view: StudyView) -> Iterator[str]:
    by_origin = ([sweep for sweep in view.sweeps if sweep.origin == origin] for origin in ORIGINS)
    known = next(filter(None, by_origin), [])
    knees = [sweep.knee for sweep in known if sweep.knee is not None]
    if knees:
        what = _RATES[known[0].origin]
        over = f"median of {count(len(knees), 'sweep')}{spread(knees)}"
        yield f"{what} reaches {100 * KNEE:.0f} % of its highest at batch {median(knees):g} ({over})."


def _phases(view: StudyView) -> Iterator[str]:
    known: dict[Time, list[float | None]] = {
        "measured": [item.time for item in view.phase_ratios],
        "predicted": [item.predicted for item in view.phase_ratios],
        "bound": [item.bound for item in view.phase_ratios],
    }
    for time, ratios in known.items():
        told = [1 / ratio for ratio in ratios if ratio]
        if told and (time != "predicted" or len(told) == len(ratios)):
            over = f"median of {count(len(told), 'step')}"
            yield f"Backward takes {median(told):.3g} times as long as forward, {_BY[time]} ({over})."
            return


def _memory(view: StudyView) -> Iterator[str]:
    known = ((item.work.memory, item.case) for item in view.evidence if item.work is not None)
    peaks = [(memory.peak, memory, case) for memory, case in known if memory is not None and memory.peak]
    if not peaks:
        return
    peak, memory, case = max(peaks, key=lambda entry: entry[0])
    amounts = {cause: amount or 0 for cause, amount in memory.causes.items()}
    largest = max(amounts, key=lambda cause: amounts[cause])
    share = amounts[largest] / peak
    of_it = f", {percent(share)} of it {largest.replace('_', ' ')}" if share else ""
    yield f"The most memory is estimated for {replace(case, device=None).label()}: {units.show(peak, 'B')}{of_it}."


def _room(view: StudyView) -> Iterator[str]:
    """Which estimated steps their devices have no room for."""
    rooms = [(item.case, item.room) for item in view.evidence if item.room is not None and item.room.fits is not None]
    lacking = sorted(((room.excess or 0, n) for n, (_, room) in enumerate(rooms) if not room.fits), reverse=True)
    if lacking:
        excess, first = lacking[0]
        case, room = rooms[first]
        needs = f"{units.show(room.needed, 'B')} of {units.show(room.memory, 'B')}, {units.show(excess, 'B')} too much"
        of = f"{len(lacking)} of {count(len(rooms), 'step')} {'does' if len(lacking) == 1 else 'do'} not fit"
        yield f"{of} into the memory of their device, furthest of all {case.label()}: it needs {needs}."


def _doubtful_times(view: StudyView) -> Iterator[str]:
    """What those who took the times say against them, by what comes before the numbers of a note."""
    timed = [item for item in view.evidence if item.time is not None]
    doubtful = [dict.fromkeys(doubt.partition(":")[0] for doubt in item.doubts) for item in timed if item.doubts]
    if doubtful:
        why = ", ".join(f"{doubt} ({n})" for doubt, n in Counter(chain.from_iterable(doubtful)).most_common())
        yield f"The times of {len(doubtful)} of {count(len(timed), 'step')} are doubtful by their own notes: {why}."


def _doubts(view: StudyView) -> Iterator[str]:
    counted = Counter(finding.severity for finding in view.findings)
    if counted:
        numbers = ", ".join(count(counted[each], each) for each in reversed(SEVERITIES) if counted[each])
        gravest = view.findings[0]
        first = with_short_names(f"{gravest.subject}: {gravest.message}")
        yield f"The checks doubt some numbers ({numbers}), first of all {first}"


_SENTENCES: tuple[Callable[[StudyView], Iterator[str]], ...] = (
    _verdicts,
    _state,
    _efficiency,
    _without_estimate,
    _devices,
    _bound_by,
    _correlated,
    _knees,
    _phases,
    _memory,
    _room,
    _doubtful_times,
    _doubts,
)
