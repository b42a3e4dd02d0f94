"""Counters that a file holds in another roll-up than their sum: per second, per cycle, or as an average over units.

What NVIDIA's guide to Nsight Compute says of roll-ups: ``.sum`` adds over the units of the chip (sm, smsp, lts ...),
``.avg`` divides that by their number; behind it ``.per_second`` divides by the time, ``.per_cycle_elapsed`` by the
cycles of the unit's clock, ``.per_cycle_active`` by those in which the unit worked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rooflens.sources.counters.launches import CounterNames, KernelLaunch, names_of
from rooflens.sources.counters.metrics import SHARE, SM_COUNT, TIME, Rollup, rollup_of
from rooflens.sources.counters.printed_numbers import CounterValue, is_whole
from rooflens.sources.counters.work import seconds_of

_OF_AN_SM = {"sm": 1, "smsp": 4}
"""Units of each multiprocessor, on every chip that Nsight Compute knows (7.0 and above)."""
_ONE_CLOCK = ("smsp", "sm")
_WORDS = {
    "per_second": "counters printed per second were multiplied by the time: as exact as they were printed",
    "per_cycle_elapsed": "counters printed per cycle were multiplied by the cycles: as exact as they were printed",
    **dict.fromkeys(
        ("per_cycle_active", "per_cycle_in_region", "per_cycle_in_frame"),
        "counters printed per cycle of some kind were multiplied by these: as exact as they were printed",
    ),
    "": "averages over the units of a chip were multiplied by their number",
}
_OF_MOST = "cycles are the most of any unit, for want of their mean: sums that follow from them are a little too large"
_OF_MEANS = "a mean rate times a mean time or mean cycles is the mean amount only where the launches are alike"
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class _RolledUp:
    """The counters of launches with the same names that can be converted.

    Attributes:
        forms: the roll-ups of each counter whose sum is not there, sums before averages.
        pairs: sum and average of one counter, by the unit that counts it.
        timed: sum and rate per second of one counter.
    """

    forms: Mapping[str, tuple[Rollup, ...]]
    pairs: Mapping[str, tuple[tuple[str, str], ...]]
    timed: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1024)
def _rolled_up(names: CounterNames) -> _RolledUp:
    there = frozenset(names.all)
    rollups = [rollup for name in names.all if (rollup := rollup_of(name)) is not None]
    forms: dict[str, tuple[Rollup, ...]] = {}
    for rollup in sorted(rollups, key=lambda rollup: rollup.average):
        if rollup.total not in there:
            forms[rollup.total] = (*forms.get(rollup.total, ()), rollup)
    pairs: dict[str, tuple[tuple[str, str], ...]] = {}
    for average in names.all:
        total = f"{average.removesuffix('.avg')}.sum"
        if average.endswith(".avg") and total in there:
            unit = average.partition("__")[0]
            pairs[unit] = (*pairs.get(unit, ()), (total, average))
    timed = [(r.total, r.name) for r in rollups if r.per == "per_second" and not r.average and r.total in there]
    return _RolledUp(forms, pairs, tuple(timed))


def with_sums(launch: KernelLaunch) -> tuple[str, ...]:
    """Give a settled launch the sums that follow from what it has, None for those that do not; return notes."""
    known = _rolled_up(launch.names)
    if not known.forms and not known.timed:
        return ()
    counters = dict(launch.counters)
    notes: dict[str, None] = {}
    lacking: dict[str, list[str]] = {}
    if seconds_of(counters) is None and (total := _timed(known.timed, counters)) is not None:
        notes[f"the time is {total} over the same per second: as exact as that was printed"] = None
    for total, forms in known.forms.items():
        counters[total] = None
        for form in forms:
            value, factor = counters[form.name], _factor(form, counters, known, launch.facts)
            if value is None:
                continue
            if value == 0:  # whatever it was divided by
                counters[total] = 0
                break
            if not isinstance(factor, str):
                counters[total] = value * factor
                words = [_WORDS[form.per], *([_WORDS[""]] if form.average and form.per else [])]
                words += [_OF_MOST] if _takes_most(form, counters) else []
                notes.update(dict.fromkeys([*words, *([_OF_MEANS] if launch.calls > 1 else [])]))
                break
            lacking.setdefault(factor, []).append(form.name)
    for what, names in lacking.items():
        unknown = [name for name in names if counters[rollup_of(name).total] is None]  # type: ignore[union-attr]
        if unknown:
            more = f" and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else ""
            notes[f"{', '.join(unknown[:_MOST_NAMES])}{more} cannot be turned into sums: the file lacks {what}"] = None
    launch.take(names_of(tuple(counters)), dict(counters))
    return tuple(notes)


def _timed(pairs: Iterable[tuple[str, str]], counters: dict[str, CounterValue]) -> str | None:
    """Take the time from the largest sum that the file holds per second too; return its name."""
    known = [(value, rate, total) for total, per in pairs if (value := counters[total]) and (rate := counters[per])]
    if not known:
        return None
    value, rate, total = max(known)
    counters[TIME] = value / rate
    return total


def _factor(
    form: Rollup, counters: Mapping[str, CounterValue], known: _RolledUp, facts: Mapping[str, str]
) -> float | str:
    """What the value of a roll-up times makes the sum, or what the file would need for that."""
    if form.per == SHARE:
        return "them in another form than as a share of a peak, which is no count"
    unit = form.total.partition("__")[0]
    factor: float = 1 / form.times
    if form.per:
        over, what = _over(form.per, unit, counters)
        if over is None:
            return what
        factor *= over
    if form.average:
        units = _units(unit, counters, known.pairs.get(unit, ()), facts)
        if units is None:
            return f"the number of its units ({unit}), or a counter of theirs as .sum and as .avg"
        factor *= units
    return factor


def _over(per: str, unit: str, counters: Mapping[str, CounterValue]) -> tuple[float | None, str]:
    """The time or the cycles by which a rate was divided, and what that is called."""
    seconds = seconds_of(counters)
    if per == "per_second":
        return seconds, f"the time ({TIME})"
    kind = per.removeprefix("per_cycle_")
    if kind != "elapsed":
        return counters.get(f"{unit}__cycles_{kind}.avg"), f"{unit}__cycles_{kind}.avg"
    clocked = (unit, *(_ONE_CLOCK if unit in _ONE_CLOCK else ()))
    for each in clocked:
        cycles, clock = (counters.get(f"{each}__cycles_elapsed.avg{rate}") for rate in ("", ".per_second"))
        if cycles is None and clock is not None and seconds is not None:
            cycles = clock * seconds
        if cycles is not None:
            return cycles, ""
    most = (counters.get(f"{each}__cycles_elapsed.max") for each in clocked)
    return next(filter(None, most), None), f"{unit}__cycles_elapsed.avg, or its clock and the time"


def _takes_most(form: Rollup, counters: Mapping[str, CounterValue]) -> bool:
    """True if elapsed cycles are only known as the most of any unit."""
    if form.per != "per_cycle_elapsed":
        return False
    unit = form.total.partition("__")[0]
    without = {name: value for name, value in counters.items() if not name.endswith("__cycles_elapsed.max")}
    return _over(form.per, unit, without)[0] is None


def _units(
    unit: str, counters: Mapping[str, CounterValue], pairs: Iterable[tuple[str, str]], facts: Mapping[str, str]
) -> int | None:
    """The number of units of a kind on the chip: as the file says, else sum over average of a counter of theirs."""
    processors, launched = facts.get(SM_COUNT, ""), counters.get("launch__sm_count")
    if unit in _OF_AN_SM and (is_whole(processors) or launched):
        return int(processors or launched or 0) * _OF_AN_SM[unit]
    known = [(average, total) for sum_, avg in pairs if (total := counters[sum_]) and (average := counters[avg])]
    average, total = max(known, default=(0, 0))
    return round(total / average) if average else None
