"""Calls as plain values, and back: how record files keep what was called.

A tensor is written as ``{"fp32": [64, 3, 7, 7]}``, with ``"nbytes"`` where its elements are not stored densely or where
the size of their type is not known here; a list of arguments is an array; a float that JSON does not know (an infinite
fill value) is ``{"float": "-inf"}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rooflens.records.operation import Argument, Call, Tensor

ELEMENT_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "complex128": 16,
    "complex64": 8,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element, by type."""


def to_plain(call: Call) -> dict[str, Any]:
    """The call as JSON can hold it."""
    return {
        "name": call.name,
        "arguments": [[name, _plain(value)] for name, value in call.arguments],
        "outputs": [_plain(tensor) for tensor in call.outputs],
        "reads": call.reads,
        "writes": call.writes,
        "weight_reads": call.weight_reads,
    }


def from_plain(entry: Mapping[str, Any]) -> Call:
    """The call that :func:`to_plain` took apart.

    Raises:
        KeyError: a field is missing.
        ValueError, TypeError, msgspec.ValidationError: a value is none that a call can have.
    """
    import msgspec

    arguments = msgspec.convert(entry["arguments"], list[tuple[str, Any]])
    return Call(
        name=msgspec.convert(entry["name"], str),
        arguments=tuple((name, _argument(value)) for name, value in arguments),
        outputs=tuple(map(_tensor, msgspec.convert(entry["outputs"], list[dict[str, Any]]))),
        reads=msgspec.convert(entry["reads"], int),
        writes=msgspec.convert(entry["writes"], int),
        weight_reads=msgspec.convert(entry["weight_reads"], int),
    )


def _plain(value: Argument) -> Any:
    if isinstance(value, Tensor):
        known = value.dtype in ELEMENT_BYTES
        dense = known and value.stored is None and value.nbytes == value.elements * ELEMENT_BYTES[value.dtype]
        stored = {} if value.stored is None else {"stored": value.stored}
        return {value.dtype: value.shape} | ({} if dense else {"nbytes": value.nbytes}) | stored
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _argument(value: Any) -> Argument:
    if isinstance(value, list):
        return tuple(map(_argument, value))
    if isinstance(value, dict):
        return float(value["float"]) if "float" in value else _tensor(value)
    assert value is None or isinstance(value, str | int | float)
    return value


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    import msgspec

    (dtype, shape), *_ = entry.items()
    sizes = msgspec.convert(shape, tuple[int, ...])
    if "nbytes" in entry:
        stored = msgspec.convert(entry.get("stored"), int | None)
        return Tensor(sizes, dtype, msgspec.convert(entry["nbytes"], int), stored)
    if dtype not in ELEMENT_BYTES:
        raise ValueError(f"a tensor of unknown type {dtype!r} without its bytes")
    return Tensor(sizes, dtype, math.prod(sizes) * ELEMENT_BYTES[dtype])
