"""Attributed time as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rooflens import units
from rooflens.costs import family_of
from rooflens.records import Case, Record, Scope, Timing
from rooflens.results import UNATTRIBUTED
from rooflens.sources.profile.attribution import TimeShare

ENGINE = "autograd engine"
_MOST_LISTED, _LONGEST_NAME = 5, 60
_UNCLAIMED = "kernels that no operation claims are listed by their own names"


def records_of(shares: Iterable[TimeShare], case: Case, notes: tuple[str, ...] = ()) -> Iterator[Record]:
    """Give one record per call of an operation, in the order of the calls, then what no operation claims.

    Kernels without an operation have scope ``kernel``, each its own record. On a CPU the same scope holds the time that
    the autograd engine spends around its operations, one record per phase. A last record states the coverage, and holds
    the `notes`.
    """
    items = list(shares)
    calls: dict[int, list[TimeShare]] = {}
    lost: dict[str | None, list[TimeShare]] = {}
    for share in items:
        if share.call is not None:
            calls.setdefault(share.call, []).append(share)
        elif share.activity is None:
            lost.setdefault(share.place.phase, []).append(share)
    for _, its in sorted(calls.items()):
        yield record_of(its, case, "op", its[0].operation or "", kind=family_of(its[0].operation or ""))
    for share in items:
        if share.call is None and share.activity is not None:
            yield record_of([share], case, "kernel", share.activity.name, notes=(_UNCLAIMED,))
    for its in lost.values():
        yield record_of(its, case, "kernel", ENGINE)
    if items:
        notes = (_coverage(items), *notes)
    if notes:
        yield Record(case=case, source="profile", scope="model", notes=notes)


def record_of(
    shares: Sequence[TimeShare],
    case: Case,
    scope: Scope,
    name: str,
    *,
    kind: str = "other",
    notes: tuple[str, ...] = (),
) -> Record:
    """Return the record of shares that belong to one call, or of a kernel, in the place of the first."""
    place = shares[0].place
    return Record(
        case=case,
        source="profile",
        scope=scope,
        path=UNATTRIBUTED if place.path is None else place.path,
        kind=kind,
        name=name,
        phase=place.phase,
        timing=Timing(samples=(sum(share.seconds for share in shares),), origin="profiler"),
        recomputed=place.recomputed,
        notes=notes,
    )


def is_attributed(share: TimeShare) -> bool:
    """True if operation and module are known."""
    return share.operation is not None and share.place.path is not None


def _coverage(items: Sequence[TimeShare]) -> str:
    """The share of the time that belongs to an operation of a module, and the longest of the rest."""
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
