"""Whole numbers that remember how they were computed.

A formula of :mod:`rooflens.costs` gives work for plain sizes. Given sizes of this kind, the same code gives the same
numbers, and each of them tells its own arithmetic: an explanation is no second copy of a formula that could drift.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SHOWN_TERMS = 6
"""A sum of more different terms than this shows half as many and the rest as one number."""
BYTE = "B"


@dataclass(frozen=True, slots=True)
class Integer:
    """A size or a constant; `label` says of what, and `BYTE` is the unit of an element's bytes."""

    value: int
    label: str = ""

    def __str__(self) -> str:
        if not self.label:
            return str(self.value)
        return f"{self.value} {BYTE}" if self.label == BYTE else f"{self.value} ({self.label})"


@dataclass(frozen=True, slots=True)
class Product:
    """Factors, constants first where they are written."""

    factors: tuple[Expression, ...]

    @property
    def value(self) -> int:
        return math.prod(factor.value for factor in self.factors)

    def __str__(self) -> str:
        return " x ".join(_factors(self)) or "1"


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms, each added or subtracted as often as `times` says."""

    terms: tuple[tuple[int, Expression], ...]

    @property
    def value(self) -> int:
        return sum(times * term.value for times, term in self.terms)

    def collected(self) -> Sum:
        """Equal terms together, and without those that cancel."""
        counts: Counter[Expression] = Counter()
        for times, term in self.terms:
            counts[term] += times
        return Sum(tuple((times, term) for term, times in counts.items() if times))

    def __str__(self) -> str:
        terms = self.collected().terms
        shown = terms if len(terms) <= SHOWN_TERMS else terms[: SHOWN_TERMS // 2]
        text = "".join(_signed(times, term) for times, term in shown)
        if rest := terms[len(shown) :]:
            text += f" + {Sum(rest).value} ({sum(abs(times) for times, _ in rest)} more)"
        return text.removeprefix(" + ").removeprefix(" ") or "0"


@dataclass(frozen=True, slots=True)
class Quotient:
    """A division rounded down."""

    numerator: Expression
    denominator: Expression

    @property
    def value(self) -> int:
        return self.numerator.value // self.denominator.value

    def __str__(self) -> str:
        exact = self.numerator.value % self.denominator.value == 0
        below = str(self.denominator) if isinstance(self.denominator, Integer) else f"({self.denominator})"
        text = f"{_factor(self.numerator)} / {below}"
        return text if exact else f"floor({text})"


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """The bytes of what `label` names."""

    label: str
    expression: Expression

    @property
    def value(self) -> int:
        return self.expression.value

    def __str__(self) -> str:
        return f"{without_labels(self.expression)} ({self.label})"


Expression = Integer | Product | Sum | Quotient | TensorBytes


def expression_of(value: float) -> Expression:
    """How a number was computed; a plain number is its own expression."""
    return value.expression if isinstance(value, Spelled) else Integer(int(value))


def _add(left: int, right: int) -> int:
    return _subtract(left, right, sign=1) if left else right


def _subtract(left: int, right: int, sign: int = -1) -> int:
    if not right:
        return left
    terms = _terms(expression_of(left)) if left else ()
    added = ((sign * times, term) for times, term in _terms(expression_of(right)))
    return Spelled(int(left) + sign * int(right), Sum((*terms, *added)))


def _multiply(left: int, right: int) -> int:
    if not left or not right:
        return 0
    first, second = expression_of(left), expression_of(right)
    if second == Integer(1):
        return left
    if first == Integer(1) and isinstance(second, Integer):  # math.prod begins with 1
        return right
    return Spelled(int(left) * int(right), Product((*_split(first), *_split(second))))


def _divide(left: int, right: int) -> int:
    return Spelled(int(left) // int(right), _quotient(expression_of(left), expression_of(right)))


def _operators(compute: Callable[[int, int], int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods for an operator and for its reflected form."""

    def method(self: Spelled, other: Any) -> Any:
        return compute(self, other) if isinstance(other, int) else NotImplemented

    def reflected(self: Spelled, other: Any) -> Any:
        return compute(other, self) if isinstance(other, int) else NotImplemented

    return method, reflected


class Spelled(int):
    """An int with the expression behind its value. What it meets in +, -, * and // joins the expression.

    >>> rows, columns = Spelled.of(6, "rows"), Spelled.of(4, "columns")
    >>> total = 2 * rows * columns + rows
    >>> total, str(total.expression)
    (54, '2 x 6 (rows) x 4 (columns) + 6 (rows)')
    """

    expression: Expression

    def __new__(cls, value: int, expression: Expression) -> Spelled:
        self = super().__new__(cls, value)
        self.expression = expression
        return self

    @classmethod
    def of(cls, value: int, label: str) -> Spelled:
        return cls(value, Integer(int(value), label))

    __add__, __radd__ = _operators(_add)
    __sub__, __rsub__ = _operators(_subtract)
    __mul__, __rmul__ = _operators(_multiply)
    __floordiv__, __rfloordiv__ = _operators(_divide)


def _terms(expression: Expression) -> tuple[tuple[int, Expression], ...]:
    return expression.terms if isinstance(expression, Sum) else ((1, expression),)


def _split(expression: Expression) -> tuple[Expression, ...]:
    return expression.factors if isinstance(expression, Product) else (expression,)


def _quotient(left: Expression, right: Expression) -> Expression:
    """A division; factors that both sides have cancel."""
    whole = left.expression if isinstance(left, TensorBytes) else left
    remaining = list(_split(whole))
    for factor in _split(right):
        if factor == Integer(1):
            continue
        if factor not in remaining:
            return Quotient(left, right)
        remaining.remove(factor)
    if not remaining:
        return Integer(1)
    return remaining[0] if len(remaining) == 1 else Product(tuple(remaining))


def _factors(product: Product) -> Iterator[str]:
    """The factors as text, constants first; neighbours of one label share it."""
    ordered = sorted(product.factors, key=lambda f: not (isinstance(f, Integer) and not f.label))
    for factor, following in zip(ordered, [*ordered[1:], None], strict=True):
        if isinstance(factor, Integer) and isinstance(following, Integer) and factor.label == following.label:
            yield str(factor.value)
        else:
            yield _factor(factor)


def _factor(expression: Expression) -> str:
    if isinstance(expression, Sum):
        terms = expression.collected().terms
        return _factor(terms[0][1]) if len(terms) == 1 and terms[0][0] == 1 else f"({expression})"
    return f"({expression})" if isinstance(expression, Quotient) else str(expression)


def _signed(times: int, term: Expression) -> str:
    text = _factor(term) if abs(times) > 1 or isinstance(term, Sum) else str(term)
    return f" {'-' if times < 0 else '+'} " + (f"{abs(times)} x {text}" if abs(times) > 1 else text)


def without_labels(expression: Expression) -> Expression:
    """The same arithmetic without the names of sizes; bytes keep their unit."""
    if isinstance(expression, Integer):
        return expression if expression.label == BYTE else Integer(expression.value)
    if isinstance(expression, Product):
        return Product(tuple(map(without_labels, expression.factors)))
    if isinstance(expression, Sum):
        return Sum(tuple((times, without_labels(term)) for times, term in expression.terms))
    if isinstance(expression, Quotient):
        return Quotient(without_labels(expression.numerator), without_labels(expression.denominator))
    return without_labels(expression.expression)
