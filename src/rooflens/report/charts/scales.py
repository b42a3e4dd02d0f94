"""Where a value lies on an axis, which ticks an axis has, and the colours that depend on a value or on the paper."""

from __future__ import annotations

import math

from rooflens import units
from rooflens.report.charts.chart import Axis

_MOST_TICKS = 6
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_DARK = "#14181d"
"""The ground of a dark page, as in the style sheet."""
_CONTRAST = 4.5
_BLUE, _WHITE, _RED = (5, 80, 150), (250, 250, 250), (178, 62, 10)


def place(axis: Axis, value: float) -> float:
    """Where on the axis a value lies: 0 is its low end, 1 its high one."""
    if axis.scale == "linear":
        return (value - axis.low) / (axis.high - axis.low)
    return math.log(value / axis.low) / math.log(axis.high / axis.low)


def ticks(axis: Axis, most: int = _MOST_TICKS) -> list[float]:
    """Round values inside the axis, as many as can be and no more than `most`."""
    if axis.scale == "linear":
        step = _round_step((axis.high - axis.low) / max(1, most - 1))
        first = math.ceil(axis.low / step - 1e-9)
        return [step * n for n in range(first, math.floor(axis.high / step + 1e-9) + 1)]
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    finest = [[10.0**power * factor for power in powers for factor in factors] for factors in ((1, 2, 5), (1, 3))]
    coarser = [[10.0**power for power in powers if power % every == 0] for every in range(1, len(powers) + 1)]
    within = ([tick for tick in found if axis.low <= tick <= axis.high] for found in (*finest, *coarser))
    return next((found for found in within if len(found) <= most), [])


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999)


def tick_text(axis: Axis, value: float) -> str:
    """A tick with the prefix and unit of its axis."""
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
    """A power as people write it: 10⁻⁵."""
    return f"10{str(power).translate(_RAISED)}"


def diverging(value: float) -> str:
    """A colour for -1 to 1: orange, white, blue, which every common colour vision tells apart."""
    end = _BLUE if value > 0 else _RED
    share = min(1.0, abs(value))
    return _hex(tuple(round(w + (e - w) * share) for w, e in zip(_WHITE, end, strict=True)))


def ink_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour."""
    ground = _luminance(_rgb(colour)) + 0.05
    return "#ffffff" if 1.05 / ground > ground / 0.05 else "#000000"


def on_dark(colour: str) -> str:
    """The colour on a dark page: mixed with white until it stands out from the ground."""
    rgb, ground = _rgb(colour), _luminance(_rgb(_DARK))
    for tenth in range(11):
        mixed = tuple(round(c + (255 - c) * tenth / 10) for c in rgb)
        if (_luminance(mixed) + 0.05) / (ground + 0.05) >= _CONTRAST:
            return _hex(mixed)
    return "#ffffff"


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[n : n + 2], 16) for n in (1, 3, 5))


def _hex(rgb: tuple[int, ...]) -> str:
    return "#" + "".join(f"{c:02x}" for c in rgb)


def _luminance(rgb: tuple[int, ...]) -> float:
    """Relative luminance as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
