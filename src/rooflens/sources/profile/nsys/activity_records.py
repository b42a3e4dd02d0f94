"""Kernels and copies as records: one for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rooflens import units
from rooflens.costs import family_of
from rooflens.records import Case, Phase, Record, Timing
from rooflens.results import UNATTRIBUTED
from rooflens.sources.profile.attribution import TimeShare, attribute
from rooflens.sources.profile.events import DeviceActivity
from rooflens.sources.profile.nsys.export import Export
from rooflens.sources.profile.places import EventPlace


def cards_of(export: Export) -> tuple[int | None, ...]:
    """CUDA's numbers of the devices that did something, in the order of their first activity."""
    return tuple(dict.fromkeys(activity.device for activity in export.events.activities))


def records_of(export: Export, case_of: Callable[[int | None], Case]) -> Iterator[Record]:
    """One record per launch of a kernel, copy and fill, in the order of their start, then one of the model per case.

    Path and phase are those of the ranges that were open on the thread that launched it; what none tells is unknown.

    Args:
        case_of: the case of what ran on a device, by CUDA's number.
    """
    cases = {card: case_of(card) for card in cards_of(export)}
    shares = sorted(_shares(export), key=_start)
    if any(share.place.phase in ("backward", "optimizer") for share in shares):
        cases = {card: replace(case, mode="train") for card, case in cases.items()}
    yield from (_record(share, cases[_activity(share).device], export.named) for share in shares)
    for card, case in cases.items():
        its = [share for share in shares if _activity(share).device == card]
        notes = (*_notes(its), *(_outside(its) if export.named else ()), *export.notes)
        yield Record(case=case, source="profile", scope="model", notes=notes)


def _shares(export: Export) -> Iterator[TimeShare]:
    """All that devices did; what ran outside of marked phases too, which a profile of one step leaves out."""
    inside = attribute(export.events)
    yield from inside
    placed = {id(share.activity) for share in inside}
    for activity in export.events.activities:
        if id(activity) not in placed:
            yield TimeShare(seconds=activity.seconds, place=EventPlace(), activity=activity)


def _record(share: TimeShare, case: Case, named: bool) -> Record:
    operation = share.operation or ""
    phase: Phase | None = share.place.phase if named else None
    return Record(
        case=case,
        source="profile",
        scope="kernel",
        path=UNATTRIBUTED if share.place.path is None else share.place.path,
        kind=family_of(operation) if operation else "other",
        name=_activity(share).name,
        operation=operation,
        phase=phase,
        timing=Timing(samples=(share.seconds,), origin="profiler"),
        recomputed=share.place.recomputed,
    )


def _activity(share: TimeShare) -> DeviceActivity:
    assert share.activity is not None
    return share.activity


def _start(share: TimeShare) -> float:
    return _activity(share).start


def _notes(shares: Sequence[TimeShare]) -> Iterator[str]:
    """What a sum of times does not tell: how busy the device was, on how many streams."""
    total = sum(share.seconds for share in shares)
    busy = _covered(_activity(share) for share in shares)
    streams = Counter(stream for share in shares if (stream := _activity(share).stream) is not None)
    yield (
        f"{len(shares)} kernels, copies and fills take {units.show(total, 's')} one by one, and"
        f" {units.show(busy, 's')} of the device's time{_on(streams)}"
    )


def _outside(shares: Sequence[TimeShare]) -> Iterator[str]:
    unplaced = sum(share.place.phase is None for share in shares)
    if unplaced:
        yield f"the phase of {unplaced} of them is not known: no range tells it"


def _on(streams: Counter[int]) -> str:
    if len(streams) < 2:
        return ""
    return f"; they ran on streams {', '.join(str(stream) for stream, _ in streams.most_common(8))}"


def _covered(activities: Iterable[DeviceActivity]) -> float:
    """Length of the union of activities that come in the order of their start."""
    seconds, end = 0.0, -math.inf
    for activity in activities:
        finish = activity.start + activity.seconds
        seconds += max(0.0, finish - max(end, activity.start))
        end = max(end, finish)
    return seconds
