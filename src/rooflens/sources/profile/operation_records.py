"""Attributed time as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rooflens import units
from rooflens.costs import family_of
from rooflens.records import Case, Record, Timing
from rooflens.results import UNATTRIBUTED
from rooflens.sources.profile.attribution import TimeShare

ENGINE = "autograd engine"
_MOST_LISTED, _LONGEST_NAME = 5, 60


def records_of(shares: Iterable[TimeShare], case: Case, notes: tuple[str, ...] = ()) -> Iterator[Record]:
    """One record per call of an operation, in the order in which they were called, then what no operation claims.

    Kernels without an operation have scope ``kernel``, each its own record. On a CPU the same scope holds the time that
    the autograd engine spends around its operations, one record per phase. A last record states the coverage, and holds
    the `notes`.
    """
    items = list(shares)
    calls: dict[int, list[TimeShare]] = {}
    for share in items:
        if share.call is not None:
            calls.setdefault(share.call, []).append(share)
    yield from (_operation(parts, case) for _, parts in sorted(calls.items()))
    yield from (_kernel(share, case) for share in items if share.call is None and share.activity is not None)
    yield from _engine([share for share in items if share.call is None and share.activity is None], case)
    if items:
        notes = (_coverage(items), *notes)
    if notes:
        yield Record(case=case, source="profile", scope="model", notes=notes)


def is_attributed(share: TimeShare) -> bool:
    """Whether operation and module are known."""
    return share.operation is not None and share.place.path is not None


def _operation(parts: Sequence[TimeShare], case: Case) -> Record:
    first = parts[0]
    return Record(
        case=case,
        source="profile",
        scope="op",
        path=_path(first),
        kind=family_of(first.operation or ""),
        name=first.operation or "",
        phase=first.place.phase,
        timing=_timing(parts),
        recomputed=first.place.recomputed,
    )


def _kernel(share: TimeShare, case: Case) -> Record:
    assert share.activity is not None
    return Record(
        case=case,
        source="profile",
        scope="kernel",
        path=_path(share),
        kind="other",
        name=share.activity.name,
        phase=share.place.phase,
        timing=_timing([share]),
        recomputed=share.place.recomputed,
        notes=("kernels that no operation claims are listed by their own names",),
    )


def _engine(lost: Sequence[TimeShare], case: Case) -> Iterator[Record]:
    for phase in dict.fromkeys(share.place.phase for share in lost):
        parts = [share for share in lost if share.place.phase == phase]
        yield Record(
            case=case,
            source="profile",
            scope="kernel",
            path=UNATTRIBUTED,
            kind="other",
            name=ENGINE,
            phase=phase,
            timing=_timing(parts),
        )


def _path(share: TimeShare) -> str:
    return UNATTRIBUTED if share.place.path is None else share.place.path


def _timing(parts: Sequence[TimeShare]) -> Timing:
    return Timing(samples=(sum(share.seconds for share in parts),), origin="profiler")


def _coverage(items: Sequence[TimeShare]) -> str:
    """How much of the time belongs somewhere, and what the longest of the rest is."""
    on_device = any(share.activity is not None for share in items)
    total = sum(share.seconds for share in items)
    known = sum(share.seconds for share in items if is_attributed(share))
    rest: dict[str, float] = {}
    for share in items:
        if not is_attributed(share):
            name = share.operation or (ENGINE if share.activity is None else share.activity.name)
            rest[name] = rest.get(name, 0.0) + share.seconds
    longest = sorted(rest.items(), key=lambda item: -item[1])[:_MOST_LISTED]
    listed = ", ".join(f"{name[:_LONGEST_NAME]} {units.show(seconds, 's')}" for name, seconds in longest if seconds)
    what = "device time" if on_device else "host time of operations"
    percent = f"{100 * known / total:.1f} %" if total else "nothing"
    return (
        f"profiled once, apart from what is timed: {percent} of {units.show(total, 's')} {what} belongs to an operation"
        f" of a module{f'; the rest: {listed}' if listed else ''}"
    )
