"""Seconds that remember of which terms they were made.

An effect gives seconds for a card. On a card that tells (`rooflens.predict.telling`) constants are numbers of this
kind: the same code gives the same seconds, and these know their terms. So an explanation is no second copy of an effect
that could drift, and nobody pays for it who does not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import hypot
from typing import Any, Literal

Detail = float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Some of the seconds.

    Attributes:
        name: what takes them; empty where only the constants behind them tell.
        seconds: all of them.
        times: what one time of it was multiplied with.
        details: what somebody wants to see, like the tile of a product, by name.
        constants: names of those that it was made of, the most telling first.
        form: how it was made of other terms; None where it was made of numbers.
    """

    name: str = ""
    seconds: float
    times: float = 1.0
    details: tuple[tuple[str, Detail], ...] = ()
    constants: tuple[str, ...] = ()
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Combined:
    """Terms that are added, of which the longest counts, or that a norm joins: ``(a^n + b^n)^(1/n)``."""

    how: Literal["sum", "longest", "norm"]
    parts: tuple[Form, ...]
    exponent: float = 1.0


Form = Term | Combined


def named(name: str, seconds: float, /, **details: Detail) -> float:
    """Return the seconds as one term, which tells its name and details."""
    if type(seconds) is not Told:
        return seconds
    known = constants_of_form(seconds.form)
    return Told(seconds, Term(name=name, seconds=float(seconds), details=tuple(details.items()), constants=known))


def composed(name: str, seconds: float) -> float:
    """Return the seconds as one term, which tells its name and the terms that it was made of."""
    if type(seconds) is not Told:
        return seconds
    known = constants_of_form(seconds.form)
    return Told(seconds, Term(name=name, seconds=float(seconds), constants=known, form=seconds.form))


def longest(*seconds: float) -> float:
    """Return the longest of times that overlap."""
    most = max(seconds)
    if type(most) is not Told:
        return most
    return Told(most, _combined("longest", (_form(one) for one in seconds if one)))


def joined(exponent: float, one: float, other: float) -> float:
    """Return the norm of times that overlap but for their ends: more than the longer, and less than their sum."""
    norm: float = hypot(one, other) if exponent == 2 else (one**exponent + other**exponent) ** (1 / exponent)
    if type(one) is not Told and type(other) is not Told:
        return norm
    return Told(norm, _combined("norm", (_form(time) for time in (one, other) if time), float(exponent)))


def terms(form: Form) -> Iterator[Term]:
    """Yield the terms of a form, without those that a term itself was made of."""
    if isinstance(form, Term):
        yield form
    else:
        for part in form.parts:
            yield from terms(part)


def form_of(seconds: float) -> Form | None:
    """How seconds were made; None of a plain number."""
    return seconds.form if type(seconds) is Told else None


def constants_of_form(form: Form) -> tuple[str, ...]:
    """Names of the constants behind a form."""
    return tuple(dict.fromkeys(name for term in terms(form) for name in term.constants))


def _form(number: float) -> Form:
    return number.form if type(number) is Told else Term(seconds=float(number))


def _combined(how: Literal["sum", "longest", "norm"], given: Iterator[Form], exponent: float = 1.0) -> Form:
    """Forms together; those that are combined in the same way are taken apart."""
    parts: list[Form] = []
    for form in given:
        alike = isinstance(form, Combined) and form.how == how and how != "norm"
        parts += form.parts if isinstance(form, Combined) and alike else (form,)
    return parts[0] if len(parts) == 1 else Combined(how, tuple(parts), exponent)


def _scaled(form: Form, factor: float, constants: tuple[str, ...]) -> Form:
    """A form some times: so is each of its terms, as sums, norms and the longest allow."""
    if isinstance(form, Combined):
        return replace(form, parts=tuple(_scaled(part, factor, constants) for part in form.parts))
    known = tuple(dict.fromkeys((*form.constants, *constants)))
    return replace(form, seconds=form.seconds * factor, times=form.times * factor, constants=known)


def _anonymous(value: float, *made_of: float) -> float:
    """A number of which only the constants are known."""
    known = dict.fromkeys(name for one in made_of if type(one) is Told for name in constants_of_form(one.form))
    return Told(value, Term(seconds=value, constants=tuple(known)))


def _add(left: float, right: float) -> float:
    if not left or not right:
        return left or right
    return Told(float(left) + float(right), _combined("sum", iter((_form(left), _form(right)))))


def _subtract(left: float, right: float) -> float:
    return _anonymous(float(left) - float(right), left, right)


def _multiply(left: float, right: float) -> float:
    value = float(left) * float(right)
    if _scales(left, right):
        return _times(value, left, float(right), right)
    return _times(value, right, float(left), left) if _scales(right, left) else _anonymous(value, left, right)


def _divide(left: float, right: float) -> float:
    value = float(left) / float(right)
    return _times(value, left, 1 / float(right), right) if _scales(left, right) else _anonymous(value, left, right)


def _power(left: float, right: float) -> float:
    return _anonymous(float(float(left) ** float(right)), left, right)


def _scales(number: float, other: float) -> bool:
    """True if a product of two is the first one some times: the other one is plain, or has no form of its own."""
    return type(number) is Told and (type(other) is not Told or (_is_formed(number) and not _is_formed(other)))


def _is_formed(number: float) -> bool:
    """True of seconds that have a name or are made of several."""
    return type(number) is Told and (isinstance(number.form, Combined) or bool(number.form.name))


def _times(value: float, number: float, factor: float, other: float) -> float:
    return Told(value, _scaled(_form(number), factor, constants_of_form(_form(other))))


def _operators(compute: Callable[[float, float], float]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods for an operator and for its reflected form."""

    def method(self: Told, other: Any) -> Any:
        return compute(self, other) if isinstance(other, int | float) else NotImplemented

    def reflected(self: Told, other: Any) -> Any:
        return compute(other, self) if isinstance(other, int | float) else NotImplemented

    return method, reflected


class Told(float):
    """A number that knows its form. What it meets in arithmetic joins the form; a function of floats forgets it."""

    __slots__ = ("form",)
    form: Form

    def __new__(cls, value: float, form: Form) -> Told:
        self = super().__new__(cls, value)
        self.form = form
        return self

    @classmethod
    def constant(cls, name: str, value: float) -> Told:
        """Return a constant that knows its name."""
        return cls(value, Term(seconds=value, constants=(name,)))

    __add__, __radd__ = _operators(_add)
    __sub__, __rsub__ = _operators(_subtract)
    __mul__, __rmul__ = _operators(_multiply)
    __truediv__, __rtruediv__ = _operators(_divide)
    __pow__, __rpow__ = _operators(_power)
