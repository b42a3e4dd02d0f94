"""Slips of a prefix: 1024 taken for 1000, or a power of ten."""

from __future__ import annotations

import math

from rooflens.checks.context import close
from rooflens.reported.figures import ReportedFigure

FINE, COARSE = 1e-3, 2e-3
"""Rounding that still tells powers of 1.024 from other reasons, and if the power must be that of the prefix."""
_POWERS = (1, 2, 3, 4)
_PREFIXES = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "Ki": -1, "Mi": -2, "Gi": -3, "Ti": -4}
"""The power of 1.024 between a prefix and the other one with its letter."""
_WITHIN = 3e-4


def prefix_factor(figure: ReportedFigure, value: float, right: float, error: float = 0.0) -> str:
    """The slip that turns the right number into the stated one: a power of 1.024 or of ten; "" for none.

    Args:
        error: relative, of the right number.
    """
    return binary_factor(figure, value, right, error) or decimal_factor(value, right)


def binary_factor(figure: ReportedFigure, value: float, right: float, error: float = 0.0) -> str:
    """Likewise for powers of 1.024 alone."""
    if value <= 0 or right <= 0:
        return ""
    ratio, slack = value / right, figure.precision + error
    powers = [sign * power for power in _POWERS for sign in (1, -1)]
    fitting = [power for power in powers if close(ratio, 1.024**power, _WITHIN + slack)]
    own = own_power(figure, value)
    if slack > FINE:
        fitting = [power for power in fitting if slack <= COARSE and abs(power) == abs(own)]
    # The same digits under the other prefix are no accident, however few they are.
    if own < 0 and close(ratio, 1.024**-own, _WITHIN):
        fitting = [-own]
    return f"(1024/1000)^{fitting[0]}" if fitting else ""


def decimal_factor(value: float, right: float, tolerance: float = 0.05) -> str:
    """Likewise for powers of ten alone."""
    if value <= 0 or right <= 0:
        return ""
    tens = round(math.log10(value / right))
    return f"10^{tens}" if tens and close(value / right, 10.0**tens, tolerance) else ""


def own_power(figure: ReportedFigure, value: float) -> int:
    """The power of 1.024 that the prefix of a figure's unit stands for, negative for a binary one.

    Without a prefix it is that of the thousands in the number, at most giga.
    """
    prefix = figure.unit[:2] if figure.unit[1:2] == "i" else figure.unit[:1]
    if len(figure.unit) > 1 and prefix in _PREFIXES:
        return _PREFIXES[prefix]
    return min(3, max(0, math.floor(math.log10(value) / 3)))
