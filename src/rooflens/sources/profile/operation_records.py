"""Attributed time as records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rooflens import units
from rooflens.costs import family_of
from rooflens.records import Case, Record, Scope, Timing
from rooflens.results import UNATTRIBUTED
from rooflens.sources.profile.attribution import TimeShare
from rooflens.sources.profile.device_time import busy, each_in_words, in_words, listed

ENGINE = "autograd engine"
_MOST_STREAMS = 8
_UNCLAIMED = "kernels that no operation claims are listed by their own names"


def records_of(shares: Iterable[TimeShare], case: Case, notes: tuple[str, ...] = ()) -> Iterator[Record]:
    """Give one record per call of an operation, in the order of the calls, then what no operation claims.

    Kernels without an operation have scope ``kernel``, each its own record. On a CPU the same scope holds the time that
    the autograd engine spends around its operations, one record per phase. Where several steps are marked, a record has
    a sample of each. A last record has the time of each step: that in which the device was busy, or the sum of host
    times. It states the coverage, and holds the `notes`.
    """
    every = list(shares)
    items = [share for share in every if share.step is not None]
    steps = sorted({share.step for share in items if share.step is not None})
    calls: dict[int, list[TimeShare]] = {}
    engine: dict[tuple[int | None, str | None], list[TimeShare]] = {}
    for share in items:
        if share.call is not None:
            calls.setdefault(share.call, []).append(share)
        elif share.activity is None:
            engine.setdefault((share.step, share.place.phase), []).append(share)
    operations = [its for _, its in sorted(calls.items())]
    kernels = [[share] for share in items if share.call is None and share.activity is not None]
    for its in in_every_step(operations):
        name = its[0].operation or ""
        yield record_of(its, case, "op", name, steps, kind=family_of(name))
    for its in in_every_step(kernels):
        yield record_of(its, case, "kernel", activity_name(its[0]), steps, notes=(_UNCLAIMED,))
    for its in in_every_step(engine.values()):
        yield record_of(its, case, "kernel", ENGINE, steps)
    yield from whole_record(every, case, [_coverage(items)] if items else [], notes)


def in_every_step(calls: Iterable[list[TimeShare]]) -> Iterable[list[TimeShare]]:
    """Return the calls of all steps: the n-th of a name and place in one step is the n-th of it in another."""
    seen: Counter[object] = Counter()
    same: dict[object, list[TimeShare]] = {}
    for its in calls:
        first = its[0]
        key = first.operation, None if first.call is not None else activity_name(first), first.place
        seen[first.step, key] += 1
        same.setdefault((seen[first.step, key], key), []).extend(its)
    return same.values()


def activity_name(share: TimeShare) -> str:
    """Return the name of what the device did, "" for host time."""
    return "" if share.activity is None else share.activity.name


def record_of(
    shares: Sequence[TimeShare],
    case: Case,
    scope: Scope,
    name: str,
    steps: Sequence[int],
    *,
    kind: str = "other",
    notes: tuple[str, ...] = (),
) -> Record:
    """Return the record of shares that belong to one call, or of a kernel, in the place of the first.

    It has a sample for each of the `steps`; one in which the call did not happen took none of its time.
    """
    place = shares[0].place
    seconds = dict.fromkeys(steps, 0.0)
    for share in shares:
        seconds[share.step or 0] += share.seconds
    some = len({share.step for share in shares})
    shapes = {share.shapes for share in shares}
    return Record(
        case=case,
        source="profile",
        scope=scope,
        path=UNATTRIBUTED if place.path is None else place.path,
        kind=kind,
        name=name,
        phase=place.phase,
        shapes=shapes.pop() if len(shapes) == 1 else None,
        timing=Timing(samples=tuple(seconds.values()), origin="profiler"),
        recomputed=place.recomputed,
        notes=notes if some == len(steps) else (*notes, f"{name} ran in {some} of {len(steps)} steps"),
    )


def whole_record(
    shares: Sequence[TimeShare], case: Case, coverage: Sequence[str], notes: Sequence[str]
) -> Iterator[Record]:
    """Give the record of the model: the time of each step, with notes on what it is and on what belongs to none."""
    steps: dict[int, list[TimeShare]] = {}
    outside: list[TimeShare] = []
    for share in shares:
        (outside if share.step is None else steps.setdefault(share.step, [])).append(share)
    ordered = [its for _, its in sorted(steps.items())]
    sums = [math.fsum(share.seconds for share in its) for its in ordered]
    # Starts have fewer digits than durations: since 1970, microseconds are known to a quarter of one.
    covered = [busy(filter(None, (share.span for share in its))) for its in ordered]
    samples = [min(pair) for pair in zip(covered, sums, strict=True)]
    told = [*coverage, *([_times_note(ordered, samples, sums)] if samples else []), *outside_notes(outside), *notes]
    if told:
        time = Timing(samples=tuple(samples), origin="profiler") if samples else None
        span = None if time is None else _span(ordered, samples)
        yield Record(case=case, source="profile", scope="model", busy=time, span=span, notes=tuple(told))


def _span(steps: Sequence[Sequence[TimeShare]], covered: Sequence[float]) -> Timing | None:
    """From the first start on the device to the last end, in each step; None of host time, or where no start is known.

    Rounded starts make no span shorter than what was `covered`.
    """
    spans = [[share.span for share in its if share.span is not None and share.activity is not None] for its in steps]
    if not all(spans):
        return None
    lengths = [max(end for _, end in its) - min(start for start, _ in its) for its in spans]
    return Timing(samples=tuple(map(max, lengths, covered)), origin="profiler")


def _times_note(steps: Sequence[Sequence[TimeShare]], covered: Sequence[float], sums: Sequence[float]) -> str:
    """Busy time and sum of times of each step, and on which streams it ran."""
    every = [share for its in steps for share in its]
    activities = [share.activity for share in every if share.activity is not None]
    streams = Counter(activity.stream for activity in activities if activity.stream is not None)
    on = ", ".join(str(stream) for stream, _ in streams.most_common(_MOST_STREAMS))
    return (
        f"busy time {each_in_words(covered)}, sum of times {each_in_words(sums)}:"
        f" {in_words(len(activities)) if activities else f'host time of {len(every)} operations'}"
        f"{f' in {len(steps)} steps' if len(steps) > 1 else ''}{f' on streams {on}' if len(streams) > 1 else ''}"
        f"{', taken as one step' if len(steps) == 1 else ''}"
    )


def is_attributed(share: TimeShare) -> bool:
    """True if operation and module are known."""
    return share.operation is not None and share.place.path is not None


def _coverage(items: Sequence[TimeShare]) -> str:
    """The share of the time that belongs to an operation, of a module where some are named; the longest of the rest."""
    on_device = any(share.activity is not None for share in items)
    total = sum(share.seconds for share in items)
    known = sum(share.seconds for share in items if is_attributed(share))
    named = any(share.place.path for share in items if is_attributed(share))
    rest = [(its.operation or activity_name(its) or ENGINE, its.seconds) for its in items if not is_attributed(its)]
    shown = listed(rest)
    what = "device time" if on_device else "host time of operations"
    percent = f"{100 * known / total:.1f} %" if total else "nothing"
    return (
        f"profiled once, apart from what is timed: {percent} of {units.show(total, 's')} {what} belongs to an operation"
        f"{' of a module' if named else ', and none names its module'}{f'; the rest: {shown}' if shown else ''}"
    )


def outside_notes(shares: Iterable[TimeShare]) -> Iterator[str]:
    """Give notes on the time that belongs to no step."""
    early = "before the recording began, and ended before the first that it saw launched"
    for launched, when in ((False, early), (True, "outside of the marked steps")):
        its = [share for share in shares if share.launched == launched]
        if its:
            on_device = its[0].activity is not None
            what, began = (in_words(len(its)), "launched") if on_device else (f"{len(its)} operations", "begun")
            total = units.show(sum(share.seconds for share in its), "s")
            names = listed((activity_name(share) or share.operation or ENGINE, share.seconds) for share in its)
            yield f"{what} of {total}, {began} {when}, belong to no step and are left out: {names}"
