"""Limits of the time of a token: the largest batch, or the longest context, that keeps them on a device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from rooflens.capacity.search import largest
from rooflens.capacity.step_sizes import StepSizes
from rooflens.errors import InvalidValue
from rooflens.records import Device
from rooflens.results import Fit, Quantity, RecordSet, TimeLimit, join
from rooflens.results.answers import TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from rooflens.results.factors import Time
from rooflens.units import parse, show

_LIMITED: Mapping[str, tuple[Quantity, tuple[str, ...]]] = {
    "max_time_per_token": (TIME_PER_OUTPUT_TOKEN, ("decode", "generate")),
    "max_time_to_first_token": (TIME_TO_FIRST_TOKEN, ("prefill", "generate")),
}
"""Arguments, what each limits, and the modes that have it."""


def asked_limits(mode: str, **given: str | float | None) -> tuple[TimeLimit, ...]:
    """Return the limits of an argument each: seconds, or text like ``50 ms``.

    Raises:
        InvalidValue: no time above zero, or a time that the mode has not.
    """
    limits = []
    for name, value in given.items():
        if value is None:
            continue
        quantity, modes = _LIMITED[name]
        seconds = parse(value, "s") if isinstance(value, str) else value
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise InvalidValue(f"{name} is {value!r}; give a time above zero, like '50 ms'")
        if mode not in modes:
            raise InvalidValue(
                f"{name}={value!r} limits the {quantity.title}, and mode {mode!r} has none; give mode"
                f" {' or '.join(modes)}" + (", which prompt_len and output_len say" if mode != "generate" else "")
            )
        limits.append(TimeLimit(quantity=quantity, seconds=float(seconds)))
    return tuple(limits)


def in_time(fit: Fit, sizes: StepSizes, limits: Sequence[TimeLimit]) -> Fit:
    """Return what fits into memory and keeps the limits by the expected time; where none is known, by the bound.

    The bound grows with the size, and the expected time hardly ever falls: the answer keeps the limits, and one more
    does not.
    """
    if not limits or not fit.size:
        return replace(fit, time_limits=tuple(limits))
    times = _Times(sizes, fit.device, limits)
    bounded = largest(partial(times.share, time="bound"), 1.0, cap=fit.size)
    by: Time = "predicted" if times.is_expected else "bound"
    size = bounded if by == "bound" else largest(partial(times.share, time=by), 1.0, cap=fit.size)
    kept = tuple(replace(limit, found=times.value(size or 1, limit, by)) for limit in limits)
    found = replace(fit, time_limits=kept, by_bound=bounded, timed_by=by)
    if size == fit.size:
        return found
    late = times.latest(size + 1, by)
    value = times.value(size + 1, late, by)
    reason = "" if size else f"one {fit.unit} has a {late.quantity.title} of {show(value, 's', 3)}"
    case = sizes.case(size or 1, fit.device)
    return replace(
        found, size=size, capped=False, in_memory=fit.in_memory or fit.size, late=late, case=case, reason=reason
    )


class _Times:
    """Times of a step, or of a whole answer, at any size on a device."""

    def __init__(self, sizes: StepSizes, device: Device, limits: Sequence[TimeLimit]) -> None:
        def evidence(size: int) -> RecordSet:
            return RecordSet(sizes.records(size, device), devices={device.name: device})

        @cache
        def value(size: int, limit: TimeLimit, time: Time) -> float | None:
            (one,) = join(evidence(size))
            return limit.quantity.read(one, time=time).value

        self._limits = limits
        self._known = value

    @property
    def is_expected(self) -> bool:
        """True if times are expected on the device, and not known by their bounds alone."""
        return all(self._known(1, limit, "predicted") is not None for limit in self._limits)

    def value(self, size: int, limit: TimeLimit, time: Time) -> float:
        """Return the seconds that are limited."""
        value = self._known(size, limit, time)
        return math.inf if value is None else value

    def share(self, size: int, time: Time) -> float:
        """Return the time of a size as a share of its limit: of several limits that which leaves least."""
        return max(self.value(size, limit, time) / limit.seconds for limit in self._limits)

    def latest(self, size: int, time: Time) -> TimeLimit:
        """Return the limit that a size keeps least."""
        return max(self._limits, key=lambda limit: self.value(size, limit, time) / limit.seconds)
