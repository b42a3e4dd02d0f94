"""The products of an einsum equation: pairs of operands from the left, as PyTorch contracts them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from rooflens.errors import ModelError

Labels = tuple[str, ...]
_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def check_equation(equation: str) -> None:
    """Raise ModelError for what is not an equation: onnx's shape inference never ends on a single dot."""
    if _EQUATION.fullmatch(equation.replace(" ", "")) is None:
        raise ModelError(f"{equation!r} is no einsum equation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """One operation of a contraction; its result is the next operand.

    Attributes:
        name: ``sum``, ``mul`` or ``bmm``.
        operands: positions among the equation's operands and the results so far.
        shapes: the shapes in which the operation sees them.
        result: the shape in which it sees its result.
    """

    name: str
    operands: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]


def contraction(equation: str, shapes: Sequence[tuple[int, ...]]) -> list[Contraction]:
    """The operations of an equation; none where it only reorders dimensions.

    Raises:
        ModelError: the equation does not fit the operands.
    """
    terms, wanted = _terms(equation, [len(shape) for shape in shapes])
    sizes: dict[str, int] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                raise ModelError(f"equation {equation!r} has {label!r} of {known} and of {size}")
    steps: list[Contraction] = []
    held = [tuple(dict.fromkeys(labels)) for labels in terms]  # a repeated label is a diagonal: a view

    def reduced(position: int, keep: set[str]) -> int:
        """Sum away the labels of one operand that nothing else has."""
        labels = held[position]
        left = tuple(label for label in labels if label in keep)
        if left == labels:
            return position
        shape = tuple(sizes[label] for label in labels)
        result = tuple(sizes[label] for label in left)
        steps.append(Contraction(name="sum", operands=(position,), shapes=(shape,), result=result))
        held.append(left)
        return len(held) - 1

    current = 0
    for position in range(1, len(terms)):
        later = set(wanted).union(*terms[position + 1 :])
        first = reduced(current, later | set(held[position]))
        second = reduced(position, later | set(held[first]))
        labels, step = _pair(first, second, held[first], held[second], later, sizes)
        steps.append(step)
        held.append(labels)
        current = len(held) - 1
    reduced(current, set(wanted))
    return steps


def _pair(
    first: int, second: int, a: Labels, b: Labels, later: set[str], sizes: dict[str, int]
) -> tuple[Labels, Contraction]:
    """The product of two operands. Common labels that are needed later are its batch; the others are summed over."""
    common = [label for label in a if label in b]
    batch = [label for label in common if label in later]
    contracted = [label for label in common if label not in later]
    rows, columns = [label for label in a if label not in b], [label for label in b if label not in a]

    def size(labels: Sequence[str]) -> int:
        return prod(sizes[label] for label in labels)

    labels = (*batch, *rows, *columns)
    if not contracted:  # an outer product is element-wise
        shapes = tuple(tuple(sizes[label] for label in side) for side in (a, b))
        return labels, Contraction(
            name="mul", operands=(first, second), shapes=shapes, result=tuple(sizes[n] for n in labels)
        )
    left = (size(batch), size(rows), size(contracted))
    right = (size(batch), size(contracted), size(columns))
    result = (size(batch), size(rows), size(columns))
    return labels, Contraction(name="bmm", operands=(first, second), shapes=(left, right), result=result)


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; the dimensions of an ellipsis are numbered from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    written = left.split(",")
    if len(written) != len(ranks):
        raise ModelError(f"equation {equation!r} does not fit {len(ranks)} operands")
    terms = [_labels(term, rank, equation) for term, rank in zip(written, ranks, strict=True)]
    widest = max((sum(label.isdigit() for label in term) for term in terms), default=0)
    if arrow:
        named = len(right.replace("...", ""))
        return terms, _labels(right, named + (widest if "..." in right else 0), equation)
    every = [label for term in terms for label in term]
    once = sorted(label for label in set(every) if every.count(label) == 1 and not label.isdigit())
    return terms, (*map(str, reversed(range(widest))), *once)


def _labels(term: str, rank: int, equation: str) -> Labels:
    before, ellipsis, after = term.partition("...")
    broadcast = rank - len(before) - len(after)
    if broadcast < 0 or (broadcast and not ellipsis):
        raise ModelError(f"equation {equation!r} has the term {term!r} for {rank} dimensions")
    return (*before, *map(str, reversed(range(broadcast))), *after)
