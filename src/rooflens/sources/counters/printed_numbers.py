"""Numbers and units as Nsight Compute prints them: in any locale, plain or with a prefix.

Whether ``96.256`` is 96256 or 96 and a bit depends on the locale in which ncu ran. A file has one locale, so the cells
that allow one reading only decide for the others. Where there are none, numbers that are whole by what they count do:
``1,250`` instructions are no fraction, so the comma separates thousands. Where there is none of these either, a file is
read as ncu writes it in English, and every column that could mean something else is told, with both readings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Literal

from rooflens.errors import FileError

Style = Literal["point", "comma"]
"""The decimal separator; the other sign then separates thousands."""
UnitKind = Literal["byte", "second", "hertz", "byte/s", "count", "percent"]

NOT_AVAILABLE = frozenset({"n/a", "(!) n/a", "no data", "nan", "-nan", "inf", "-inf"})
LONGEST = 40
"""Characters; no counter of 64 bits needs more, with separators and decimals."""

_POINT = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)(?:,\d+)?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_STYLES: dict[Style, re.Pattern[str]] = {"point": _POINT, "comma": _COMMA}
_EITHER = re.compile(r"[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
_INSTANCES = re.compile(r"(\S+) \([0-9.,eE+;: -]+\)")
"""A number with those of its instances behind it (``--print-metric-instances``)."""
_WHOLE = {
    "": re.compile(r"(?:[0-9]{1,30}+\|)++"),
    ",": re.compile(r"(?:[0-9]{1,3}+(?:(?:,[0-9]{3}){0,9}+|[0-9]{0,27}+)\|)++"),
    ".": re.compile(r"(?:[0-9]{1,3}+(?:(?:\.[0-9]{3}){0,9}+|[0-9]{0,27}+)\|)++"),
}
"""Whole numbers one after the other, each with a bar behind it, by what separates thousands."""
_SPACED = re.compile(r"(?<=\d)[ '\u2019\u00a0\u202f](?=\d{3}(?!\d))", re.ASCII)
"""Thousands of locales that separate them by a space or an apostrophe."""

_POWERS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
"""ncu's prefixes are decimal, those of bytes too; milli and mega differ by case alone."""
_PREFIX = "([numkKMGTP]?)"
_UNITS: dict[UnitKind, re.Pattern[str]] = {
    "byte": re.compile(f"{_PREFIX}(?:bytes?|B)"),
    "second": re.compile(f"{_PREFIX}(?:seconds?|sec|s)"),
    "hertz": re.compile(f"{_PREFIX}[hH]z"),
    "byte/s": re.compile(f"{_PREFIX}(?:bytes?|B)/{_PREFIX}(?:second|s)"),
    "count": re.compile(
        f"{_PREFIX}(?:inst|instruction|cycle|sector|request|math_op|op|operation|thread_inst|block|SM|byte/cycle|1)?"
        f"(?:/cycle|/{_PREFIX}s(?:econd|ec)?)?"
    ),
    "percent": re.compile("()%?"),
}
_PER_TIME = re.compile(f"(?:cycle|1)/{_PREFIX}s(?:econd|ec)?")


@dataclass(frozen=True, slots=True)
class Deferred:
    """A cell that can be read in two ways, as long as nothing has decided."""

    text: str
    power: int

    def read(self, style: Style) -> int | float:
        """Return its number in a style."""
        return scaled(_plain(self.text, style), self.power)


CounterValue = int | float | None


@cache
def power_of(unit: str, kind: UnitKind) -> int | None:
    """Return the power of ten that turns a number in `unit` into the base unit of its kind, None for another unit.

    >>> power_of("Kbyte", "byte"), power_of("usecond", "second"), power_of("cycle/nsecond", "hertz")
    (3, -6, 9)
    >>> power_of("Kinst/usecond", "count"), power_of("inst/cycle", "count"), power_of("GB/s", "byte/s")
    (9, 0, 9)
    """
    if match := _UNITS[kind].fullmatch(unit):
        # A count has no milli: "m" alone is a meter, and a prefix alone is no unit.
        if kind == "count" and match[0] == match[1] != "":
            return None
        prefix, *per = match.groups("")
        return _POWERS[prefix] - sum(map(_POWERS.__getitem__, per))
    if kind == "hertz" and (match := _PER_TIME.fullmatch(unit)):
        return -_POWERS[match[1]]
    return None


class CounterNumbers:
    """The numbers of one file.

    Attributes:
        style: decimal separator, None as long as nothing has decided.
        waiting: whether a cell had to wait for that.
        undecided: a cell of each metric that was read as in English because nothing decided.
        whole: a cell that decided because it is a whole number, by the style that follows.
    """

    def __init__(self, where: str) -> None:
        self.style: Style | None = None
        self.waiting = False
        self.undecided: dict[str, Deferred] = {}
        self.whole: dict[Style, str] = {}
        self._where = where
        self._line = 0

    def read(self, text: str, power: int, line: int, *, counted: bool = False) -> CounterValue | Deferred:
        """Return a cell in its base unit, None where ncu says that it has no value.

        FileError if it is no number, or contradicts the locale of the cells before.

        Args:
            counted: it is a whole number by what it counts, in the unit in which that is counted.
        """
        if len(text) <= LONGEST:
            if is_whole(text):
                return int(text) if power == 0 else scaled(text, power)
            if self.style is not None and _STYLES[self.style].fullmatch(text):
                return scaled(_plain(text, self.style), power)
        return self._unusual(text, power, line, counted)

    def whole_numbers(self, texts: Sequence[str]) -> list[int] | None:
        """Return cells in their own units if all are whole numbers; None if one is not, or nothing has decided yet."""
        if not texts:
            return []
        joined = "|".join(texts) + "|"
        thousands = "" if self.style is None else "," if self.style == "point" else "."
        if not _WHOLE[thousands].fullmatch(joined):
            return None
        return list(map(int, (joined.replace(thousands, "") if thousands else joined)[:-1].split("|")))

    def see(self, text: str, line: int) -> None:
        """Let a cell that nobody needs decide for the others; one that is no number says nothing."""
        if not is_whole(text) and len(text) <= LONGEST and (_POINT.fullmatch(text) or _COMMA.fullmatch(text)):
            self._decide(text, line)

    def see_whole(self, text: str) -> None:
        """Let a cell that is a whole number by what it counts decide, if nothing else does."""
        if _EITHER.fullmatch(text):
            self.whole.setdefault("point" if "," in text else "comma", text)

    def settle(self, cell: Deferred, metric: str = "") -> CounterValue:
        """Return the number of a cell that had to wait; `metric` is told where nothing has decided."""
        style = self.style or (next(iter(self.whole)) if len(self.whole) == 1 else None)
        if style is None and metric:
            self.undecided.setdefault(metric, cell)
        return cell.read(style or "point")

    def _unusual(self, text: str, power: int, line: int, counted: bool) -> CounterValue | Deferred:
        """A cell that is not written as the ones before it."""
        if (whole := _INSTANCES.fullmatch(text)) is not None:
            return self.read(whole[1], power, line, counted=counted)
        if not text or text.lower() in NOT_AVAILABLE:
            return None
        plain = _SPACED.sub("", text) if len(text) <= LONGEST else text
        if self.style is None and _EITHER.fullmatch(plain):
            self.waiting = True
            if counted:
                self.see_whole(plain)
            return Deferred(plain, power)
        self._decide(plain, line)
        style = self.style or "point"
        if len(plain) > LONGEST or not _STYLES[style].fullmatch(plain):
            raise FileError(f"{self._where}, line {line}: {text[:60]!r} is no number; the row is damaged")
        return scaled(_plain(plain, style), power)

    def _decide(self, text: str, line: int) -> None:
        """Take the style of a cell that allows one reading only."""
        point, comma = _POINT.fullmatch(text) is not None, _COMMA.fullmatch(text) is not None
        if point == comma or _EITHER.fullmatch(text):
            return
        style: Style = "point" if point else "comma"
        if self.style is None:
            self.style, self._line = style, line
        elif self.style != style:
            raise FileError(
                f"{self._where}, line {line}: {text!r} does not fit the numbers before, whose decimal separator is a"
                f" {self.style} since line {self._line}; the row is damaged, or two files of different locales were"
                " put together"
            )


def is_whole(text: str) -> bool:
    """True for a whole number in digits of ASCII: Python takes those of every script, and ncu writes no other."""
    return text.isascii() and text.isdecimal()


def _plain(text: str, style: Style) -> str:
    return text.replace(",", "") if style == "point" else text.replace(".", "").replace(",", ".")


def scaled(text: str, power: int) -> int | float:
    """Return a number times a power of ten: exact where the result is whole, else the nearest number."""
    mantissa, _, exponent = text.lower().partition("e")
    value = Decimal(f"{mantissa}e{int(exponent or 0) + power}")  # exact: products are rounded to 28 digits
    return int(value) if power >= 0 and value == value.to_integral_value() else float(value)


def shifted(number: int, power: int) -> int | float:
    """Return a whole number times a power of ten, as :func:`scaled`."""
    return number * int(10**power) if power >= 0 else number / int(10**-power)
