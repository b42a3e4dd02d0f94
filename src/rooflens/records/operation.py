"""Operation: one call that an accelerator would run, described by shapes alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

Phase = Literal["forward", "backward", "optimizer", "prefill", "decode"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
"""Of a step."""
ANSWER_PHASES: tuple[Phase, ...] = ("prefill", "decode")
"""Of a whole answer: the step that reads the prompt, and all steps that make a token each."""
EVERY_PHASE = (*PHASES, *ANSWER_PHASES)


def is_training(phases: Iterable[Phase | None]) -> bool:
    """True if one of the phases is of a training step alone."""
    return any(phase in ("backward", "optimizer") for phase in phases)


Strides = tuple[int, ...]
_INNERMOST_FIRST: dict[str, tuple[int, ...]] = {"channels_last": (1, 3, 2, 0), "channels_last_3d": (1, 4, 3, 2, 0)}
"""Dimensions by how close their elements lie; only a tensor of so many dimensions has the format."""


def dense_strides(shape: Sequence[int], memory_format: str = "contiguous") -> Strides:
    """Strides of elements that lie one behind the other: in row-major order, or with channels last."""
    strides, step = [0] * len(shape), 1
    for dim in _INNERMOST_FIRST.get(memory_format, range(len(shape) - 1, -1, -1)):
        strides[dim] = step
        step *= max(1, shape[dim])
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape, element type and the bytes in memory that the elements occupy.

    Tensors that differ in their layout alone are equal: no formula depends on it.

    Attributes:
        shape: sizes, outermost first.
        dtype: element type as rooflens writes it: fp32, bf16, int64, bool, complex64 ...
        nbytes: distinct bytes behind the tensor: a dimension expanded with stride 0 is stored once.
        stored: elements that a sparse tensor stores; None where all are.
        strides: elements between neighbours, by dimension; None where they are not known, and of a sparse tensor.
        offset: elements between the begin of the storage and the first one; None where `strides` is.
    """

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    stored: int | None = None
    strides: Strides | None = field(default=None, compare=False, repr=False)
    offset: int | None = field(default=None, compare=False, repr=False)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def memory_format(self) -> str | None:
        """contiguous, channels_last, channels_last_3d (the first that fits) or other; None without strides.

        Dimensions of one element do not count.
        """
        return None if self.strides is None else _memory_format(self.shape, self.strides)


@lru_cache(maxsize=4096)
def _memory_format(shape: tuple[int, ...], strides: Strides) -> str:
    names = [n for n, dims in _INNERMOST_FIRST.items() if len(dims) == len(shape)]
    for name in ("contiguous", *names):
        dense = dense_strides(shape, name)
        if all(size == 1 or a == b for size, a, b in zip(shape, strides, dense, strict=True)):
            return name
    return "other"


Argument = Tensor | str | int | float | bool | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The signature of an operation: equal calls cost the same, so a formula is evaluated once per signature.

    Calls that differ in the layout of their tensors alone are equal.

    Attributes:
        name: the operation's name without namespace and overload, like ``convolution_backward``.
        arguments: (name, value) in the order of the operation's schema; tensors by description.
        outputs: tensors that the call returns.
        reads: bytes of the distinct tensors that it takes.
        weight_reads: those of them that belong to parameters.
        writes: bytes of the distinct tensors that it returns or changes in place.
    """

    name: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: tuple[Tensor, ...]
    reads: int
    writes: int
    weight_reads: int = 0
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    _inputs: tuple[Tensor, ...] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.arguments, self.outputs, self.reads, self.writes)))

    def __hash__(self) -> int:
        return self._hash

    def __getitem__(self, argument: str) -> Argument:
        for name, value in self.arguments:
            if name == argument:
                return value
        raise KeyError(f"operation {self.name!r} has no argument {argument!r}; it has {[n for n, _ in self.arguments]}")

    def get(self, argument: str, default: Argument = None) -> Argument:
        """The value of `argument`, or `default` where the schema has none of this name."""
        for name, value in self.arguments:  # a loop takes half of the time of a generator, and effects ask often
            if name == argument:
                return value
        return default

    def tensor(self, argument: str) -> Tensor:
        """The tensor given as `argument`."""
        value = self[argument]
        if not isinstance(value, Tensor):
            raise TypeError(f"argument {argument!r} of {self.name!r} is {value!r}, not a tensor")
        return value

    def tensors(self, argument: str) -> tuple[Tensor, ...]:
        """The tensors in the list given as `argument`; absent ones are left out."""
        value = self[argument]
        items = value if isinstance(value, tuple) else (value,)
        return tuple(item for item in items if isinstance(item, Tensor))

    def integer(self, argument: str) -> int:
        """The whole number given as `argument`."""
        value = self[argument]
        if not isinstance(value, int):
            raise TypeError(f"argument {argument!r} of {self.name!r} is {value!r}, not a whole number")
        return value

    def integers(self, argument: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The whole numbers (or flags) in the list given as `argument`."""
        value = self.get(argument, default)
        if not isinstance(value, tuple):
            raise TypeError(f"argument {argument!r} of {self.name!r} is {value!r}, not a list")
        return tuple(item for item in value if isinstance(item, int))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Every tensor among the arguments, lists flattened."""
        if self._inputs is None:
            object.__setattr__(self, "_inputs", tuple(_flatten(value for _, value in self.arguments)))
        return self._inputs or ()

    @property
    def layout(self) -> tuple[tuple[Strides | None, int | None], ...]:
        """Strides and offset of every tensor, inputs before outputs."""
        return tuple((tensor.strides, tensor.offset) for tensor in (*self.inputs, *self.outputs))


def _flatten(values: Iterable[Argument]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple):
            found += _flatten(value)
    return found


@dataclass(frozen=True, slots=True)
class Access:
    """Memory that an operation reads or writes.

    Attributes:
        block: number of the storage; equal numbers are the same memory.
        nbytes: distinct bytes of it that are touched.
        elements: how many elements that is.
    """

    block: int
    nbytes: int
    elements: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One call in its place: which module made it, in which phase of the step.

    Attributes:
        call: what was called, with which shapes.
        path: dotted path of the innermost module, ``""`` for the root, ``(loss)`` and ``(optimizer)`` outside of it.
        phase: forward, backward or optimizer.
        recomputed: the call repeats forward work during backward (activation checkpointing).
        reads: the memory that it takes; no part of an operation's identity.
        writes: the memory that it returns or changes.
    """

    call: Call
    path: str
    phase: Phase
    recomputed: bool = False
    reads: tuple[Access, ...] = field(default=(), compare=False, repr=False)
    writes: tuple[Access, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """What the host does for a module in one phase, besides launching its operations; without the modules in it.

    Attributes:
        path: as of an operation.
        phase: forward, backward or optimizer; what backward runs again counts as backward.
        views: operations that give another view of the same memory, ``detach`` included.
        module_calls: entries of ``nn.Module.__call__``; None for a graph.
    """

    path: str
    phase: Phase
    views: int
    module_calls: int | None
