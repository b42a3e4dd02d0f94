"""A tensor in a graph: its type, where its elements lie, and its contents where they follow from shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from rooflens.errors import ModelError
from rooflens.graph.elements import described, name_of
from rooflens.records import Strides, Tensor, dense_strides

Data = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GraphValue:
    """What a name in a graph stands for.

    Attributes:
        type: as ONNX writes it, as far as it is known.
        tensor: shape, element type and bytes; None where a size is not known.
        block: number of the memory behind it; views share one.
        strides: of the elements in that memory.
        offset: of the first element in that memory.
        constant: whether it is the same in every run.
        data: the contents, where they are small and follow from the file and from shapes.
        roots: memory of the tensors in the file that it was made of, where it is constant.
        packed: the quantized tensor that this one is, multiplied out; products read that one.
    """

    type: onnx.TypeProto
    tensor: Tensor | None
    block: int
    strides: Strides = ()
    offset: int = 0
    constant: bool = False
    data: Data | None = None
    roots: frozenset[int] = frozenset()
    packed: GraphValue | None = None

    @property
    def known(self) -> Tensor:
        """The tensor of a value whose sizes are known."""
        if self.tensor is None:
            raise ModelError("it takes a value of which a size or the type is not known")
        return self.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.known.shape

    @property
    def dtype(self) -> str:
        return self.known.dtype

    def shaped(self, shape: Sequence[int], dtype: str | None = None) -> GraphValue:
        """The same memory with another shape, as PyTorch views it for its own operation."""
        tensor = replace(self.known, shape=tuple(shape), dtype=dtype or self.dtype, strides=dense_strides(shape))
        return replace(self, tensor=tensor)

    def view(self, shape: Sequence[int], strides: Strides, offset: int = 0) -> GraphValue:
        """A view of the same memory."""
        tensor = described(shape, self.dtype, strides)
        return replace(
            self,
            type=tensor_type(self.type.tensor_type.elem_type, shape),
            tensor=tensor,
            strides=strides,
            offset=self.offset + offset,
            data=None,
            packed=None if self.packed is None else self.packed.view(shape, strides, offset),
        )

    @property
    def number(self) -> int | float | None:
        """The value of a single known number."""
        if self.data is None or self.data.size != 1 or self.data.dtype.kind not in "iuf":
            return None
        number: int | float = self.data.reshape(()).item()
        return number


def value_of(type_: onnx.TypeProto, block: int, strides: Strides | None = None, **more: Any) -> GraphValue:
    """The value of a type, contiguous unless strides are given."""
    shape, dtype = sizes_of(type_), name_of(type_.tensor_type.elem_type)
    if shape is None or dtype is None:
        return GraphValue(type=type_, tensor=None, block=block, **more)
    placed = dense_strides(shape) if strides is None else strides
    return GraphValue(type=type_, tensor=described(shape, dtype, placed), block=block, strides=placed, **more)


def sizes_of(type_: onnx.TypeProto) -> tuple[int, ...] | None:
    """The shape of a tensor type; None unless every size is known."""
    if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None


def tensor_type(element_type: int, shape: Sequence[int | None] | None) -> onnx.TypeProto:
    """The type of a tensor; None is a size (or a shape) that is not known."""
    return onnx.helper.make_tensor_type_proto(element_type, shape)


def integers(value: GraphValue | None) -> list[int] | None:
    """The contents of a value as whole numbers, where they are known."""
    if value is None or value.data is None or value.data.dtype.kind not in "iub":
        return None
    return [int(n) for n in np.ravel(value.data)]
