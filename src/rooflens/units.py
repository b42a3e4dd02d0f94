"""Quantities as text: the only file that knows a prefix.

Inside rooflens a quantity is a plain number in a base unit: FLOP, byte, second, FLOP/s, B/s, FLOP/B, hertz, watt,
joule.
Text appears only at the edge: :func:`parse` reads it, :func:`show` writes it.

Prefixes are decimal (k = 10^3, G = 10^9); binary ones are written Ki, Mi, Gi, Ti and are accepted for bytes only.
A multiply-add is two FLOP everywhere; see :mod:`rooflens.costs`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from rooflens.errors import UnitError

DECIMAL: Mapping[str, float] = {
    "p": 1e-12,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
BINARY: Mapping[str, float] = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
BASE_UNITS = ("FLOP/s", "FLOP/B", "FLOP", "B/s", "B", "s", "Hz", "W", "J")

# Other spellings of a base unit. OP is what vendors call an integer FLOP; the rate means the same thing.
_SYNONYMS: Mapping[str, str] = {
    "OP/s": "FLOP/s",
    "OP": "FLOP",
    "FLOP/byte": "FLOP/B",
    "byte": "B",
    "bytes": "B",
    "byte/s": "B/s",
    "bytes/s": "B/s",
}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(\S*)\s*", re.ASCII)
MOST = 1e30
"""More than any counter or clock of hardware tells. Sums and products of what files tell stay finite below it."""


def number(text: str) -> float:
    """Return a number as programs write it, and nan for any other text.

    Python's own `float` takes more: digits of every script, underscores, words like "inf".

    >>> number(" 1.5e3 "), number("1_5")
    (1500.0, nan)
    """
    plain = text.strip()
    return float(plain) if _PLAIN.fullmatch(plain) else math.nan


def parse(text: str, unit: str) -> float:
    """Return the quantity in `text` as a number of base unit `unit`.

    >>> parse("19.5 TFLOP/s", "FLOP/s")
    19500000000000.0
    >>> parse("40 GiB", "B")
    42949672960.0

    Raises:
        UnitError: the text is not a number and a unit, or the unit is another one than `unit`.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(
            f"cannot read {text!r} as a quantity in {unit}; write a number and a unit, like {_example(unit)!r}"
        )
    digits, written = match.groups()
    scale = Decimal(repr(_scale(written, unit, text)))
    # In decimal arithmetic: 66.9 TFLOP/s is 66.9e12 and not the number next to it.
    try:
        exact = Decimal(digits) * scale
    except ArithmeticError:  # an exponent that not even a decimal holds
        exact = Decimal("inf")
    value = float(exact)
    if not math.isfinite(value) or (exact and not value):
        raise UnitError(f"{text!r} is beyond what a number can hold: about 5e-324 to 1.8e308 {unit}")
    return value


def _scale(written: str, unit: str, text: str) -> float:
    if unit not in BASE_UNITS:
        raise UnitError(f"unknown base unit {unit!r}; known: {', '.join(BASE_UNITS)}")
    for spelling in (unit, *(other for other, base in _SYNONYMS.items() if base == unit)):
        if not written.endswith(spelling):
            continue
        prefix = written[: len(written) - len(spelling)]
        if prefix in DECIMAL:
            return DECIMAL[prefix]
        if prefix in BINARY and unit in ("B", "B/s"):
            return BINARY[prefix]
    binary = f", binary {' '.join(BINARY)}" if unit in ("B", "B/s") else ""
    prefixes = f"{' '.join(filter(None, DECIMAL))}{binary}"
    raise UnitError(f"{text!r} is not in {unit}; write it like {_example(unit)!r} (prefixes {prefixes})")


def _example(unit: str) -> str:
    """Return a quantity of a size that somebody may mean."""
    return f"1.5 {'m' if unit == 's' else 'G'}{unit}"


_LEAST, _MOST_SHOWN = 1e-3, 1e6
"""Numbers that are shown in digits, beside the smallest and the largest prefix."""


def show(value: float | None, unit: str = "", digits: int = 4) -> str:
    """Write `value`, a number of base unit `unit`, for a person: `digits` significant digits and a prefix.

    Unknown (`None`) is written as a dash, never as zero.

    >>> show(928_805_552_128, "FLOP")
    '928.8 GFLOP'
    >>> show(None, "s")
    '-'
    """
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}".rstrip()
    if not unit and abs(value) < 1:  # a bare number has no milli
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits - 1}e}")
    fitting = [prefix for prefix, factor in DECIMAL.items() if abs(rounded) >= factor * 0.9999999999]
    prefix = fitting[-1] if fitting else "p"
    scaled = rounded / DECIMAL[prefix]
    if not _LEAST <= abs(scaled) < _MOST_SHOWN:  # beyond the prefixes, where digits would be a line of zeros
        return f"{value:.{digits - 1}e} {unit}".rstrip()
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(scaled))))
    return f"{scaled:.{decimals}f} {prefix}{unit}".rstrip()


def show_range(low: float, high: float, unit: str = "", digits: int = 3) -> str:
    """Write two numbers of a base unit with one prefix, that of the higher one.

    >>> show_range(0.0101, 0.01304, "s")
    '10.1-13.0 ms'
    >>> show_range(2e-6, 0.0013, "s")
    '2.00 us-1.30 ms'
    """
    upper = show(high, unit, digits)
    number, _, written = upper.partition(" ")
    prefix = written[: len(written) - len(unit)] if unit else written
    decimals = len(number.partition(".")[2])
    if prefix not in DECIMAL or not 0.1 * high <= low <= high:
        return f"{show(low, unit, digits)}-{upper}"
    return f"{low / DECIMAL[prefix]:.{decimals}f}-{upper}"
