"""Fake tensors in modules: made of those that a module holds, and treated by code as any others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from rooflens.models.holders import Holders
from rooflens.models.known_values import KnownValues, keep

Convert = Callable[[Tensor], Tensor]


def without_memory(module: nn.Module, mode: KnownValues) -> nn.Module:
    """Return a module of which every tensor is a fake one on the CPU from now on; small integers keep their values."""
    made: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            made[id(tensor)] = keep(mode, FakeTensor(mode, meta, torch.device("cpu")), tensor)
        return made[id(tensor)]

    with torch.no_grad():
        Holders(module).exchange(fake)
    return module


def _converted(tensor: Tensor, fn: Convert) -> Tensor:
    with torch.no_grad():
        made = fn(tensor)
    return tensor if made is tensor else made.requires_grad_(tensor.requires_grad)


@contextmanager
def usual_methods() -> Iterator[None]:
    """Let code convert modules of fake tensors (`Module.to`) and copy fake tensors (`deepcopy`) as any others.

    torch exchanges what tensors hold, or their storage, which fake ones do not allow.
    """
    theirs: Callable[[nn.Module, Convert, bool], nn.Module] = nn.Module._apply

    def converted(module: nn.Module, fn: Convert, recurse: bool = True) -> nn.Module:
        held: list[dict[str, Any]] = [module._parameters, module._buffers]
        if not any(isinstance(tensor, FakeTensor) for tensors in held for tensor in tensors.values()):
            return theirs(module, fn, recurse)
        for child in module.children() if recurse else ():
            child._apply(fn)
        for tensors in held:
            tensors.update({name: _converted(tensor, fn) for name, tensor in tensors.items() if tensor is not None})
        return module

    def copied(tensor: FakeTensor, memo: dict[int, Any]) -> Tensor:
        if id(tensor) not in memo:
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copy: Tensor = memo[id(tensor)]
        return copy

    with (
        patch.object(nn.Module, "_apply", converted),
        patch.object(FakeTensor, "__deepcopy__", copied, create=True),
    ):
        yield
