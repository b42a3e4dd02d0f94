"""Fake tensors of which small integers keep their values: grids of images and places of tokens decide shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves

MOST_KNOWN = 1 << 18
"""Numbers of the largest tensor whose values are kept."""
_aten = torch.ops.aten
_MADE_OF_SIZES = frozenset((_aten.arange, _aten.zeros, _aten.ones, _aten.full, _aten.scalar_tensor))


class KnownValues(FakeTensorMode):
    """Fake tensors; integers that follow from known ones by any operation are known too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_non_fake_inputs=True, **options)

    def may_turn_const(self, t: torch.Tensor) -> bool:
        return _may_be_known(t) and not self.is_our_fake(t) and not t.is_meta

    def known(self, fake: FakeTensor, values: torch.Tensor) -> FakeTensor:
        """Give a fake tensor the values that it has."""
        fake.constant = values
        self.fake_tensor_converter.add_constant_storage_mapping(fake)
        return fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_dispatch__(func, types, args, kwargs)
        if getattr(func, "overloadpacket", None) not in _MADE_OF_SIZES or not isinstance(made, FakeTensor):
            return made
        if made.constant is not None or not _may_be_known(made) or _has_tensors((args, kwargs)):
            return made
        with no_dispatch():
            return self.known(made, func(*args, **{**(kwargs or {}), "device": torch.device("cpu")}))


def _may_be_known(tensor: torch.Tensor) -> bool:
    plain = not tensor.is_floating_point() and not tensor.is_complex() and tensor.layout is torch.strided
    return plain and tensor.numel() <= MOST_KNOWN


def _has_tensors(arguments: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(arguments))


def keep(mode: KnownValues, fake: FakeTensor, tensor: torch.Tensor) -> FakeTensor:
    """Return the fake copy of a tensor, with its values if they may be known."""
    if tensor.is_meta or not _may_be_known(tensor):
        return fake
    return mode.known(fake, tensor.detach().clone())
