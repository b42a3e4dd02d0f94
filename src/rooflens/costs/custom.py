"""Formulas of operators that rooflens does not have: registered by a script or by a package."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from rooflens.costs.profiler_names import is_known
from rooflens.costs.registry import ENTRIES, Formula, RegisteredFormula, cost, is_custom
from rooflens.errors import InvalidValue
from rooflens.records import PHASES, Phase

_QUALIFIED = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)
_ATEN = "aten::"


def register_operation(
    operator: str, *, family: str = "custom", phases: Collection[Phase] = PHASES, replace: bool = False
) -> Callable[[Formula], Formula]:
    """Register the decorated formula for an operator of your own, so that its calls are counted.

    >>> @register_operation("mylib::gemm", family="matmul")
    ... def gemm(call):
    ...     (m, k), (_, n) = call.tensor("a").shape, call.tensor("b").shape
    ...     return Demand(flops={"matmul.bf16": 2 * m * k * n})

    The formula takes a :class:`rooflens.Call`, whose arguments have the names of the operator's schema. It returns a
    :class:`rooflens.Demand`: FLOP by resource, and bytes where those of the distinct inputs and outputs are not what
    moves. It may raise ``rooflens.costs.registry.Uncounted`` for a call that it does not cover; any other error becomes
    an InvalidValue that names the operator. The gradient of an operator is made of other operators: register those too.

    Some commands estimate in another process: register in the file of the model, or in a package with an entry point
    of the group ``rooflens.operations`` (a module, or a function that is called).

    Args:
        operator: name with namespace, without overload: ``"mylib::gemm"``.
        family: what tables call it: one of rooflens' own, like ``matmul`` or ``elementwise``, or a word of yours.
        phases: those in which it runs where nothing is recomputed. One of ``forward`` only is a recomputation wherever
            backward calls it.
        replace: whether this takes the place of another formula.

    Raises:
        InvalidValue: the name has no namespace or an overload, a phase is unknown, or the operator has a formula.
    """
    if not _QUALIFIED.fullmatch(operator):
        raise InvalidValue(f"{operator!r} is no operator's name; write namespace and name, like 'mylib::gemm'")
    if not phases or not set(phases) <= set(PHASES):
        raise InvalidValue(f"phases of {operator!r} are {list(phases)}; known: {', '.join(PHASES)}")
    name = operator.removeprefix(_ATEN)

    def add(formula: Formula) -> Formula:
        is_custom(operator)  # packages come first, so that a second registration is noticed here
        before = ENTRIES.get(name)
        if before is not None and not replace and not _is_same(before.formula, formula):
            raise InvalidValue(f"{operator!r} has a formula, in family {before.family!r}; replace=True replaces it")
        ENTRIES[name] = RegisteredFormula(family, formula, frozenset(phases), custom=True)
        cost.cache_clear()
        is_known.cache_clear()
        return formula

    return add


def _is_same(before: Formula, now: Formula) -> bool:
    """True for one definition that ran twice, as it does in a file that is loaded again."""
    closed = getattr(before, "__closure__", None) or getattr(now, "__closure__", None)
    return not closed and bool(getattr(before, "__code__", before) == getattr(now, "__code__", now))
