"""Arithmetic on numbers, as a user writes it: parsed by Python's own grammar and never evaluated as Python."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from rooflens.errors import InvalidValue

LONGEST, DEEPEST = 500, 80
_MOST_BITS = 1024
"""Beyond this a whole number does not fit into a float."""
_CHARACTERS = re.compile(r"[\d_.eE+\-*/() \t]*", re.ASCII)
_OPERATORS: Mapping[type[ast.operator | ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def calculate(text: str) -> int | float:
    """The value of an expression of numbers, ``+ - * / // **`` and parentheses; whole numbers stay exact.

    >>> calculate("2*4096**3"), calculate("-(1 + 2) / 4")
    (137438953472, -0.75)

    Raises:
        InvalidValue: it is no such expression, divides by zero, or is too large to be a quantity.
    """
    if len(text) > LONGEST:
        raise InvalidValue(f"the expression {text[:40]!r}... has {len(text)} characters; write at most {LONGEST}")
    wrong = f"cannot calculate {text!r}: write numbers, + - * / // ** and parentheses, like 2*4096**3"
    if not _CHARACTERS.fullmatch(text):
        raise InvalidValue(wrong)
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body, 0)
    except (SyntaxError, TypeError, MemoryError) as error:
        raise InvalidValue(wrong) from error
    except RecursionError:
        raise InvalidValue(f"{text!r} is nested too deeply") from None
    except ZeroDivisionError:
        raise InvalidValue(f"{text!r} divides by zero") from None
    except OverflowError:
        raise InvalidValue(f"{text!r} is too large; the largest number is about 1.8e308") from None
    return value


def _value(node: ast.expr, depth: int) -> int | float:
    """The value of a part; TypeError if it is no arithmetic, OverflowError if no float can hold it."""
    if depth > DEEPEST:
        raise RecursionError
    match node:
        case ast.Constant(value=int() | float() as value):
            pass
        case ast.UnaryOp(op=sign, operand=operand):
            value = _OPERATORS[type(sign)](_value(operand, depth + 1))
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            value = _power(_value(left, depth), _value(right, depth + 1))
        case ast.BinOp(op=sign, left=left, right=right):
            value = _OPERATORS[type(sign)](_value(left, depth), _value(right, depth + 1))
        case _:
            raise TypeError
    if value.bit_length() > _MOST_BITS if isinstance(value, int) else not math.isfinite(value):
        raise OverflowError
    return value


def _power(base: float, exponent: float) -> int | float:
    if base < 0 and not isinstance(exponent, int):
        raise TypeError  # a root of a negative number
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > 2 * _MOST_BITS:
        raise OverflowError
    value: int | float = base**exponent
    return value
