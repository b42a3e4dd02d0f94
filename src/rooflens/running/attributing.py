"""Joins kernels that ncu counted with the same kernels of a plain run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from rooflens.costs import family_of
from rooflens.records import Record, Timing, Work
from rooflens.results import UNATTRIBUTED
from rooflens.running.observations import CountingPlan
from rooflens.sources.counters import short
from rooflens.sources.profile import TimeShare
from rooflens.sources.profile.events import DeviceActivity
from rooflens.sources.profile.launches import launch_order

REPLAYED = "the time is ncu's own, of a replayed kernel: no launch of a plain run stands beside it"
UNCOUNTED = "copies and fills have a time and no counters"
EQUAL = "counts are those of an equal launch: the same kernel, grid, block and operands"
UNREACHED = "not counted, and no launch that does the same: its FLOP and bytes are unknown"


def attributed(counted: Sequence[Record], shares: Iterable[TimeShare]) -> list[Record]:
    """Return each counted kernel with time, operation, module and phase of its launch in a plain run.

    Both runs launch the same kernels in the same order. Where they differ, the longest common parts are joined.

    Args:
        counted: kernels of one step, in the order of launches.
        shares: the profile of the same step. Its copies and fills, which have no counters, follow.
    """
    launched = _in_order(shares)
    kernels = [(share, activity) for share, activity in launched if activity.kind == "kernel"]
    partners = dict(pairs([short(r.name) for r in counted], [short(activity.name) for _, activity in kernels]))
    joined = [
        _joined(record, kernels[partners[n]][0]) if n in partners else replayed(record)
        for n, record in enumerate(counted)
    ]
    if counted:
        joined += [_uncounted(*launch, counted[0]) for launch in launched if launch[1].kind != "kernel"]
    return joined


def spread(
    found: Mapping[int, Record], strangers: Sequence[Record], shares: Iterable[TimeShare], plan: CountingPlan
) -> list[Record]:
    """Return every kernel of a step, each with the counts of the launch that stands for it; then copies and fills.

    Args:
        found: what was counted, by the number of the launch.
        strangers: kernels that were counted, and that the profile does not have.
        shares: the profile of the step for which the plan was made.
    """
    launched = _in_order(shares)
    kernels = [launch for launch in launched if launch[1].kind == "kernel"]
    like = next(iter((*found.values(), *strangers)))
    joined = []
    for n, (share, activity) in enumerate(kernels):
        theirs = found.get(plan.stands[n])
        if n in found:
            joined.append(_joined(found[n], share))
        elif theirs is not None:
            joined.append(_joined(replace(theirs, notes=(*theirs.notes, EQUAL)), share))
        else:
            joined.append(_unreached(share, activity, like))
    copies = [_uncounted(*launch, like) for launch in launched if launch[1].kind != "kernel"]
    return [*joined, *map(replayed, strangers), *copies]


def replayed(record: Record) -> Record:
    """Return a kernel with a note that its time is ncu's."""
    return replace(record, notes=(*record.notes, REPLAYED))


def kernels_of(shares: Iterable[TimeShare]) -> list[TimeShare]:
    """Return the kernels of a profile, in the order in which the host launched them."""
    return [share for share, activity in _in_order(shares) if activity.kind == "kernel"]


def _in_order(shares: Iterable[TimeShare]) -> list[tuple[TimeShare, DeviceActivity]]:
    """Return device activities with their shares, in the order in which the host launched them."""
    launched = [(share, share.activity) for share in shares if share.activity is not None]
    return sorted(launched, key=lambda item: launch_order(item[1]))


def pairs(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield indices of equal names, in order on both sides."""
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


def _unreached(share: TimeShare, activity: DeviceActivity, like: Record) -> Record:
    work = Work(origin="executed", missing=frozenset({short(activity.name)}))
    name, notes = activity.name, (UNREACHED,)
    bare = Record(case=like.case, source=like.source, scope="kernel", name=name, work=work, notes=notes)
    return _joined(bare, share)


def _uncounted(share: TimeShare, activity: DeviceActivity, like: Record) -> Record:
    bare = Record(case=like.case, source=like.source, scope="kernel", name=activity.name, notes=(UNCOUNTED,))
    return _joined(bare, share)
