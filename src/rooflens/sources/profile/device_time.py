"""What the times of activities add up to, and which of them cannot be true."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from statistics import median

from rooflens import units
from rooflens.records.timing import LONGEST
from rooflens.sources.profile.events import DeviceActivity

ROUNDING = 2e-6
"""Seconds by which two that follow each other may overlap: many files round starts and durations to microseconds."""
_MOST_LISTED, _LONGEST_NAME = 5, 60
_SHARES = Decimal("0.5")
"""Percent by which shares may miss 100 in any case."""
_MOST_STEPS = 8


def plausible(activities: Sequence[DeviceActivity]) -> tuple[tuple[DeviceActivity, ...], tuple[str, ...]]:
    """Return the activities with times that can be true, and notes on the others.

    One that stands in the file twice counts once. Those of one stream run one after the other: one that ends after the
    next has begun counts until then.
    """
    distinct = list(dict.fromkeys(activities))
    notes = []
    if twice := len(activities) - len(distinct):
        notes.append(f"{twice} of {in_words(len(activities))} stand in the file twice and count once")
    if endless := [(each.name, each.seconds) for each in distinct if each.seconds > LONGEST]:
        what = f"{len(endless)} of {in_words(len(distinct))}"
        notes.append(f"{what} last longer than a day, which cannot be: {listed(endless)}")
    streams: dict[tuple[int | None, ...], list[int]] = {}
    for n, activity in enumerate(distinct):
        if activity.stream is not None:
            streams.setdefault((activity.process, activity.device, activity.stream), []).append(n)
    cut = {}
    for its in streams.values():
        its.sort(key=lambda n: (distinct[n].start, distinct[n].seconds))
        for n, following in pairwise(n for n in its if distinct[n].seconds):
            until = distinct[following].start - distinct[n].start
            if distinct[n].seconds > until + ROUNDING:
                cut[n] = until
    if cut:
        told = listed((distinct[n].name, distinct[n].seconds) for n in cut)
        notes.append(
            f"{len(cut)} of {in_words(len(distinct))} end after the next one of their stream begins, which cannot be:"
            f" they count until then, {units.show(sum(cut.values()), 's')} in all; the file says {told}"
        )
    return tuple(replace(each, seconds=cut.get(n, each.seconds)) for n, each in enumerate(distinct)), tuple(notes)


def summed_in_words(seconds: float, calls: int, names: int) -> str:
    """Return what the rows of a summary add up to, where each is the mean of the calls of a name."""
    told = f"sum of times {units.show(seconds, 's')}: {in_words(calls)} by {names} names"
    return f"{told}. A record is the mean of its calls; the table does not tell how long the device was busy"


def doubt_of_shares(cells: Sequence[str], table: str) -> str:
    """Return what is wrong with the percentages of all rows of a table, "" where they add up to 100.

    Each may be off by half of its last digit. Where one is no number there is nothing to say.
    """
    try:
        shares = [Decimal(cell) for cell in cells]
        error = sum((Decimal(1).scaleb(int(share.as_tuple().exponent)) / 2 for share in shares), Decimal())
        total = sum(shares, Decimal())
    except (ArithmeticError, ValueError):  # no number, or an infinite one
        return ""
    if not shares or abs(total - 100) <= max(error, _SHARES):
        return ""
    if total > 100:
        return f"the shares of {table} add up to {float(total):g} %, which cannot be: rows were added or changed"
    return f"partial: the shares of {table} add up to {float(total):g} %: rows are missing, and the sum is too small"


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of some spans, each a start and an end.

    >>> busy([(0, 3), (2, 4), (6, 7)])
    5.0
    """
    seconds, latest = 0.0, -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(latest, start))
        latest = max(latest, end)
    return seconds


def each_in_words(seconds: Sequence[float]) -> str:
    """Return one time, or the median of several with the first of them."""
    shown = [units.show(each, "s") for each in seconds[:_MOST_STEPS]]
    if len(seconds) == 1:
        return shown[0]
    more = ", ..." if len(seconds) > _MOST_STEPS else ""
    return f"{units.show(median(seconds), 's')} (median of {', '.join(shown)}{more})"


def in_words(count: int) -> str:
    """Return a number of activities in words."""
    return "1 kernel, copy or fill" if count == 1 else f"{count} kernels, copies and fills"


def listed(times: Iterable[tuple[str, float]]) -> str:
    """Return names with their seconds, equal names once, the longest first."""
    sums: dict[str, float] = {}
    for name, seconds in times:
        sums[name] = sums.get(name, 0.0) + seconds
    longest = sorted(sums.items(), key=lambda item: -item[1])[:_MOST_LISTED]
    shown = ", ".join(f"{name[:_LONGEST_NAME]} {units.show(seconds, 's')}" for name, seconds in longest if seconds)
    return f"{shown}, ..." if len(sums) > _MOST_LISTED else shown
