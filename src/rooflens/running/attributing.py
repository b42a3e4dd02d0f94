"""Kernels that ncu counted, joined with the same kernels of a run that was not replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from rooflens.costs import family_of
from rooflens.records import Record, Timing
from rooflens.results import UNATTRIBUTED
from rooflens.sources.counters import short
from rooflens.sources.profile import TimeShare

REPLAYED = "the time is ncu's own, of a replayed kernel: no launch of a plain run stands beside it"
UNCOUNTED = "copies and fills have a time and no counters"


def attributed(counted: Sequence[Record], shares: Iterable[TimeShare], *, whole: bool = True) -> list[Record]:
    """Each counted kernel with the time, the operation, the module and the phase of its launch in a plain run.

    Both runs launch the same kernels in the same order; where they differ, the longest common parts are joined.

    Args:
        counted: of one step, in the order of launches.
        shares: what the profiler saw of the same step.
        whole: whether all of the step was counted; then what has no counters (copies and fills) is listed too.
    """
    launched = _in_order(shares)
    kernels = [share for share in launched if share.activity is not None and share.activity.kind == "kernel"]
    partners = dict(_pairs([short(r.name) for r in counted], [short(_name(share)) for share in kernels]))
    found = [
        _joined(record, kernels[partners[n]]) if n in partners else replayed(record) for n, record in enumerate(counted)
    ]
    if whole and counted:
        others = [share for share in launched if share.activity is not None and share.activity.kind != "kernel"]
        found += [_uncounted(share, counted[0]) for share in others]
    return found


def replayed(record: Record) -> Record:
    """A kernel whose time is that which ncu gives."""
    return replace(record, notes=(*record.notes, REPLAYED))


def _in_order(shares: Iterable[TimeShare]) -> list[TimeShare]:
    """Device activities in the order in which the host launched them."""
    items = [share for share in shares if share.activity is not None]
    return sorted(items, key=lambda share: (_correlation(share) is None, _correlation(share) or 0, _start(share)))


def _correlation(share: TimeShare) -> int | None:
    assert share.activity is not None
    return share.activity.correlation


def _start(share: TimeShare) -> float:
    assert share.activity is not None
    return share.activity.start


def _name(share: TimeShare) -> str:
    assert share.activity is not None
    return share.activity.name


def _pairs(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of equal names, in order on both sides."""
    same = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    yield from ((n, n) for n in range(same))
    rest = SequenceMatcher(None, ours[same:], theirs[same:], autojunk=False)
    for a, b, size in rest.get_matching_blocks():
        yield from ((same + a + n, same + b + n) for n in range(size))


def _joined(record: Record, share: TimeShare) -> Record:
    operation = share.operation or ""
    return replace(
        record,
        path=UNATTRIBUTED if share.place.path is None else share.place.path,
        phase=share.place.phase,
        operation=operation,
        kind=family_of(operation),
        timing=Timing(samples=(share.seconds,), origin="profiler"),
        recomputed=share.place.recomputed,
    )


def _uncounted(share: TimeShare, like: Record) -> Record:
    bare = Record(case=like.case, source=like.source, scope="kernel", name=_name(share), notes=(UNCOUNTED,))
    return _joined(bare, share)
