"""The user's own model: ``path/file.py:function``.

The function takes no argument, or one named ``batch``, and returns the module with its inputs. This is the only place
where rooflens runs code from a path, and only from one that was named as the model.

A file may change the process that reads it, and a function the process that calls it: it may wrap functions of torch,
or count its calls. So a worker reads one file and calls its function once; a further call is made by a new worker.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import operator
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

from rooflens.errors import FileError, InvalidValue, ModelError, UnknownModel, class_of, cut, exit_code, message_of
from rooflens.models.blueprint import Blueprint, Example, MadeByUser
from rooflens.models.forms import example_of, module_and_inputs
from rooflens.models.installed import is_own_function
from rooflens.models.process import meta_parameters, neutral
from rooflens.models.settings import changed, settings
from rooflens.models.step import sum_of_outputs
from rooflens.opening import read_text
from rooflens.runs.run import PLACES, Place

_MOST_SHAPES = 3
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Gives = TypeVar("Gives")


class CallAgain(ModelError):
    """A function has to be called once more, at another place: in a new process, where there is one."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.place = place


@dataclass(slots=True, kw_only=True)
class _ReadFile:
    """A file that this process has read.

    Attributes:
        modified: when the file was written last.
        replaced: functions of torch that its code has replaced in this process.
        notes: on what it has set.
        called: one of its functions was called.
        threads, benchmark: the number of torch's threads and cuDNN's switch, as its code left them: no case decides
            them.
    """

    module: ModuleType
    modified: int
    replaced: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    called: bool = False
    threads: int = field(default_factory=torch.get_num_threads)
    benchmark: bool = field(default_factory=lambda: torch.backends.cudnn.benchmark)

    def set_what_stays(self) -> None:
        """Set the number of threads and cuDNN's switch."""
        torch.set_num_threads(self.threads)
        torch.backends.cudnn.benchmark = self.benchmark


_READ: dict[Path, _ReadFile] = {}


def blueprint(name: str) -> Blueprint:
    """Return the blueprint of a model that a user's function makes.

    Raises:
        UnknownModel: the file does not exist or has no such function.
        ModelError: the file or the function raised; the message names the line.
    """
    path, _, function_name = name.rpartition(":")
    file = Path(path)
    if not os.path.isfile(file):
        raise UnknownModel("model file", path, [], "; there is no such file")
    file = file.resolve()  # now: its code may change the working folder
    function = _function(_read(file, path), path, function_name)
    parameters = inspect.signature(function).parameters
    batched = "batch" in parameters
    others = [p.name for p in parameters.values() if p.name != "batch" and p.default is p.empty and p.kind not in _REST]
    if others:
        raise ModelError(f"{name} needs {', '.join(others)}: its function may take no argument but one named batch")
    default = parameters["batch"].default if batched else None
    first = default if isinstance(default, int) else 1 if batched else None

    def make(batch: int | None, place: Place) -> MadeByUser:
        read = _read(file, path)
        function, read.called = _function(read, path, function_name), True
        return _called(name, function, read, first if batch is None else batch, place)

    return Blueprint(name=name, make=make, loss=sum_of_outputs, batched=batched, default_batch=first)


def without_function(path: str) -> UnknownModel:
    """Return the error of a model that is a file alone, with the functions that its text defines; nothing runs."""
    file = Path(path)
    if not os.path.isfile(file):
        return UnknownModel("model file", path, [], "; there is no such file")
    try:
        body = ast.parse(read_text(file)).body
    except (SyntaxError, ValueError, RecursionError, FileError):
        body = []
    known = [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    has = f"; it has {', '.join(known)}" if known else ""
    example = known[0] if known else "build"
    return UnknownModel("model", path, [], f"; name the function that makes it: {path}:{example}{has}")


def _called(name: str, function: Callable[..., Any], read: _ReadFile, batch: int | None, place: Place) -> MadeByUser:
    """Call the function; where code reads values that are not there, it has to be called again, with more of them."""

    def call() -> Any:
        with (
            meta_parameters() if place == "inputs" else nullcontext(),
            torch.device("meta" if place == "meta" else "cpu"),
        ):
            return function() if batch is None else function(batch=batch)

    try:
        result, notes = _guarded(name, call, read)
    except ModelError as error:
        if place == PLACES[-1] or not isinstance(error.__cause__, RuntimeError | NotImplementedError):
            raise
        raise CallAgain(str(error), PLACES[PLACES.index(place) + 1]) from error.__cause__
    if place == "cpu":  # it may be measured; the environment of the records tells these
        read.set_what_stays()
    module, inputs = module_and_inputs(name, result)
    example = example_of(inputs, module)
    return MadeByUser(module=module, example=example, notes=(*read.notes, *notes, *_without_batch(example, batch)))


def _without_batch(example: Example, batch: int | None) -> tuple[str, ...]:
    """Say where no input has the batch that was asked for: what counts per sample divides by it.

    Samples may also be packed along the first dimension, and inputs that are no tensors may hold anything.
    """
    leaves = [leaf for leaf in tree_leaves((example.args, example.kwargs)) if leaf is not None]
    if batch is None or batch < 2 or not all(isinstance(leaf, torch.Tensor) and not leaf.is_nested for leaf in leaves):
        return ()
    shapes = [tuple(leaf.shape) for leaf in leaves if leaf.ndim]
    if not shapes or any(batch in shape or shape[0] % batch == 0 for shape in shapes):
        return ()
    told = ", ".join(str(list(shape)) for shape in shapes[:_MOST_SHAPES])
    return (f"no input has the batch, {batch} (shapes: {told}): what counts per sample may be wrong",)


def _function(read: _ReadFile, file: str, name: str) -> Callable[..., Any]:
    function: object = getattr(read.module, name, None)
    if not callable(function):
        known = [key for key, value in vars(read.module).items() if callable(value) and not key.startswith("_")]
        raise UnknownModel(f"function in {file}", name, known, f"; it has {', '.join(known) or 'no function'}")
    return function


def _read(file: Path, named: str) -> _ReadFile:
    """Return the file as a module of Python: as it was read before, unless it has changed or was called since.

    Args:
        named: the file as the user named it.

    Raises:
        ModelError: it would be read again where it has replaced functions of torch, which are those of the process.
    """
    modified = file.stat().st_mtime_ns
    known = _READ.get(file)
    if known is not None and known.modified == modified and not known.called:
        return known
    if known is not None and known.replaced:
        listed = ", ".join(known.replaced[:3]) + (" ..." if len(known.replaced) > 3 else "")
        raise ModelError(
            f"{file.name} replaces {listed}, and would do so once more on top, since it runs again in the same process;"
            " estimate or measure each batch by itself, from the file and without a loss that is handed in"
        )
    spec = importlib.util.spec_from_file_location(f"rooflens_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InvalidValue(f"{named!r} is no Python file; give path/file.py:function")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    # Dataclasses and pickling look their module up by name; the folder lets the file import its neighbours.
    sys.modules[spec.name] = module
    folder = str(file.parent)
    sys.path.insert(0, folder)
    read = _ReadFile(module=module, modified=modified)
    try:
        _, read.notes = _guarded(named, lambda: loader.exec_module(module), read)
    finally:
        with suppress(ValueError):  # the file has put another list in its place
            sys.path.remove(folder)
    _READ[file] = read
    return read


def _guarded(name: str, call: Callable[[], Gives], read: _ReadFile) -> tuple[Gives, tuple[str, ...]]:
    """Run the user's code, with nothing that the caller has set, and return what it gives, with notes on what it sets.

    What it sets is put back.
    """
    devices: list[Any] = []
    file, _, function = name.rpartition(":")
    said = f"{Path(file or name).name}{':' if file else ''}{function if file else ''}"
    before = _holders()
    with neutral("fp32"), warnings.catch_warnings(), patch.object(torch, "set_default_device", devices.append):
        warnings.simplefilter("ignore")  # about initialisation, which does not matter here
        as_it_was = settings()
        read.set_what_stays()  # what the file has set holds for its function
        result = _telling(name, call)
        after = dict(settings())
        read.threads, read.benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    if devices:
        after["the default device"] = cut(str(devices[-1]), 100)
    read.replaced += _replaced(before)
    return result, changed(said, as_it_was, after)


def _telling(name: str, call: Callable[[], Gives]) -> Gives:
    """Run the user's code; errors name its line."""
    try:
        return call()
    except SystemExit as error:
        raise ModelError(f"{name} ends the program (exit code {exit_code(error)})") from error
    except SyntaxError as error:
        where = f"{error.filename or name} is no valid Python: {cut(str(error.msg))} (line {error.lineno})"
        raise ModelError(where) from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            f"{name} raised {class_of(error)}: {message_of(error)} ({Path(frame.filename).name}, line {frame.lineno})"
        ) from error


@dataclass(frozen=True, slots=True)
class _Holder:
    """A module or a class of torch, and what it holds at one moment, by name."""

    name: str
    holder: Any
    held: dict[str, Any]


def _holders() -> list[_Holder]:
    """Return torch's modules, and its classes that stand in them."""
    names = [name for name in list(sys.modules) if name.partition(".")[0] == "torch"]
    modules = [_Holder(name, sys.modules[name], dict(vars(sys.modules[name]))) for name in names if _is_plain(name)]
    # By identity, since a class stands in many modules. Not isinstance: that would load modules that load when used.
    held = [value for module in modules for value in module.held.values() if issubclass(type(value), type)]
    classes = {id(value): value for value in held}.values()
    return modules + [
        _Holder(f"{value.__module__}.{value.__qualname__}", value, dict(vars(value)))
        for value in classes
        if str(value.__module__).partition(".")[0] == "torch"
    ]


def _is_plain(name: str) -> bool:
    return type(sys.modules[name]) is ModuleType


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, staticmethod, classmethod)


def _replaced(before: list[_Holder]) -> list[str]:
    """Return the names of functions in whose place the user's code has put its own. A package does so only once."""
    # What is added stands at the end: of most holders nothing else is different, and nothing is read by name.
    different = [b for b in before if not all(map(operator.is_, b.held.values(), list(vars(b.holder).values())))]
    return [
        f"{each.name}.{key}"
        for each in different
        for key, now in list(vars(each.holder).items())
        if (value := each.held.get(key, now)) is not now
        and type(value) in (*_FUNCTIONS, property)
        and is_own_function(now)
    ]
