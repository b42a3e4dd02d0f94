"""The plain tensors behind one that is not a plain array: sparse, jagged, or of a class around others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from rooflens.errors import DataDependent, ModelError

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def plain_tensors(tensor: Tensor) -> tuple[Tensor, ...]:
    """The plain tensors that hold `tensor`: itself, the indices and values of a sparse one, or those of its class.

    Raises:
        DataDependent: a fake sparse tensor; how much it stores is known only from its values.
        ModelError: a nested tensor of the old, strided layout.
    """
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        names, _ = flatten()
        return tuple(plain for name in names for plain in plain_tensors(getattr(tensor, name)))
    if tensor.is_nested:
        raise ModelError("a nested tensor of strided layout tells no shape; make it with layout=torch.jagged")
    if tensor.layout is torch.strided:
        return (tensor,)
    if isinstance(tensor, FakeTensor):
        raise without_values(tensor)
    with torch.no_grad():
        if tensor.layout is torch.sparse_coo:
            return tensor._indices(), tensor._values()
        indices = (getattr(tensor, name)() for name in _COMPRESSED[tensor.layout])
        return *indices, tensor.values()


def without_values(tensor: Tensor) -> DataDependent:
    """The error for a sparse tensor without values: they tell how much it stores."""
    return DataDependent(f"what a {str(tensor.layout).removeprefix('torch.')} tensor holds depends on values")
