"""The plain tensors behind one that is not a plain array: sparse, jagged, or of a class around others."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

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
        ModelError: a nested tensor of strided layout, one of mkldnn's, or one whose class hides what it is made of.
    """
    inner = inner_tensors(tensor)
    if inner is not None:
        return tuple(plain for part in tree_leaves(inner) for plain in plain_tensors(part))
    if tensor.is_nested:
        raise ModelError("a nested tensor of strided layout tells no shape; make it with layout=torch.jagged")
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]
        raise ModelError("a tensor of layout mkldnn is the CPU's own; estimate the model before it is converted")
    if isinstance(tensor, FakeTensor):
        raise without_values(tensor)
    with torch.no_grad():
        if tensor.layout is torch.sparse_coo:
            return tensor._indices(), tensor._values()
        indices = (getattr(tensor, name)() for name in _COMPRESSED[tensor.layout])
        return *indices, tensor.values()


def inner_tensors(tensor: Tensor) -> Any:
    """The tensors that one of a class around others is made of, as that class tells them; None for any other tensor.

    A class that does not tell them holds them in its attributes.
    """
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        names, _ = flatten()
        return [getattr(tensor, name) for name in names]
    if not wraps(type(tensor)):
        return None
    held = [value for value in tree_leaves(vars(tensor)) if isinstance(value, Tensor)]
    if not held and not _has_memory(tensor):
        raise ModelError(f"a tensor of class {type(tensor).__name__} does not tell which tensors it is made of")
    return held or None


@cache
def wraps(kind: type) -> bool:
    """True for a class of tensors that takes operations apart itself, like quantised weights with their scales."""
    if hasattr(kind, "__tensor_flatten__"):
        return True
    own = getattr(kind, "__torch_dispatch__", None) != Tensor.__torch_dispatch__
    return own and issubclass(kind, Tensor) and not issubclass(kind, FakeTensor)


def _has_memory(tensor: Tensor) -> bool:
    try:
        return tensor.untyped_storage().data_ptr() != 0
    except RuntimeError:
        return False


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of memory behind the elements of a plain tensor: a dimension expanded with stride 0 is stored once."""
    n = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride or not size:
            n *= size
    return n


def without_values(tensor: Tensor) -> DataDependent:
    """The error for a sparse tensor without values: they tell how much it stores."""
    return DataDependent(f"what a {str(tensor.layout).removeprefix('torch.')} tensor holds depends on values")
