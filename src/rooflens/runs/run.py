"""A run: model, batch, dtype, mode and options. It is the same from the command line to the worker and the case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, TypeGuard

from rooflens.errors import InvalidValue
from rooflens.records import AS_IS, DTYPES, MODES, Case, file_name
from rooflens.runs.options import SWEPT, Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is to be run.

    Attributes:
        model: a name as the user gave it, paths included; what a module that was handed in is called.
        batch: samples per step; None is the batch of the inputs that are there, or the model's own.
        dtype: one of `DTYPES`, or `AS_IS`.
        mode: one of `MODES`.

    Raises:
        InvalidValue: the batch is no whole number of at least 1, or dtype or mode is unknown.
    """

    model: str
    batch: int | None = None
    dtype: str = "fp32"
    mode: str = "inference"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        for what, value, known in (("dtype", self.dtype, (*DTYPES, AS_IS)), ("mode", self.mode, MODES)):
            if value not in known:
                raise InvalidValue(f"unknown {what} {value!r}; known: {', '.join(known)}")
        if self.batch is not None and (type(self.batch) is not int or self.batch < 1):
            raise InvalidValue(f"batch {self.batch!r} cannot be run; give whole numbers of at least 1")
        self.options.check_mode(self.mode)

    def case(self, device: str | None = None) -> Case:
        """The case of its records; a file is named without its folder."""
        return Case(
            model=recorded_name(self.model),
            device=device,
            batch=self.batch,
            dtype=self.dtype,
            mode=self.mode,
            options=self.options.in_case(self.mode),
        )

    @classmethod
    def of(cls, case: Case) -> Run:
        """The run of a case. A named model that the case leaves as it is runs in its default dtype."""
        dtype = "fp32" if case.dtype == AS_IS and not is_graph(case.model) else case.dtype
        options = Options.from_case(case.options)
        return cls(model=case.model, batch=case.batch, dtype=dtype, mode=case.mode, options=options)

    def with_batches(self, batch: object) -> tuple[Run, ...]:
        """A run for each batch, once: of None, of a whole number, or of several.

        Raises:
            InvalidValue: there is none, or one is no whole number of at least 1.
        """
        batches = several(batch)
        if not batches or (batch is not None and None in batches):
            raise InvalidValue(f"batch {batches!r} cannot be run; give whole numbers of at least 1")
        return tuple(dict.fromkeys(replace(self, batch=size) for size in batches))


def several(values: object) -> tuple[Any, ...]:
    """Return the items of an argument, once each; a single one is one."""
    return tuple(dict.fromkeys(values)) if isinstance(values, Iterable) and not isinstance(values, str) else (values,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a call asks to run, not checked yet.

    Attributes:
        model: a name, or a module that is handed in.
        batch: one, several, or None for the model's own.
        dtype: None for the model's own.
        name: what to call a module.
        inputs: of a module, or a function from the batch to inputs.
        loss: instead of the model's.
    """

    model: Any
    batch: Any = None
    dtype: str | None = None
    mode: str = "inference"
    options: Options = field(default_factory=Options)
    name: str | None = None
    inputs: Any = None
    loss: Any = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Request:
        """Return the request among the arguments of a call."""
        given = {f.name: arguments[f.name] for f in fields(cls) if f.name in arguments}
        return cls(**given | {"options": Options.of(arguments)})

    @classmethod
    def each_of(cls, arguments: Mapping[str, Any]) -> tuple[Request, ...]:
        """Return the requests among the arguments of a call: one for each length of sequences and size of images.

        Raises:
            InvalidValue: several are asked for of a module that is handed in, whose inputs have one, or none is.
        """
        swept = {name: several(arguments[name]) for name in SWEPT if name in arguments}
        for name, values in swept.items():
            if not values or (len(values) > 1 and None in values):
                raise InvalidValue(f"{name} is {arguments[name]!r}; give whole numbers of at least 1")
            if len(values) > 1 and not isinstance(arguments["model"], str):
                raise InvalidValue(
                    f"{name} is {arguments[name]!r}, but the inputs of a module that is handed in have one; give one"
                    " number"
                )
        return tuple(
            cls.of({**arguments, **dict(zip(swept, values, strict=True))}) for values in product(*swept.values())
        )

    @classmethod
    def of_run(cls, run: Run) -> Request:
        """Return the request for one run of a named model."""
        return cls(model=run.model, batch=run.batch, dtype=run.dtype, mode=run.mode, options=run.options)


def is_own_file(model: object) -> TypeGuard[str]:
    """True if a model is named by a Python file of the user's own, ``path/file.py:function``, which may do anything."""
    return isinstance(model, str) and ".py:" in model


def is_graph(model: object) -> TypeGuard[str]:
    """True if a model is named by an ONNX file."""
    return isinstance(model, str) and model.lower().endswith(".onnx")


def recorded_name(model: str, *, below_here: bool = True) -> str:
    """The name of a model as records keep it: a file without the folder in which it lies on this machine.

    Args:
        below_here: a file below the working folder keeps its path from there.
    """
    prefix = "hf:" if model.startswith("hf:") else ""
    return prefix + file_name(model.removeprefix(prefix), below_here=below_here)
