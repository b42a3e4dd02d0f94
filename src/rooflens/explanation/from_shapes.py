"""Explains an operation from the shapes of its tensors. Needs torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rooflens.costs import Cost
from rooflens.costs.registry import load_plugins
from rooflens.errors import InvalidValue, UnknownModel
from rooflens.explanation.chapters import Chapter, Explained, calculations
from rooflens.explanation.expected_calls import expected_calls
from rooflens.models import check_words, find, operator, torchvision
from rooflens.models.operator import operator_names, operator_step
from rooflens.records import Call, Case, Device, Phase, Record
from rooflens.trace import trace  # which registers rooflens' own operations with torch

__all__ = ["explain_operation", "operator_names"]


def explain_operation(
    name: str,
    shapes: Sequence[Any],
    arguments: Mapping[str, Any],
    *,
    dtype: str,
    phase: Phase,
    devices: Sequence[Device],
) -> Chapter:
    """Trace one call of an operation and explain what it runs.

    Raises:
        InvalidValue: the operation does nothing in this phase, or an argument cannot be used.
        ModelError: torch refuses the shapes.
    """
    check_words(dtype, "inference")
    if phase not in ("forward", "backward"):
        raise InvalidValue(f"an operation has no {phase}; its phases are forward and backward")
    step = operator_step(name, shapes, arguments, dtype=dtype, backward=phase == "backward")
    counts = Counter(
        operation.call
        for operation in trace(step).operations
        if operation.phase == phase and not operation.path.startswith("(")
    )
    if not counts:
        raise InvalidValue(f"{name} moves and computes nothing in {phase}: it is a view, a shape query or free")
    return Chapter(
        title="",
        operations=tuple(
            Explained(
                calculation=calculation,
                phase=phase,
                calls=calls,
                work=calculation.cost.work,
                kernel_work=calculation.cost.kernel_work,
                floor=calculation.cost.floor,
                devices=at,
                expected=tuple(expected_calls(_record(call, calculation.cost, name, dtype, phase), at)),
            )
            for call, calls in counts.items()
            for calculation, at in calculations(call, dtype, devices)
        ),
    )


def _record(call: Call, cost: Cost, name: str, dtype: str, phase: Phase) -> Record:
    """A record of one call of an operation: nothing is known of what runs before it."""
    return Record(
        case=Case(model=name, dtype=dtype),
        source="estimate",
        scope="op",
        kind=cost.family,
        name=call.name,
        phase=phase,
        work=cost.work,
        kernel_work=cost.kernel_work,
        floor=cost.floor,
        call=call,
    )


def is_operator(name: str) -> bool:
    """True if torch, rooflens or a package has an operation of this name."""
    load_plugins()
    return operator.is_operator(name)


def is_model(name: str) -> bool:
    """True if a plain word is the name of a model."""
    try:
        find(name)
    except UnknownModel:
        return False
    return True


def model_names() -> list[str]:
    """The models that a plain word may name."""
    return torchvision.names()
