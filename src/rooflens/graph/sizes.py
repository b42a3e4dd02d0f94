"""Sizes that a file leaves open, and how the user's choices fix them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import onnx

from rooflens.errors import InvalidValue, UnknownName
from rooflens.graph.elements import name_of
from rooflens.graph.file import GraphFile
from rooflens.graph.paths import shown

Role = Literal["batch", "spatial", "sequence", "other"]

_NAMED: tuple[tuple[Role, re.Pattern[str]], ...] = (
    # How long a cache is, and sums of sizes, is nothing that one of the options says.
    ("other", re.compile(r"past|cache|history|context|[^\w.?-]", re.IGNORECASE)),
    ("batch", re.compile(r"batch|^(n|b|bs|bsz)$", re.IGNORECASE)),
    ("sequence", re.compile(r"seq|token|time|len|step|frame|^(s|t|l)$", re.IGNORECASE)),
    ("spatial", re.compile(r"height|width|image|img|spatial|^(h|w)$|size", re.IGNORECASE)),
)
_REMEDY = {
    "spatial": "give its size with img_size (--img-size)",
    "sequence": "give its length with seq_len (--seq-len)",
    "other": "it is no batch, image size or length of a sequence that rooflens recognises: give it with"
    " dims={{{name!r}: 8}} (--dim {shell}=8)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSize:
    """A size of an input that the file leaves open.

    Attributes:
        place: name of the input and position of the dimension.
        symbol: what the file calls it, or "".
    """

    place: tuple[str, int]
    symbol: str
    role: Role

    @property
    def name(self) -> str:
        """What it is called in `dims`: its symbol, or where it has none, ``input:1``."""
        return self.symbol or "{}:{}".format(*self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Every open size, decided: by place among the inputs, and by symbol."""

    places: Mapping[tuple[str, int], int]
    symbols: Mapping[str, int]


def open_sizes(file: GraphFile) -> tuple[OpenSize, ...]:
    """The sizes that a file leaves open, each with what it is: by its name, else by its place."""
    dims = [dim for info in file.inputs for dim in _of_input(info)]
    roles: dict[str, Role] = {}
    for dim in dims:
        if dim.symbol and roles.get(dim.symbol, "other") == "other":
            roles[dim.symbol] = dim.role
    # Where one first dimension is called the batch, another name in that place is something else.
    named = {dim.symbol for dim in dims if _by_name(dim.symbol) == "batch"}
    for dim in dims:
        if named and dim.symbol and dim.symbol not in named and roles[dim.symbol] == "batch":
            roles[dim.symbol] = "other"
    return tuple(replace(dim, role=roles.get(dim.symbol, dim.role)) for dim in dims)


def fixed_batch(file: GraphFile) -> int | None:
    """The first size that all inputs share, where it is built in; None if they differ."""
    firsts = {_size(info.type.tensor_type.shape.dim[0]) for info in file.inputs if info.type.tensor_type.shape.dim}
    return firsts.pop() if len(firsts) == 1 else None


def has_open_batch(file: GraphFile, dims: Mapping[str, int]) -> bool:
    """True if the batch is left to choose when some sizes are given by name."""
    return any(dim.role == "batch" and dim.name not in dims for dim in open_sizes(file))


def decide(
    file: GraphFile, *, batch: int | None, img_size: int | None, seq_len: int | None, dims: Mapping[str, int]
) -> Sizes:
    """Give every open size a value: by its name, else by its role, else as the sum that its name writes.

    Raises:
        InvalidValue: a size has none, an option has no size to decide, or the batch is built in and another one.
    """
    left_open = open_sizes(file)
    _refuse_unknown_names(file, left_open, dims)
    _refuse_what_decides_nothing(file, [dim for dim in left_open if dim.name not in dims], batch, img_size, seq_len)
    roles: dict[Role, int | None] = {"batch": 1 if batch is None else batch, "spatial": img_size, "sequence": seq_len}
    values = {dim.name: dims.get(dim.name, roles.get(dim.role)) for dim in left_open}
    sums = {dim.name: _sum(dim.symbol, values) for dim in left_open if values[dim.name] is None}
    known = {name: value for name, value in (values | sums).items() if value is not None}
    for dim in left_open:
        if dim.name not in known:
            raise InvalidValue(f"{file.name}: {_described(dim)} is open; {_remedy(dim)}")
    return Sizes(
        places={dim.place: known[dim.name] for dim in left_open},
        symbols={dim.symbol: known[dim.name] for dim in left_open if dim.symbol},
    )


def _sum(symbol: str, values: Mapping[str, int | None]) -> int | None:
    """The value of a name like ``past_sequence_length + sequence_length``, where its parts are known."""
    parts = [int(part) if part.isdecimal() else values.get(part) for part in map(str.strip, symbol.split("+"))]
    return None if len(parts) == 1 or None in parts else sum(part or 0 for part in parts)


def _described(dim: OpenSize) -> str:
    name, position = dim.place
    called = f" ({shown(dim.symbol)!r})" if dim.symbol else ""
    return f"dimension {position}{called} of input {shown(name)!r}"


def _remedy(dim: OpenSize) -> str:
    name = shown(dim.name)
    return _REMEDY[dim.role].format(name=name, shell=shlex.quote(name))


def _refuse_unknown_names(file: GraphFile, left_open: Sequence[OpenSize], dims: Mapping[str, int]) -> None:
    known = {dim.name: dim for dim in left_open}
    for name, size in dims.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidValue(f"dims gives {name!r} the size {size!r}; give a whole number")
        if name not in known:
            left = ", ".join(sorted({repr(shown(n)) for n in known})) or "nothing"
            raise UnknownName("dimension", shown(name), [], f"; what {file.name} leaves open: {left}")
        if _by_name(name) == "batch":
            raise InvalidValue(f"{_described(known[name])} is the batch; give it with batch (--batch)")


def _refuse_what_decides_nothing(
    file: GraphFile, left_open: Sequence[OpenSize], batch: int | None, img_size: int | None, seq_len: int | None
) -> None:
    roles = {dim.role for dim in left_open}
    for option, value, role in (("img_size", img_size, "spatial"), ("seq_len", seq_len, "sequence")):
        if value is not None and role not in roles:
            raise InvalidValue(f"{option}={value} has no meaning for {file.name!r}, whose inputs fix it; leave it out")
    if batch is not None and "batch" not in roles and batch != fixed_batch(file):
        built_in = fixed_batch(file)
        raise InvalidValue(
            f"{file.name!r} cannot have batch {batch}: "
            + (f"batch {built_in} is built in" if built_in is not None else "its inputs have no common batch")
            + "; leave the batch out, or export the model with an open first dimension"
        )


def input_type(info: onnx.ValueInfoProto, sizes: Sizes) -> onnx.TypeProto:
    """The type of an input with its open sizes decided."""
    type_ = onnx.TypeProto()
    type_.CopyFrom(info.type)
    for position, dim in enumerate(type_.tensor_type.shape.dim):
        if (info.name, position) in sizes.places:
            dim.dim_value = sizes.places[info.name, position]
    return type_


def declared_type(info: onnx.ValueInfoProto, sizes: Sizes) -> onnx.TypeProto:
    """The type that the file declares for a value in it, with the symbols that are decided replaced."""
    type_ = onnx.TypeProto()
    type_.CopyFrom(info.type)
    for dim in type_.tensor_type.shape.dim if type_.HasField("tensor_type") else ():
        if dim.dim_param in sizes.symbols:
            dim.dim_value = sizes.symbols[dim.dim_param]
        elif _size(dim) is None:
            dim.ClearField("value")
    return type_


def _of_input(info: onnx.ValueInfoProto) -> Iterator[OpenSize]:
    tensor = info.type.tensor_type
    if info.type.HasField("tensor_type") and not tensor.HasField("shape"):
        raise InvalidValue(
            f"input {shown(info.name)!r} has no shape in the file: add one (onnx.tools.update_model_dims)"
        )
    dims = tensor.shape.dim
    for position, dim in enumerate(dims):
        if _size(dim) is None:
            role = _by_name(dim.dim_param) or _by_place(position, dims, name_of(tensor.elem_type) or "")
            yield OpenSize(place=(info.name, position), symbol=dim.dim_param, role=role)


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """A size that is fixed; 0 and -1 are how some exporters leave it open."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _by_name(symbol: str) -> Role | None:
    return next((role for role, pattern in _NAMED if symbol and pattern.search(symbol)), None)


def _by_place(position: int, dims: Sequence[onnx.TensorShapeProto.Dimension], dtype: str) -> Role:
    """The role of a dimension whose name does not tell: the batch comes first, and images have four dimensions."""
    rank = len(dims)
    if position == 0:
        return "batch"
    last = _size(dims[-1])
    channels_last = rank == 4 and last is not None and last <= 4
    if rank == 4 and position in ((1, 2) if channels_last else (2, 3)):
        return "spatial"
    if position == 1 and (rank == 3 or (rank == 2 and "int" in dtype)):
        return "sequence"
    return "other"
