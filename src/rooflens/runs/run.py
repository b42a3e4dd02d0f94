"""A run: model, batch, dtype, mode and options. It is the same from the command line to the worker and the case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeGuard

from rooflens.errors import InvalidValue, checked
from rooflens.records import AS_IS, DTYPES, MODES, RECORD_SUFFIXES, Case, file_name
from rooflens.runs.dtype_names import dtype_hint, dtype_named
from rooflens.runs.options import ANSWERING, SWEPT, Options

_WORDS: Mapping[str, tuple[str, ...]] = {"dtype": (*DTYPES, AS_IS), "mode": MODES}


_OBSERVED = (*RECORD_SUFFIXES, ".json", ".json.gz", ".csv", ".csv.gz", ".sqlite", ".ncu-rep")
"""How files of what was observed end."""


def check_word(what: str, value: object) -> None:
    """Raise InvalidValue for a dtype or a mode that is not known."""
    known = _WORDS[what]
    if value not in known:
        hint = dtype_hint(str(value)) if what == "dtype" else ""
        raise InvalidValue(f"unknown {what} {value!r}; known: {', '.join(known)}{hint}")


Place = Literal["meta", "inputs", "cpu"]
"""Where a function of the user's makes what it makes: all on meta; all on the CPU but parameters, which are moved to
meta; or all on the CPU."""
PLACES: tuple[Place, ...] = ("meta", "inputs", "cpu")


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
        check_word("dtype", self.dtype)
        check_word("mode", self.mode)
        if self.batch is not None and (type(self.batch) is not int or self.batch < 1):
            raise InvalidValue(f"batch {self.batch!r} cannot be run; give whole numbers of at least 1")
        self.options.check_mode(self.mode)

    def check_runs(self) -> None:
        """Raise InvalidValue for what is counted and never run."""
        if self.options.optimizer_dtype == "int8":
            raise InvalidValue(
                "optimizer_dtype='int8' is state in 8 bits as bitsandbytes keeps it, whose kernels rooflens counts and"
                " does not run; leave it out, or estimate it"
            )

    def in_dtype(self) -> Run:
        """Return the run with weights in the dtype, in which models run, if it names no other format of them.

        An estimate else counts them as the model's configuration stores them.
        """
        own = self.options.weights
        return self if own is not None else replace(self, options=replace(self.options, weights="none"))

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
        own = is_graph(case.model) or is_own_file(case.model)
        dtype = "fp32" if case.dtype == AS_IS and not own else case.dtype
        options = Options.from_case(case.options)
        return cls(model=case.model, batch=case.batch, dtype=dtype, mode=case.mode, options=options)

    def step_of_answer(self, mode: str, tokens: int, room: int) -> Run:
        """Return the run of one step of a whole answer.

        Args:
            tokens: those that it reads in prefill, or finds in its cache.
            room: tokens that the cache of the whole answer has room for.
        """
        return replace(self, mode=mode, options=options_of_step(self.options, tokens, room))

    def with_batches(self, batch: object) -> tuple[Run, ...]:
        """A run for each batch, once: of None, of a whole number, or of several.

        Raises:
            InvalidValue: there is none, or one is no whole number of at least 1.
        """
        batches = several(batch)
        if not batches or (batch is not None and None in batches):
            raise InvalidValue(f"batch {batches!r} cannot be run; give whole numbers of at least 1")
        return tuple(dict.fromkeys(replace(self, batch=size) for size in batches))


def options_of_step(options: Options, tokens: int, room: int) -> Options:
    """Return the options of one step of a whole answer, as :meth:`Run.step_of_answer`."""
    length = room if options.kv_cache == "static" and options.kv_cache_len is None else options.kv_cache_len
    return replace(options, prompt_len=None, output_len=None, seq_len=tokens, kv_cache_len=length)


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
        options = Options.of(arguments)
        if options.output_len is not None and given.get("mode") == "inference":  # the default of every call
            given["mode"] = "generate"
        return cls(**given | {"options": options})

    @classmethod
    def each_of(cls, arguments: Mapping[str, Any]) -> tuple[Request, ...]:
        """Return the requests among the arguments of a call: one for each dtype, length of sequences and size.

        Raises:
            InvalidValue: several sizes are asked for of a module that is handed in, whose inputs have one, or none is.
        """
        swept = {name: several(arguments[name]) for name in ("dtype", *SWEPT) if name in arguments}
        if "dtype" in swept:
            named = (dtype_named(word) if isinstance(word, str) else word for word in swept["dtype"])
            swept["dtype"] = several(list(named))
        for name, values in swept.items():
            if not values or (len(values) > 1 and None in values):
                what = "names of dtypes" if name == "dtype" else "whole numbers of at least 1"
                raise InvalidValue(f"{name} is {arguments[name]!r}; give {what}")
            if name != "dtype" and len(values) > 1 and not isinstance(arguments["model"], str):
                raise InvalidValue(
                    f"{name} is {arguments[name]!r}, but the inputs of a module that is handed in have one; give one"
                    " number"
                )
        return tuple(
            cls.of({**arguments, **dict(zip(swept, values, strict=True))}) for values in product(*swept.values())
        )

    def counted_steps(self) -> tuple[Request, ...]:
        """Return what is counted of it: itself, but of a whole answer prefill and the middle one of its other steps."""
        options, prompt, output = self.options, self.options.prompt_len, self.options.output_len
        options.check_mode(self.mode)
        if self.mode not in ANSWERING or prompt is None or output is None:
            return (self,)
        room = prompt + output - 1
        steps = [("prefill", prompt)] + ([("decode", (prompt + room - 1) // 2)] if output > 1 else [])
        return tuple(replace(self, mode=mode, options=options_of_step(options, tokens, room)) for mode, tokens in steps)

    def check_words(self) -> None:
        """Raise InvalidValue for a dtype or a mode that is not known, or an option that the mode has no use for."""
        words = {"dtype": self.dtype, "mode": self.mode}
        checked(*(partial(check_word, what, word) for what, word in words.items() if word is not None))
        self.options.check_mode(self.mode)

    def possible_runs(self) -> tuple[Run, ...]:
        """Return the runs as they are named: what is asked for of a model that may be unable to."""
        name = self.model if isinstance(self.model, str) else self.name or type(self.model).__name__
        dtype = self.dtype or ("fp32" if isinstance(self.model, str) and not is_graph(name) else AS_IS)
        return Run(model=name, dtype=dtype, mode=self.mode, options=self.options).with_batches(self.batch)

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


def is_evidence(model: object) -> TypeGuard[str | Path]:
    """True if a path names a file of what was observed: records, or a file of another tool."""
    name = str(model).lower() if isinstance(model, str | Path) else ""
    return name.endswith(_OBSERVED) and not (name.startswith("hf:") or name.endswith("config.json"))


def recorded_name(model: str, *, below_here: bool = True) -> str:
    """The name of a model as records keep it: a file without the folder in which it lies on this machine.

    Args:
        below_here: a file below the working folder keeps its path from there.
    """
    prefix = "hf:" if model.startswith("hf:") else ""
    return prefix + file_name(model.removeprefix(prefix), below_here=below_here)
