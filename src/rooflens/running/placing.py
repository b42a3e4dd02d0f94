"""Counters that a file holds, with time and place of the same launches in a trace of the same step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rooflens.errors import FileError, InvalidValue
from rooflens.records import Record, is_training
from rooflens.results import RecordSet
from rooflens.running.attributing import REPLAYED, attributed
from rooflens.sources import profile

ALONE = "the trace has no such launch at this place: the time is that of the file, and operation and module are unknown"
_MOST_PAIRS = 10**9
"""Launches times launches: beyond this the comparison of two long lists takes minutes."""


def placed(records: RecordSet, trace: str | Path) -> RecordSet:
    """Return counters with the operations, modules, phases and times of the launches in a trace of PyTorch's profiler.

    Launches are joined in order by the names of their kernels. Of several marked steps the first one counts.

    Raises:
        InvalidValue: the records hold no counters of launches, or those of several cases.
        FileError: the trace is damaged, or has no launch of the same kernels.
    """
    path = Path(trace)
    counted = [r for r in records if r.source == "counters" and r.scope == "kernel"]
    cases = {r.case for r in counted}
    if len(cases) != 1:
        what = "no launches with counters" if not cases else f"launches of {len(cases)} cases (several GPUs?)"
        raise InvalidValue(f"a trace tells places of the launches of one case, and the files hold {what}")
    shares = profile.attribute(profile.read_trace(path))
    steps = sorted({share.step for share in shares if share.step is not None})
    of_step = [share for share in shares if share.step == steps[0]] if steps else []
    kernels = sum(share.activity is not None and share.activity.kind == "kernel" for share in of_step)
    if kernels * len(counted) > _MOST_PAIRS:
        raise InvalidValue(
            f"{len(counted)} launches and {kernels} in {path.name!r} are too many to compare; count one step"
        )
    joined = attributed(counted, of_step)
    alone = sum(REPLAYED in r.notes for r in joined)
    if alone == len(counted):
        raise FileError(
            f"{str(path)!r} has no launch of the kernels that were counted: is it a trace of the same program?"
        )
    notes = [
        f"times, operations, modules and phases are those of {path.name}: {len(counted) - alone} launches are joined"
    ]
    if len(steps) > 1:
        notes.append(f"the trace has {len(steps)} steps: the first one is taken")
    train = is_training(r.phase for r in joined)
    case = replace(next(iter(cases)), mode="train") if train else next(iter(cases))
    first, *others = (_of_file(replace(r, case=case)) for r in joined)
    rest = [r for r in records if not (r.source == "counters" and r.scope == "kernel")]
    return records.with_records([*rest, replace(first, notes=(*first.notes, *notes)), *others])


def _of_file(record: Record) -> Record:
    """A launch whose time may be the file's own, whoever wrote it."""
    return replace(record, notes=tuple(ALONE if note == REPLAYED else note for note in record.notes))
