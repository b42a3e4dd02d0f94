"""The work of a call with the arithmetic that leads to it: pen and paper."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rooflens.costs.expression import Expression, Sum, TensorBytes, expression_of, without_labels
from rooflens.costs.registry import Arithmetic, Cost, Uncounted, entry_of, evaluate
from rooflens.costs.sizes import spelled
from rooflens.costs.weight_formats import weight_formula
from rooflens.records import Call, Work

_ROLE = re.compile(r":[a-z]+:`([^`]*)`")
"""A name in a docstring that Sphinx links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTerm:
    """A number and how it is computed.

    Attributes:
        what: a resource like ``matmul.fp32``, or the tensor whose bytes these are.
        expression: sizes and constants with + - x and /; names of sizes in parentheses.
        value: FLOP or bytes.
    """

    what: str
    expression: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """How the formula of a call gives its work.

    Attributes:
        call: what is explained.
        cost: family and work.
        formula: what it says.
        uncounted: why there is no FLOP count; None where there is one.
        flops: per resource.
        kernel_flops: the same of what a kernel executes, where that is less than what is counted.
        bytes: per tensor; they add up to the bytes at DRAM.
    """

    call: Call
    cost: Cost
    formula: str
    uncounted: str | None
    flops: tuple[WorkTerm, ...]
    kernel_flops: tuple[WorkTerm, ...]
    bytes: tuple[WorkTerm, ...]


def calculate(call: Call, arithmetic: Arithmetic) -> Calculation:
    """The work of a call and the arithmetic behind it; the numbers are those of :func:`rooflens.costs.cost`."""
    priced = evaluate(spelled(call), arithmetic)
    entry = entry_of(call.name)
    return Calculation(
        call=call,
        cost=Cost(
            priced.family,
            _plain(priced.work),
            None if priced.kernel_work is None else _plain(priced.kernel_work),
            None if priced.floor is None else replace(priced.floor, work=_plain(priced.floor.work)),
        ),
        formula="" if entry is None else _formula(entry.formula.__doc__, call),
        uncounted=_why_uncounted(call) if priced.work.missing else None,
        flops=_lines(priced.work.flops),
        kernel_flops=() if priced.kernel_work is None else _lines(priced.kernel_work.flops),
        bytes=tuple(_by_tensor(priced.work.bytes["dram"])),
    )


def _formula(says: str | None, call: Call) -> str:
    return "\n\n".join(filter(None, (without_markup(inspect.cleandoc(says or "")), weight_formula(call))))


def without_markup(text: str) -> str:
    """Return a docstring as a person reads it: names without their roles and quotes.

    >>> without_markup("As :func:`sgd` of :class:`~torch.Tensor`, ``x``.")
    'As sgd of Tensor, x.'
    """
    return _ROLE.sub(lambda role: role[1].rpartition(".")[2] if role[1].startswith("~") else role[1], text).replace(
        "`", ""
    )


def _plain(work: Work) -> Work:
    """The same work in numbers that have forgotten how they were computed."""
    return Work(
        flops={resource: _number(n) for resource, n in work.flops.items()},
        bytes={level: _number(n) for level, n in work.bytes.items()},
        missing=work.missing,
    )


def _number(n: float) -> float:
    return int(n) if isinstance(n, int) else n


def _why_uncounted(call: Call) -> str | None:
    entry = entry_of(call.name)
    if entry is None:
        return "it has no formula"
    try:
        entry.formula(call)
    except Uncounted as why:
        return str(why)
    return None


def _lines(flops: Mapping[str, float]) -> tuple[WorkTerm, ...]:
    return tuple(WorkTerm(what=resource, expression=_text(n), value=_number(n)) for resource, n in flops.items())


def _by_tensor(nbytes: float) -> Iterator[WorkTerm]:
    """The bytes of each tensor, and as `values` those that a formula counts one by one."""
    terms: dict[str, list[tuple[int, Expression]]] = {}
    for times, term in _terms(nbytes):
        label, inner = (term.label, without_labels(term)) if isinstance(term, TensorBytes) else ("values", term)
        terms.setdefault(label, []).append((times, inner))
    for label, parts in terms.items():
        total = Sum(tuple(parts))
        yield WorkTerm(what=label, expression=str(total), value=total.value)


def _terms(nbytes: float) -> tuple[tuple[int, Expression], ...]:
    if not isinstance(nbytes, int) or not nbytes:
        return ()
    expression = expression_of(nbytes)
    return expression.collected().terms if isinstance(expression, Sum) else ((1, expression),)


def _text(n: float) -> str:
    return str(expression_of(n)) if isinstance(n, int) else f"{n:g}"
