"""A node of a graph, and the rules that turn it into operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from rooflens.errors import ModelError
from rooflens.graph.elements import number_of
from rooflens.graph.strides import is_dense
from rooflens.graph.value import GraphValue, tensor_type, value_of
from rooflens.records import Argument, Tensor

Given = GraphValue | str | int | float | bool | None | Sequence["Given"]
"""What an operation takes: as in a call, with values in place of tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An operation that a node runs, with the memory that it touches."""

    name: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: tuple[Tensor, ...]
    reads: tuple[GraphValue, ...]
    writes: tuple[GraphValue, ...]


@dataclass(slots=True, kw_only=True)
class Node:
    """One node of a graph.

    Attributes:
        key: operator, with its domain unless that is ONNX's own: ``Conv``, ``com.microsoft.Attention``.
        inputs: values by position; None where an optional one is left out.
        outputs: values by position, each in memory of its own until a rule says otherwise.
        drafts: the operations so far.
        new_block: makes memory of a number of bytes and gives its number.
        fed: the nodes that take an output, by its position; None stands for the graph's own output.
    """

    key: str
    attributes: Mapping[str, onnx.AttributeProto]
    inputs: list[GraphValue | None]
    outputs: list[GraphValue | None]
    new_block: Callable[[int], int]
    fed: Callable[[int], Sequence[onnx.NodeProto | None]]
    drafts: list[Draft] = field(default_factory=list)

    def value(self, position: int) -> GraphValue:
        """The input at a position, which has to be there."""
        value = self.optional(position)
        if value is None:
            raise ModelError(f"{self.key} has no input at position {position}")
        return value

    def optional(self, position: int) -> GraphValue | None:
        """The input at a position, or None."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int = 0) -> GraphValue:
        """The output at a position, which has to be there."""
        value = self.asked(position)
        if value is None:
            raise ModelError(f"{self.key} has no output at position {position}")
        return value

    def asked(self, position: int) -> GraphValue | None:
        """The output at a position, or None where the graph does not ask for it."""
        return self.outputs[position] if position < len(self.outputs) else None

    @property
    def made(self) -> list[GraphValue]:
        """The outputs that the graph asks for."""
        return [value for value in self.outputs if value is not None]

    def integer(self, name: str, default: int = 0) -> int:
        """A whole number among the attributes."""
        return int(self._attribute(name, onnx.AttributeProto.INT, default))

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers among the attributes, empty if it is left out."""
        return tuple(self._attribute(name, onnx.AttributeProto.INTS, ()))

    def number(self, name: str, default: float) -> float:
        """A number among the attributes."""
        return float(self._attribute(name, onnx.AttributeProto.FLOAT, default))

    def text(self, name: str, default: str = "") -> str:
        """A word among the attributes."""
        return str(self._attribute(name, onnx.AttributeProto.STRING, default.encode()).decode(errors="replace"))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of words among the attributes."""
        return tuple(t.decode(errors="replace") for t in self._attribute(name, onnx.AttributeProto.STRINGS, ()))

    def _attribute(self, name: str, kind: int, default: Any) -> Any:
        given = self.attributes.get(name)
        return default if given is None or given.type != kind else onnx.helper.get_attribute_value(given)

    def becomes(self, position: int, value: GraphValue) -> None:
        """Set where and how an output lies."""
        self.outputs[position] = value

    def temporary(self, shape: Sequence[int], dtype: str) -> GraphValue:
        """Memory that a step of this node writes for the next one."""
        value = value_of(tensor_type(number_of(dtype), shape), block=0)
        return replace(value, block=self.new_block(value.known.nbytes))

    def like(self, *sources: GraphValue) -> GraphValue:
        """The first output, laid out as the first source of its shape that fills its memory: as PyTorch does it."""
        out = self.output()
        for source in sources:
            if source.shape == out.shape and is_dense(source.shape, source.strides):
                out = replace(out, strides=source.strides)
                break
        self.becomes(0, out)
        return out

    def emit(self, name: str, outputs: GraphValue | Sequence[GraphValue], /, **arguments: Given) -> None:
        """Run an operation of PyTorch's name, whose formula knows these arguments."""
        written = (outputs,) if isinstance(outputs, GraphValue) else tuple(outputs)
        self.drafts.append(
            Draft(
                name=name,
                arguments=tuple((argument, _described(given)) for argument, given in arguments.items()),
                outputs=tuple(value.known for value in written),
                reads=tuple(value for given in arguments.values() for value in _values(given)),
                writes=written,
            )
        )


OperatorRule = Callable[[Node], None]
RULES: dict[str, OperatorRule] = {}
"""Filled by the modules of the families, which the package imports."""


def operator(*keys: str) -> Callable[[OperatorRule], OperatorRule]:
    """Register a rule for operators, by key; registering one twice is an error."""

    def add(rule: OperatorRule) -> OperatorRule:
        for key in keys:
            if key in RULES:
                raise ValueError(f"operator {key!r} has a rule already")
            RULES[key] = rule
        return rule

    return add


def scalar(value: GraphValue) -> GraphValue | float:
    """The number that a value holds, if it is known: PyTorch takes it as an argument, not as a tensor."""
    number = value.number
    return value if number is None else number


def _values(given: Given) -> tuple[GraphValue, ...]:
    if isinstance(given, GraphValue):
        return (given,)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(value for item in given for value in _values(item))
    return ()


def _described(given: Given) -> Argument:
    if isinstance(given, GraphValue):
        return given.known
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(map(_described, given))
    return given
