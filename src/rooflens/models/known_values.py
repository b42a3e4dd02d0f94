"""Fake tensors of which small integers keep their values: grids of images and places of tokens decide shapes."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves

MOST_KNOWN = 1 << 22
"""Numbers of the largest tensor whose values are kept; one that repeats values has fewer."""
MOST_PLACES = 1 << 28
"""Numbers of the largest tensor with repeated values."""
_aten = torch.ops.aten
_MADE_OF_SIZES = frozenset((_aten.arange, _aten.zeros, _aten.ones, _aten.full, _aten.scalar_tensor))
_MADE_OF_NOISE = frozenset((_aten.randn, _aten.rand))
_KEEP_NOISE = frozenset((_aten._to_copy, _aten.clone))
_COMPARED = {_aten.eq.Scalar: False, _aten.ne.Scalar: True}
_INDEXED = frozenset((_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default))


class KnownValues(FakeTensorMode):
    """Fake tensors; integers that follow from known ones by any operation are known too.

    Random numbers are never equal to a given one, so an image of them is no padding.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_non_fake_inputs=True, **options)
        self._noise: set[StorageWeakRef] = set()

    def may_turn_const(self, t: torch.Tensor) -> bool:
        return _may_be_known(t) and not self.is_our_fake(t) and not t.is_meta

    def known(self, fake: FakeTensor, values: torch.Tensor) -> FakeTensor:
        """Give a fake tensor the values that it has."""
        fake.constant = values
        self.fake_tensor_converter.add_constant_storage_mapping(fake)
        return fake

    def is_random(self, fake: torch.Tensor) -> None:
        """Take down that a fake tensor holds random numbers."""
        if fake.is_floating_point():
            self._noise.add(StorageWeakRef(fake.untyped_storage()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _INDEXED and getattr(args[0], "constant", None) is None:
            args = (args[0], [part for index in args[1] for part in self._places(index)], *args[2:])
        made = super().__torch_dispatch__(func, types, args, kwargs)
        kind = getattr(func, "overloadpacket", None)
        if not isinstance(made, FakeTensor) or made.constant is not None:
            return made
        if kind in _MADE_OF_NOISE or (kind in _KEEP_NOISE and self._holds_noise(args[0])):
            self.is_random(made)
        if func in _COMPARED and self._holds_noise(args[0]):
            with no_dispatch():
                return self.known(made, torch.tensor(_COMPARED[func], device="cpu").expand(made.shape))
        if kind not in _MADE_OF_SIZES or not _may_be_known(made) or _has_tensors((args, kwargs)):
            return made
        with no_dispatch():
            return self.known(made, func(*args, **{**(kwargs or {}), "device": torch.device("cpu")}))

    def _holds_noise(self, tensor: Any) -> bool:
        return isinstance(tensor, FakeTensor) and StorageWeakRef(tensor.untyped_storage()) in self._noise

    def _places(self, index: Any) -> list[Any]:
        """An index; of a mask whose values are known as many places as it has, along each dimension."""
        if not isinstance(index, FakeTensor) or index.dtype is not torch.bool or index.constant is None:
            return [index]
        with no_dispatch():
            places = torch.empty(int(index.constant.sum()), dtype=torch.int64, device="meta")
        return [FakeTensor(self, places, index.device) for _ in index.shape]


def _may_be_known(tensor: torch.Tensor) -> bool:
    if tensor.is_floating_point() or tensor.is_complex() or tensor.layout is not torch.strided:
        return False
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return tensor.numel() <= MOST_PLACES and prod(sizes) <= MOST_KNOWN


def _has_tensors(arguments: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(arguments))


def keep(mode: KnownValues, fake: FakeTensor, tensor: torch.Tensor) -> FakeTensor:
    """Return the fake copy of a tensor, with its values if they may be known."""
    if tensor.is_meta or not _may_be_known(tensor):
        return fake
    with no_dispatch():  # the mode may be on: its copy would be fake
        values = tensor.detach().clone()
    return mode.known(fake, values)
