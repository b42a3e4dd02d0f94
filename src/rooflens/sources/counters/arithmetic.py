"""Arithmetic on numbers, as a user writes it: parsed by this grammar and never evaluated as Python.

::

    sum     = product (("+" | "-") product)*
    product = sign (("*" | "/" | "//") sign)*
    sign    = ("+" | "-") sign | power
    power   = atom ("**" sign)?
    atom    = number | "(" sum ")"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from rooflens.errors import InvalidValue

LONGEST, DEEPEST = 500, 40
_MOST_BITS = 1024
"""Beyond this a number does not fit into a float."""
_TOKEN = re.compile(r"\s*(\d+(?:_\d+)*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\*\*|//|[-+*/()])", re.ASCII)
_SIGNS: Mapping[str, int] = {"+": 1, "-": -1}

Number = int | float


def calculate(text: str) -> Number:
    """The value of an expression of numbers; whole numbers stay exact.

    >>> calculate("2*4096**3"), calculate("-(1 + 2) / 4")
    (137438953472, -0.75)

    Raises:
        InvalidValue: it is no such expression, divides by zero, or is too large to be a quantity.
    """
    if len(text) > LONGEST:
        raise InvalidValue(f"the expression {text[:40]!r}... has {len(text)} characters; write at most {LONGEST}")
    try:
        value = _Parser(text).whole()
    except ZeroDivisionError:
        raise InvalidValue(f"{text!r} divides by zero") from None
    except OverflowError:
        raise InvalidValue(f"{text!r} is too large; the largest number is about 1.8e308") from None
    if not math.isfinite(value):
        raise InvalidValue(f"{text!r} is too large; the largest number is about 1.8e308")
    return value


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._cut(text)
        self._depth = 0

    def whole(self) -> Number:
        value = self._sum()
        if self._tokens:
            raise self._wrong(self._tokens[0])
        return value

    def _cut(self, text: str) -> list[str]:
        tokens, end = [], 0
        text = text.rstrip()
        while end < len(text):
            match = _TOKEN.match(text, end)
            if match is None:
                raise self._wrong(text[end:].strip()[:20])
            tokens.append(match[1])
            end = match.end()
        return tokens

    def _sum(self) -> Number:
        return self._chain(self._product, {"+": lambda a, b: a + b, "-": lambda a, b: a - b})

    def _product(self) -> Number:
        return self._chain(self._sign, {"*": lambda a, b: a * b, "/": lambda a, b: a / b, "//": lambda a, b: a // b})

    def _chain(self, part: Callable[[], Number], signs: Mapping[str, Callable[[Number, Number], Number]]) -> Number:
        value = part()
        while self._tokens and self._tokens[0] in signs:
            value = _bounded(signs[self._tokens.pop(0)](value, part()))
        return value

    def _sign(self) -> Number:
        self._depth += 1
        if self._depth > 2 * DEEPEST:
            raise InvalidValue(f"{self._text!r} is nested too deeply")
        if self._tokens and self._tokens[0] in _SIGNS:
            value = _SIGNS[self._tokens.pop(0)] * self._sign()
        else:
            value = self._power()
        self._depth -= 1
        return value

    def _power(self) -> Number:
        base = self._atom()
        if not self._tokens or self._tokens[0] != "**":
            return base
        self._tokens.pop(0)
        exponent = self._sign()
        if base < 0 and not isinstance(exponent, int):
            raise InvalidValue(f"{self._text!r} takes a root of a negative number")
        if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > 2 * _MOST_BITS:
            raise OverflowError
        value: Number = base**exponent
        return _bounded(value)

    def _atom(self) -> Number:
        if not self._tokens:
            raise self._wrong("the end")
        token = self._tokens.pop(0)
        if token == "(":
            value = self._sum()
            if not self._tokens or self._tokens.pop(0) != ")":
                raise self._wrong("a parenthesis that is not closed")
            return value
        if not token[0].isdigit() and token[0] != ".":
            raise self._wrong(token)
        return int(token) if token.replace("_", "").isdecimal() else float(token.replace("_", ""))

    def _wrong(self, what: str) -> InvalidValue:
        return InvalidValue(
            f"cannot calculate {self._text!r}: {what!r} is not expected there; write numbers, + - * / // ** and"
            " parentheses, like 2*4096**3"
        )


def _bounded(value: Number) -> Number:
    """The value, unless it is a whole number that no float can hold."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise OverflowError
    return value
