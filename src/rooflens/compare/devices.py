"""The same steps on several devices: speed-up, and what it costs in power and in money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from rooflens.compare.doubts import Doubtful
from rooflens.compare.timed_cases import TimedCase, timed_cases
from rooflens.compare.uncertainty import Interval, RatioChange
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import Case, Device
from rooflens.results import RecordSet, Room, Time
from rooflens.results.quantities import ratio
from rooflens.runs.options import PRICED

TIME_WORDS: Mapping[Time, str] = {"measured": "measured", "bound": "at the bound", "predicted": "as expected"}
"""How a sentence names the time that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDevice:
    """One step on one device beside the same step on the baseline; None is unknown.

    Attributes:
        speedup: the baseline's seconds over these; above 1 this device is faster. `interval`: at 95 %.
        watts: rated power of all devices that the step runs on.
        joules_per_sample: energy of a sample at rated power: an upper bound of what the device draws.
        speedup_per_watt: speed-up over the ratio of rated powers; `speedup_per_price`: over that of prices.
        room: how the memory that the step needs compares with that of the device.
    """

    case: Case
    baseline: str
    time: Time
    seconds: float
    speedup: float | None
    interval: Interval | None = None
    p: float | None = None
    watts: float | None = None
    joules_per_sample: float | None = None
    speedup_per_watt: float | None = None
    price: float | None = None
    speedup_per_price: float | None = None
    room: Room | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceComparison(Doubtful):
    """Steps on several devices.

    Attributes:
        rows: step by step, in the order of the devices; the baseline's own rows are among them.
        alone: steps that only one device, or not the baseline ran.
    """

    baseline: str
    rows: tuple[OnDevice, ...]
    alone: tuple[Case, ...]


def compare_devices(
    records: RecordSet,
    *,
    baseline: str | None = None,
    prices: Mapping[str, float] | None = None,
    time: Time | None = None,
) -> DeviceComparison:
    """Return each step on each device beside the same step on a baseline.

    Args:
        baseline: canonical name of a device in the set; default: the first one.
        prices: of devices by canonical name, in any unit that is the same for all: to buy one, or to rent it for an
            hour. A device of several (``2x t4``) has a price of its own.
        time: measured, predicted or bound; default: as of :func:`timed_cases`.

    Raises:
        InvalidValue: the set has no such device, or a price is none.
        Incomparable: no step was run or estimated on the baseline and on another device.
    """
    steps = [step for step in timed_cases(records, time=time) if step.case.device is not None]
    names = list(dict.fromkeys(step.case.device or "" for step in steps))
    known = dict(prices or {})
    check_prices(known, names, baseline)
    first = baseline or (names[0] if names else "")
    groups: dict[Case, dict[str, TimedCase]] = {}
    for step in steps:
        of_any_device = replace(step.case.without(PRICED), device=None)  # each has a price of its own
        groups.setdefault(of_any_device, {})[step.case.device or ""] = step
    several = [group for group in groups.values() if first in group and len(group) > 1]
    if not several:
        raise Incomparable(
            f"no step was seen on {first!r} and on another device (devices here: {', '.join(names) or 'none'}); measure"
            " or estimate the same cases on both"
        )
    rows = [
        _row(group[name], group[first], records.devices, known) for group in several for name in names if name in group
    ]
    alone = [step.case for group in groups.values() if group not in several for step in group.values()]
    return DeviceComparison(baseline=first, rows=tuple(rows), alone=tuple(alone))


def check_prices(prices: Mapping[str, float], devices: Iterable[str], baseline: str | None = None) -> None:
    """Raise InvalidValue for a price or a baseline of another device than those, or for a price that is none."""
    known = dict.fromkeys(devices)
    for name in (*prices, *([] if baseline is None else [baseline])):
        if name not in known:
            raise InvalidValue(f"no step on a device {name!r}; devices here: {', '.join(known) or 'none'}")
        if not 0 < prices.get(name, 1) < inf:
            raise InvalidValue(f"the price of {name!r} is {prices[name]}; leave out a price that is not known")


def _row(step: TimedCase, base: TimedCase, devices: Mapping[str, Device], prices: Mapping[str, float]) -> OnDevice:
    here, there = step.case.device or "", base.case.device or ""
    seconds, compared, samples = step.seconds or 0.0, _speedup(step, base), step.case.samples
    watts, price = _watts(step.case, devices), prices.get(here)
    return OnDevice(
        case=step.case,
        baseline=there,
        time=step.time,
        seconds=seconds,
        speedup=compared.ratio,
        interval=compared.interval,
        p=compared.p,
        watts=watts,
        joules_per_sample=watts * seconds / samples if watts is not None and samples else None,
        speedup_per_watt=ratio(compared.ratio, ratio(watts, _watts(base.case, devices))),
        price=price,
        speedup_per_price=ratio(compared.ratio, ratio(price, prices.get(there))),
        room=step.evidence.room,
    )


def _speedup(step: TimedCase, base: TimedCase) -> RatioChange:
    """Return seconds of the baseline over those of a device."""
    if step is base:
        return RatioChange(ratio=1.0)
    if step.samples and base.samples:
        from rooflens.compare.statistics import change  # scipy takes a second to load

        return change(step.samples, base.samples)
    return RatioChange(ratio=ratio(base.seconds, step.seconds))


def _watts(case: Case, devices: Mapping[str, Device]) -> float | None:
    """Return the rated power of the devices of a step; that of ``2x t4`` is a fact of it, as its memory is."""
    device = devices.get(case.device or "")
    power = None if device is None else device.facts.get("power")
    return None if power is None else power.value * int(dict(case.options).get("gpus", 1))
