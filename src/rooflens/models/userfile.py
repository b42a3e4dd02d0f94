"""The user's own model: ``path/file.py:function``.

The function takes no argument, or one named ``batch``, and returns the module with its inputs: ``(module, inputs)``
where inputs is a tensor, a tuple of positional inputs, a dict of named ones, or ``(args, kwargs)``. This is the only
place where rooflens runs code from a path, and only from one that was named as the model.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from rooflens.errors import InvalidValue, ModelError, UnknownModel
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.step import sum_of_outputs

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def blueprint(name: str) -> Blueprint:
    """Return the blueprint of a model that a user's function makes.

    Raises:
        UnknownModel: the file does not exist or has no such function.
        ModelError: the file or the function raised; the message names the line.
    """
    path, _, function_name = name.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise UnknownModel("model file", path, [], "; there is no such file")
    function = _function(file, function_name)
    parameters = inspect.signature(function).parameters
    batched = "batch" in parameters
    others = [p.name for p in parameters.values() if p.name != "batch" and p.default is p.empty and p.kind not in _REST]
    if others:
        raise ModelError(f"{name} needs {', '.join(others)}: its function may take no argument but one named batch")
    default = parameters["batch"].default if batched else None

    def call(batch: int | None) -> tuple[Any, Any]:
        result = _guarded(name, lambda: function() if batch is None else function(batch=batch))
        return _module_and_inputs(name, result)

    first = default if isinstance(default, int) else 1 if batched else None
    return Blueprint(
        name=name,
        build=lambda: call(first)[0],
        example=lambda batch: example_of(call(batch)[1]),
        loss=sum_of_outputs,
        batched=batched,
        default_batch=first,
    )


def _function(file: Path, name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(f"rooflens_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InvalidValue(f"{str(file)!r} is no Python file; give path/file.py:function")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    # Dataclasses and pickling look their module up by name; the folder lets the file import its neighbours.
    sys.modules[spec.name] = module
    folder = str(file.parent.resolve())  # now: the file may change the working folder
    sys.path.insert(0, folder)
    try:
        _guarded(str(file), lambda: loader.exec_module(module))
    finally:
        with suppress(ValueError):  # the file has put another list in its place
            sys.path.remove(folder)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownModel(f"function in {file}", name, known, f"; it has {', '.join(known) or 'no function'}")
    return function  # type: ignore[no-any-return]


def _guarded(name: str, call: Callable[[], Any]) -> Any:
    """Run the user's code; errors name its line."""
    try:
        return call()
    except SystemExit as error:
        raise ModelError(f"{name} ends the program (exit code {error.code})") from error
    except SyntaxError as error:
        raise ModelError(f"{error.filename or name} is no valid Python: {error.msg} (line {error.lineno})") from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            f"{name} raised {type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        ) from error


def _module_and_inputs(name: str, result: Any) -> tuple[Any, Any]:
    if isinstance(result, tuple) and len(result) in (2, 3) and isinstance(result[0], torch.nn.Module):
        return result[0], result[1] if len(result) == 2 else (result[1], result[2])
    raise ModelError(
        f"{name} returned {type(result).__name__}; it has to return (module, inputs), where inputs is a tensor,"
        " a tuple, a dict, or (args, kwargs)"
    )


def example_of(inputs: Any) -> Example:
    """Inputs in one of the forms that `split_inputs` knows, as an example."""
    args, kwargs = split_inputs(inputs)
    return Example(args=args, kwargs=kwargs)


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named inputs of a tensor, a tuple, a dict, or (args, kwargs)."""
    if isinstance(inputs, dict):
        return (), inputs
    if not isinstance(inputs, tuple | list):
        return (inputs,), {}
    if len(inputs) == 2 and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), dict(inputs[1])
    return tuple(inputs), {}
