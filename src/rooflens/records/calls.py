"""Calls as plain values, and back: how record files keep what was called.

A tensor is written as ``{"fp32": [64, 3, 7, 7]}``, with ``"nbytes"`` where its elements are not stored densely or where
the size of their type is not known here; a list of arguments is an array; a float that JSON does not know (an infinite
fill value) is ``{"float": "-inf"}``.

A tensor is row-major and begins where its storage begins, unless it has ``"strides"`` (numbers, or the name of a memory
format) and ``"offset"``. In a call with a ``"layout"`` the tensors without strides have this memory format if it is one
of so many dimensions and they have more than one position (else torch leaves them row-major); in a call with
``"layout": null`` their layout is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rooflens.records.operation import Argument, Call, Strides, Tensor, dense_strides

ELEMENT_BYTES = {
    "complex128": 16,
    **dict.fromkeys(("fp64", "int64", "complex64"), 8),
    **dict.fromkeys(("fp32", "int32"), 4),
    **dict.fromkeys(("fp16", "bf16", "int16"), 2),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"), 1),
}
"""Bytes of one element, by type."""
Layout = Literal["contiguous", "channels_last", "channels_last_3d"]
NAMED: dict[str, int] = {"channels_last": 4, "channels_last_3d": 5}
"""Memory formats by which strides are written, and the dimensions that they are for."""


def to_plain(call: Call, *, layout: bool = True) -> dict[str, Any]:
    """The call as JSON can hold it, with or without the layout of its tensors."""
    common = _common_layout((*call.inputs, *call.outputs))

    def plain(value: Argument) -> Any:
        if isinstance(value, Tensor):
            return _plain_tensor(value) | (_plain_layout(value, common) if layout else {})
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        return value

    return {
        "name": call.name,
        "arguments": [[name, plain(value)] for name, value in call.arguments],
        "outputs": [plain(tensor) for tensor in call.outputs],
        "reads": call.reads,
        "writes": call.writes,
        "weight_reads": call.weight_reads,
    } | ({"layout": common} if layout and common != "contiguous" else {})


def from_plain(entry: Mapping[str, Any], *, layout: bool = True) -> Call:
    """The call from what :func:`to_plain` made of it; without `layout` its tensors have no known layout.

    Raises:
        KeyError: a field is missing.
        ValueError, TypeError, msgspec.ValidationError: a value is none that a call can have.
    """
    import msgspec

    common = msgspec.convert(entry.get("layout", "contiguous"), Layout | None) if layout else None

    def argument(value: Any) -> Argument:
        if isinstance(value, list):
            return tuple(map(argument, value))
        if isinstance(value, dict):
            return float(value["float"]) if "float" in value else tensor(value)
        assert value is None or isinstance(value, str | int | float)
        return value

    def tensor(plain: Mapping[str, Any]) -> Tensor:
        (dtype, sizes), *_ = plain.items()
        shape = msgspec.convert(sizes, tuple[int, ...])
        stored = msgspec.convert(plain.get("stored"), int | None)
        if "nbytes" not in plain and dtype not in ELEMENT_BYTES:
            raise ValueError(f"a tensor of unknown type {dtype!r} without its bytes")
        nbytes = plain["nbytes"] if "nbytes" in plain else math.prod(shape) * ELEMENT_BYTES[dtype]
        strides = _implied(common, shape) if stored is None else None
        if "strides" in plain:
            strides = _strides(plain["strides"], shape)
        offset = None if strides is None else msgspec.convert(plain.get("offset", 0), int)
        return Tensor(shape, dtype, msgspec.convert(nbytes, int), stored, strides, offset)

    arguments = msgspec.convert(entry["arguments"], list[tuple[str, Any]])
    return Call(
        name=msgspec.convert(entry["name"], str),
        arguments=tuple((name, argument(value)) for name, value in arguments),
        outputs=tuple(map(tensor, msgspec.convert(entry["outputs"], list[dict[str, Any]]))),
        reads=msgspec.convert(entry["reads"], int),
        writes=msgspec.convert(entry["writes"], int),
        weight_reads=msgspec.convert(entry["weight_reads"], int),
    )


def _plain_tensor(tensor: Tensor) -> dict[str, Any]:
    known = tensor.dtype in ELEMENT_BYTES
    dense = known and tensor.stored is None and tensor.nbytes == tensor.elements * ELEMENT_BYTES[tensor.dtype]
    stored = {} if tensor.stored is None else {"stored": tensor.stored}
    return {tensor.dtype: tensor.shape} | ({} if dense else {"nbytes": tensor.nbytes}) | stored


def _common_layout(tensors: Sequence[Tensor]) -> str | None:
    """The memory format of most tensors that are not row-major; None if the layout of one is not known."""
    if any(t.strides is None and t.stored is None for t in tensors):
        return None
    names = [t.memory_format for t in tensors if t.strides != dense_strides(t.shape)]
    return max(NAMED, key=names.count) if set(names) & NAMED.keys() else "contiguous"


def _implied(common: str | None, shape: tuple[int, ...]) -> Strides | None:
    """The strides of a tensor that is written without any, in a call of this layout."""
    if common is None:
        return None
    differs = NAMED.get(common) == len(shape) and math.prod(shape[2:]) > 1
    return dense_strides(shape, common if differs else "contiguous")


def _plain_layout(tensor: Tensor, common: str | None) -> dict[str, Any]:
    """The layout, where it differs from that of the call."""
    if tensor.strides is None:
        return {}
    offset = {"offset": tensor.offset} if tensor.offset else {}
    if tensor.stored is None and tensor.strides == _implied(common, tensor.shape):
        return offset
    names = ("contiguous", *(name for name, rank in NAMED.items() if rank == len(tensor.shape)))
    name = next((n for n in names if tensor.strides == dense_strides(tensor.shape, n)), None)
    return {"strides": name or tensor.strides} | offset


def _strides(written: Any, shape: tuple[int, ...]) -> Strides:
    import msgspec

    if written == "contiguous" or (isinstance(written, str) and NAMED.get(written) == len(shape)):
        return dense_strides(shape, written)
    strides = msgspec.convert(written, tuple[int, ...])
    if len(strides) != len(shape):
        raise ValueError(f"strides {written} do not fit the shape {list(shape)}")
    return strides
