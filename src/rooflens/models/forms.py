"""The forms in which people give a module and its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rooflens.errors import InvalidValue, ModelError, class_of, cut
from rooflens.models.blueprint import Example

WANTED = (
    "it has to return (module, inputs), where inputs is a tensor, a tuple of positional inputs, a dict of named ones,"
    " or (args, kwargs)"
)


def module_and_inputs(name: str, result: Any) -> tuple[torch.nn.Module, Any]:
    """Return what a user's function gave: the module, and its inputs in a form of :func:`split_inputs`.

    Raises:
        ModelError: it gave something else; the message says what.
    """
    wrong = _what_is_wrong(result)
    if wrong:
        raise ModelError(f"{name} returned {wrong}; {WANTED}")
    module, *inputs = result
    return module, inputs[0] if len(inputs) == 1 else (tuple(inputs[0]), inputs[1])


def _what_is_wrong(result: Any) -> str:
    """Return what is wrong with the result of a user's function; nothing if it has one of the forms."""
    if isinstance(result, tuple | list):
        return _what_is_wrong_with_values(f"({_listed(map(_described, result))})", result)
    if isinstance(result, torch.nn.Module):
        return f"a module ({class_of(result)}) without inputs"
    if isinstance(result, dict):
        return f"a dict with {_listed(map(repr, result))}, which does not say what the module is"
    return "None, as a function without a return does" if result is None else _described(result)


def _what_is_wrong_with_values(what: str, result: Sequence[Any]) -> str:
    if len(result) not in (2, 3):
        return f"{len(result)} values, {what}" if len(result) != 1 else f"one value, {what}"
    if isinstance(result[0], torch.nn.Module):
        return _what_is_wrong_with_inputs(what, result[1:])
    if any(isinstance(part, torch.nn.Module) for part in result[1:]):
        return f"{what}, whose module is not the first"
    is_class = isinstance(result[0], type) and issubclass(result[0], torch.nn.Module)
    return f"{what}, whose first value is {'a class and no instance of it' if is_class else 'no module'}"


def _what_is_wrong_with_inputs(what: str, given: Sequence[Any]) -> str:
    if len(given) == 2 and not _is_args_and_kwargs(given):
        return f"{what}: of three values the second is a tuple of positional inputs, the third a dict of named ones"
    inputs = given[0] if len(given) == 1 else given
    if inputs is None or isinstance(inputs, type | torch.nn.Module):
        return f"{what}, whose second value is no input"
    named = inputs if isinstance(inputs, dict) else inputs[1] if _is_args_and_kwargs(inputs) else {}
    wrong = [key for key in named if not isinstance(key, str)]
    return f"{what}, with {cut(repr(wrong[0]), 100)} as the name of an input, which is no word" if wrong else ""


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {cut(value.__name__, 100)}"
    return "None" if value is None else class_of(value)


def _listed(words: Any, most: int = 6) -> str:
    listed = list(words)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(cut(word, 100) for word in listed[:most]) or "nothing") + more


def example_of(inputs: Any, module: torch.nn.Module | None = None) -> Example:
    """Return inputs in one of the forms that `split_inputs` knows, as an example."""
    args, kwargs = split_inputs(inputs, module)
    return Example(args=args, kwargs=kwargs)


def split_inputs(inputs: Any, module: torch.nn.Module | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named inputs of a tensor, a tuple, a dict, or (args, kwargs).

    A named tuple, and a mapping that is no dict, are given by name where the module has these arguments. Else a named
    tuple is given by position where the module needs so many arguments, and both are one argument otherwise.

    Raises:
        InvalidValue: there are none.
    """
    if inputs is None:
        raise InvalidValue("the inputs are None; give a tensor, a tuple, a dict, or (args, kwargs)")
    fields = getattr(inputs, "_fields", None) if isinstance(inputs, tuple) else None
    if fields is not None and fields != ("args", "kwargs"):
        return _of_named_tuple(inputs, fields, module)
    if isinstance(inputs, dict) or (isinstance(inputs, Mapping) and _takes_names(module, list(inputs))):
        return (), inputs if isinstance(inputs, dict) else dict(inputs)
    if _is_args_and_kwargs(inputs):
        return tuple(inputs[0]), dict(inputs[1])
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def _of_named_tuple(
    inputs: tuple[Any, ...], fields: Sequence[str], module: torch.nn.Module | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if _takes_names(module, fields):
        return (), dict(zip(fields, inputs, strict=True))
    return (tuple(inputs) if _needs(module, len(inputs)) else (inputs,)), {}


def _is_args_and_kwargs(inputs: Any) -> bool:
    return (
        isinstance(inputs, tuple | list)
        and len(inputs) == 2
        and isinstance(inputs[0], tuple | list)
        and isinstance(inputs[1], dict)
    )


def _parameters(module: torch.nn.Module | None) -> list[inspect.Parameter]:
    """Return the arguments of a module's forward; none where they are not known."""
    if module is None:
        return []
    try:
        return list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # written in C++
        return []


def _takes_names(module: torch.nn.Module | None, names: Sequence[Any]) -> bool:
    """True if the arguments of these names, and no others, can be given to a module."""
    parameters = [p for p in _parameters(module) if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = {p.name for p in parameters}
    needed = {p.name for p in parameters if p.default is p.empty}
    return bool(names) and needed <= set(names) <= known


def _needs(module: torch.nn.Module | None, count: int) -> bool:
    """True if a module needs so many arguments by position, or takes any number."""
    parameters = _parameters(module)
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == count or (not needed and any(p.kind is p.VAR_POSITIONAL for p in parameters))
