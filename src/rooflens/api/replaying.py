"""Replays: a model's own operations, each timed alone on this machine's GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rooflens.api.arguments import named_options
from rooflens.api.estimation import estimate
from rooflens.api.reading import read
from rooflens.errors import InvalidValue
from rooflens.machine import Machine, this_machine
from rooflens.progress import Progress, waiting
from rooflens.records import Record, is_record_file
from rooflens.results import RecordSet
from rooflens.sources.device_lock import alone_on


@named_options(estimate, without=["device"])
def replay(model: str | Path, *, progress: Progress | None = None, **options: Any) -> RecordSet:
    """Time each distinct operation of a model alone on this machine's GPU, without the model's code or weights.

    >>> replay("resnet50", batch=64, dtype="bf16").total().predicted_seconds  # doctest: +SKIP

    Args:
        model: as of :func:`estimate`, or a record file that holds estimates for this machine's GPU.
        options: as of :func:`estimate`, except `device`: it is this machine's GPU.

    Returns:
        The estimates, and beside them what was replayed: the sum of the operations' times is their `measured` time, and
        the expected time of the step is of level ``replayed``. Times are kept in the user's cache, so that a model
        whose operations another one has had costs almost nothing.

    Raises:
        InvalidValue: there is no GPU here that the catalogue knows, or the file has no estimates for it.
    """
    here = this_machine("cuda")
    if here.device is None:
        raise InvalidValue(f"the catalogue does not know this machine's GPU, {here.title!r}; run 'rooflens calibrate'")
    if is_record_file(model):
        if options:
            raise InvalidValue(f"{min(options)} is an option of a model, and {str(model)!r} is a record file")
        estimates = read(model)
    else:
        estimates = estimate(str(model), device=here.device, **options)
    mine = estimates.where(source="estimate", device=here.device.name)
    if not mine.records:
        raise InvalidValue(f"{str(model)!r} holds no estimates for {here.device.name!r}, which is this machine's GPU")
    return mine + RecordSet(_replayed(mine, here, progress), devices=mine.devices)


def _replayed(estimates: RecordSet, here: Machine, progress: Progress | None) -> list[Record]:
    from rooflens.sources.conditions import Observer
    from rooflens.sources.replay import KeptTimes, kept_path, replayed, time_alone

    with alone_on("cuda", waiting(progress)):
        kept = KeptTimes.read(kept_path(here.stored))
        with Observer("cuda").around() as seen:
            records = list(replayed(estimates, estimates.devices, time_alone, kept, progress))
    notes = tuple(seen.notes)
    return [replace(record, notes=(*record.notes, *notes)) if record.scope == "model" else record for record in records]
