"""Kernels, copies and fills as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rooflens.costs import family_of
from rooflens.records import Case, Record, is_training
from rooflens.sources.profile.attribution import attribute
from rooflens.sources.profile.nsys.export import Export
from rooflens.sources.profile.operation_records import activity_name, in_every_step, record_of, whole_record


def cards_of(export: Export) -> tuple[int | None, ...]:
    """Return CUDA's numbers of the devices that did something, in the order of their first activity."""
    return tuple(dict.fromkeys(activity.device for activity in export.events.activities))


def records_of(export: Export, case_of: Callable[[int | None], Case]) -> Iterator[Record]:
    """Give a record per launch of a kernel, copy and fill, in the order of their start, then one of the model per case.

    Path and phase are those of the ranges that were open on the thread that launched it; what none tells is unknown.
    Where several steps are marked, the same launch of each is one record with a sample of each.

    Args:
        case_of: the case of what ran on a device, by CUDA's number.
    """
    shares = [(share, share.activity) for share in attribute(export.events, all_phases=True) if share.activity]
    shares.sort(key=lambda item: item[1].start)
    training = is_training(share.place.phase for share, _ in shares)
    for card in cards_of(export):
        case = replace(case_of(card), mode="train") if training else case_of(card)
        its = [share for share, activity in shares if activity.device == card]
        launched = [share for share in its if share.step is not None]
        steps = sorted({share.step for share in launched if share.step is not None})
        for same in in_every_step([share] for share in launched):
            operation = same[0].operation or ""
            record = record_of(same, case, "kernel", activity_name(same[0]), steps, kind=family_of(operation))
            yield replace(record, operation=operation, phase=record.phase if export.named else None)
        unplaced = sum(share.place.phase is None for share in launched)
        lost = [f"the phase of {unplaced} of them is not known: no range tells it"] if unplaced and export.named else []
        yield from whole_record(its, case, (), (*lost, *export.notes))
