"""A line of the table of options: what its value may be, and what it means something to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rooflens.errors import InvalidValue

Concern = Literal["step", "weights", "answer", "graph", "counting", "launching", "running", "price"]
"""What an option is about: what the step computes; how its weights are stored, which rooflens estimates and does not
run; how long a whole answer is; which sizes an ONNX file takes; how an estimate counts the step; who
launches its kernels; how a measurement runs it; what its device costs."""
SOURCES_OF: Mapping[Concern, tuple[str, ...]] = {
    "step": ("estimate", "measure", "counters"),
    "weights": ("estimate",),
    "answer": ("estimate", "measure", "counters"),
    "graph": ("estimate",),
    "counting": ("estimate",),
    "launching": ("estimate", "measure"),
    "running": ("measure",),
    "price": ("estimate", "measure"),
}
"""Sources that an option means something to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A line of the table.

    Attributes:
        kind: the type of its value; `dict` is sizes by name.
        default: the value if none is given; None leaves it to the model.
        help: the text of ``--help`` and of the docs.
        choices: its known values, if only these are allowed.
        least: its smallest value.
        modes: those in which it means something; none are all.
        recorded: records name it in their case; what changes no number of theirs is not named.
        several: several values of it may be asked for, as of batches; each is a case of its own.
        about: what it is about and other modes have not, where to give it there is an error.
        nothing: values that ask for nothing, and are none.
    """

    name: str = ""
    kind: type
    default: Any
    help: str
    concerns: Concern
    choices: tuple[str, ...] = ()
    least: int | None = None
    modes: tuple[str, ...] = ()
    recorded: bool = True
    several: bool = False
    about: str = ""
    nothing: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that it means something to."""
        return SOURCES_OF[self.concerns]

    def means_something(self, source: str, mode: str) -> bool:
        """True if it changes anything for a source in a mode."""
        return source in self.sources and self.runs_in(mode)

    def runs_in(self, mode: str) -> bool:
        """True if it means something in a mode."""
        return not self.modes or mode in self.modes

    def check(self, value: Any) -> None:
        """Raise InvalidValue for a value that it cannot have."""
        if value == self.default and type(value) is type(self.default):
            return
        if self.choices:
            if value not in self.choices:
                raise InvalidValue(f"unknown {self.name} {value!r}; known: {', '.join(self.choices)}")
        elif wanted := self._wanted(value):
            raise InvalidValue(f"{self.name} is {value!r}; it has to be {wanted}")

    def _wanted(self, value: object) -> str:
        """What it has to be; nothing where a value is that."""
        if self.kind is bool:
            return "" if isinstance(value, bool) else "True or False"
        if self.kind is str:
            return "" if isinstance(value, str) and value.strip(" ,") else "names with commas between them"
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if self.kind is float:
            return "" if number is not None and 0 < number < math.inf else "a number above 0"
        least = -math.inf if self.least is None else self.least
        if self.kind is int and not (isinstance(number, int) and number >= least):
            return "a whole number" + ("" if self.least is None else f" of at least {self.least}")
        return ""


def option(default: Any, help: str, *, kind: type | None = None, concerns: Concern = "step", **more: Any) -> Any:
    """A field of :class:`Options`."""
    line = Option(kind=kind or type(default), default=default, help=help, concerns=concerns, **more)
    return field(default=default, metadata={"option": line})
