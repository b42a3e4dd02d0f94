"""Kernels, copies and fills as records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rooflens import units
from rooflens.costs import family_of
from rooflens.records import Case, Record
from rooflens.sources.profile.attribution import TimeShare, attribute
from rooflens.sources.profile.events import DeviceActivity
from rooflens.sources.profile.nsys.export import Export
from rooflens.sources.profile.operation_records import record_of
from rooflens.sources.profile.places import EventPlace


def cards_of(export: Export) -> tuple[int | None, ...]:
    """Return CUDA's numbers of the devices that did something, in the order of their first activity."""
    return tuple(dict.fromkeys(activity.device for activity in export.events.activities))


def records_of(export: Export, case_of: Callable[[int | None], Case]) -> Iterator[Record]:
    """Give a record per launch of a kernel, copy and fill, in the order of their start, then one of the model per case.

    Path and phase are those of the ranges that were open on the thread that launched it; what none tells is unknown.

    Args:
        case_of: the case of what ran on a device, by CUDA's number.
    """
    cases = {card: case_of(card) for card in cards_of(export)}
    launched = sorted(_with_activities(export), key=lambda pair: pair[1].start)
    if any(share.place.phase in ("backward", "optimizer") for share, _ in launched):
        cases = {card: replace(case, mode="train") for card, case in cases.items()}
    for share, activity in launched:
        operation = share.operation or ""
        record = record_of([share], cases[activity.device], "kernel", activity.name, kind=family_of(operation))
        yield replace(record, operation=operation, phase=record.phase if export.named else None)
    for card, case in cases.items():
        its = [(share, activity) for share, activity in launched if activity.device == card]
        unplaced = sum(share.place.phase is None for share, _ in its)
        notes = [_busy([activity for _, activity in its])]
        if unplaced and export.named:
            notes.append(f"the phase of {unplaced} of them is not known: no range tells it")
        yield Record(case=case, source="profile", scope="model", notes=(*notes, *export.notes))


def _with_activities(export: Export) -> Iterator[tuple[TimeShare, DeviceActivity]]:
    """All that devices did; also what ran outside of marked phases, which a profile of one step leaves out."""
    inside = {id(share.activity): share for share in attribute(export.events)}
    for activity in export.events.activities:
        share = inside.get(id(activity))
        yield share or TimeShare(seconds=activity.seconds, place=EventPlace(), activity=activity), activity


def _busy(activities: Sequence[DeviceActivity]) -> str:
    """A note on what a sum of times hides: how long the device was busy, and on how many streams."""
    streams = Counter(activity.stream for activity in activities if activity.stream is not None)
    listed = ", ".join(str(stream) for stream, _ in streams.most_common(8))
    return (
        f"{len(activities)} kernels, copies and fills take {units.show(sum(a.seconds for a in activities), 's')} one by"
        f" one, and {units.show(_covered(activities), 's')} of the device's time"
        f"{f'; they ran on streams {listed}' if len(streams) > 1 else ''}"
    )


def _covered(activities: Iterable[DeviceActivity]) -> float:
    """Length of the union of activities that come in the order of their start."""
    seconds, end = 0.0, -math.inf
    for activity in activities:
        finish = activity.start + activity.seconds
        seconds += max(0.0, finish - max(end, activity.start))
        end = max(end, finish)
    return seconds
