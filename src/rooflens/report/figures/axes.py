"""Axes of figures and charts: where a value lies on them, and their ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rooflens import units
from rooflens.errors import InvalidValue

XY = tuple[float, float]
"""A point in the units of its axes."""
Scale = Literal["log", "linear"]
_MOST_TICKS = 6
_LEAST, _MOST = 1e-60, 1e60
"""Of what is drawn on a logarithmic axis, in base units."""
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis that holds everything on the picture.

    Attributes:
        label: what it shows, with the unit where the ticks do not name it.
        unit: base unit of the ticks, "" for bare numbers.
    """

    label: str
    low: float
    high: float
    unit: str = ""
    scale: Scale = "log"

    @classmethod
    def around(cls, label: str, values: list[float], unit: str = "", margin: float = 1.6) -> Axis:
        """Return a logarithmic axis with some room around the values; InvalidValue as in `check_drawable`."""
        check_drawable(label, *values)
        return cls(label=label, low=min(values) / margin, high=max(values) * margin, unit=unit)


def check_drawable(what: str, *values: float) -> None:
    """Raise InvalidValue if a value is too small or too large for a logarithmic axis."""
    odd = [value for value in values if not _LEAST <= value <= _MOST]
    if odd:
        raise InvalidValue(
            f"cannot draw {what}: {odd[0]:g} is no number of hardware; what can be drawn lies between {_LEAST:g} and"
            f" {_MOST:g}; look at the FLOP, bytes and times of its records"
        )


def place(axis: Axis, value: float) -> float:
    """Return where a value lies on the axis, from 0 at its low end to 1 at its high end."""
    if axis.scale == "linear":
        return (value - axis.low) / (axis.high - axis.low)
    low, high = math.log10(axis.low), math.log10(axis.high)
    return (math.log10(value) - low) / (high - low)


def ticks(axis: Axis, most: int = _MOST_TICKS) -> list[float]:
    """Return round values inside the axis, as many as possible and at most `most`."""
    if axis.scale == "linear":
        step = _round_step((axis.high - axis.low) / max(1, most - 1))
        shown = _multiples(axis, step)
        return shown if len(shown) > 1 else _multiples(axis, _round_step((axis.high - axis.low) / 2.5))
    within = ([tick for tick in wanted if axis.low <= tick <= axis.high] for wanted in log_ticks(axis))
    return next((inside for inside in within if len(inside) <= most), [])


def log_ticks(axis: Axis, beyond: int = 0) -> list[list[float]]:
    """Return the choices of round values around a logarithmic axis, the finest first.

    Args:
        beyond: decades that somebody may see on either side of it.
    """
    powers = range(math.floor(math.log10(axis.low)) - beyond, math.ceil(math.log10(axis.high)) + beyond + 1)
    finest = [[10.0**power * factor for power in powers for factor in factors] for factors in ((1, 2, 5), (1, 3))]
    return finest + [[10.0**power for power in powers if power % every == 0] for every in range(1, len(powers) + 1)]


def _multiples(axis: Axis, step: float) -> list[float]:
    first = math.ceil(axis.low / step - 1e-9)
    return [step * n for n in range(first, math.floor(axis.high / step + 1e-9) + 1)]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999)


def tick_text(axis: Axis, value: float) -> str:
    """Return the text of a tick, with the prefix and unit of its axis."""
    if axis.unit == "%":
        return f"{100 * value:.0f} %"
    if not value:
        return "0"
    digits = next(n for n in (1, 2, 3, 4) if float(f"{value:.{n - 1}e}") == float(f"{value:.3e}") or n == 4)
    if axis.unit or value >= 10_000:
        return units.show(value, axis.unit, digits)
    power = round(math.log10(value))
    return f"{value:g}" if power > -4 else power_of_ten(power)


def power_of_ten(power: int) -> str:
    """Return a power of ten as people write it: 10⁻⁵."""
    return f"10{str(power).translate(_RAISED)}"
