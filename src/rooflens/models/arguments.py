"""Arguments of an operation, from text or Python: shapes become tensors on meta, text becomes values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from rooflens.errors import InvalidValue
from rooflens.models.dtypes import FLOATING_TYPES

ValueKind = Literal["tensor", "tensors", "int", "ints", "float", "number", "bool", "str"]
EXAMPLE = "64x3x7x7, or 32x128:int64 for another type"
WORDS: Mapping[ValueKind, str] = {
    "tensor": f"a shape like {EXAMPLE}",
    "tensors": "shapes like 64x3x7x7,64",
    "int": "a whole number",
    "ints": "whole numbers like 2 or 2,2",
    "float": "a number",
    "number": "a number",
    "bool": "true or false",
    "str": "a word",
}
INTEGERS = ("indices", "index")
"""Tensors of whole numbers, unless their shape names a type."""
_SHAPE = re.compile(r"(?P<sizes>\d+(?:x\d+)*|scalar)(?::(?P<dtype>\w+))?")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
ABSENT = object()


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument that an operation takes.

    Attributes:
        default: `ABSENT` if it has to be given.
        by_name: it is passed by name only.
    """

    name: str
    kind: ValueKind
    default: Any = ABSENT
    by_name: bool = False

    @property
    def needed(self) -> bool:
        return self.default is ABSENT


def read_tensor(operation: str, parameter: Parameter, given: Any, dtype: str, backward: bool) -> torch.Tensor:
    """Return a tensor of a shape: of a tuple, a number, text like ``32x128:int64``, or another tensor.

    Raises:
        InvalidValue: it is none of these.
    """
    if isinstance(given, torch.Tensor):
        shape, element = tuple(given.shape), given.dtype
    elif isinstance(given, str):
        match = _SHAPE.fullmatch(given)
        if match is None:
            raise _unreadable(operation, parameter, given)
        sizes = match["sizes"]
        shape = () if sizes == "scalar" else tuple(map(int, sizes.split("x")))
        element = _element_type(match["dtype"] or _usual(parameter, dtype))
    else:
        try:
            shape = (given,) if isinstance(given, int) else tuple(map(int, given))
        except (TypeError, ValueError) as error:
            raise _unreadable(operation, parameter, given) from error
        if any(size < 0 for size in shape):
            raise _unreadable(operation, parameter, given)
        element = _element_type(_usual(parameter, dtype))
    floating = element.is_floating_point or element.is_complex
    return torch.empty(shape, dtype=element, device="meta", requires_grad=backward and floating)


def _usual(parameter: Parameter, dtype: str) -> str:
    if parameter.name in INTEGERS:
        return "int64"
    return dtype if dtype in ("fp16", "bf16") else "fp32"


def _element_type(name: str) -> torch.dtype:
    """Return the element type of a name of rooflens or torch."""
    element = FLOATING_TYPES.get(name) or getattr(torch, name, None)
    if not isinstance(element, torch.dtype):
        known = ", ".join(FLOATING_TYPES)
        raise InvalidValue(f"unknown element type {name!r}; known: {known}, and torch's own (int64, bool ...)")
    return element


def read_value(operation: str, parameter: Parameter, given: Any) -> Any:
    """Return a value that is not a tensor, read from text or as it is.

    Raises:
        InvalidValue: it is not what the parameter takes.
    """
    try:
        if parameter.kind == "bool":
            return given if isinstance(given, bool) else _TRUTH[str(given).lower()]
        if parameter.kind == "ints":
            parts = re.split("[x,]", given) if isinstance(given, str) else given
            return [_whole(part) for part in ((parts,) if isinstance(parts, int) else parts)]
        if parameter.kind == "int":
            return int(given)
        if parameter.kind == "number" and isinstance(given, str):
            return int(given) if re.fullmatch(r"-?\d+", given) else float(given)
        return float(given) if parameter.kind == "float" else given
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(operation, parameter, given) from error


def _whole(part: Any) -> int:
    return int(_TRUTH.get(part.lower(), part)) if isinstance(part, str) else int(part)


def _unreadable(operation: str, parameter: Parameter, given: Any) -> InvalidValue:
    return InvalidValue(f"{operation}: {parameter.name} is {given!r}; it has to be {WORDS[parameter.kind]}")
