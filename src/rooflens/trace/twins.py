"""Fake twins of tensors: shape, strides and element type on the CPU, with no memory behind them.

A fake tensor here lives on meta storage but says that it is on the CPU. On the meta device itself torch decomposes
attention and turns autocast off; on a fake "cuda" without a driver backward raises. The fake CPU does neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

CPU = torch.device("cpu")


class Fakes:
    """Makes fake tensors of one mode; asking twice for the same tensor gives the same twin.

    Args:
        cast: type that floating twins get; None keeps each tensor's own.
        channels_last: lay four-dimensional twins out with channels last.
    """

    def __init__(self, cast: torch.dtype | None = None, channels_last: bool = False) -> None:
        self._cast = cast
        self._channels_last = channels_last
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._twins: dict[int, tuple[torch.Tensor, FakeTensor]] = {}

    def twin(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake twin of `tensor`, with the same shape and need of a gradient."""
        known = self._twins.get(id(tensor))
        if known is not None:
            return known[1]
        dtype = self._cast if self._cast is not None and tensor.is_floating_point() else tensor.dtype
        with torch.no_grad():
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="meta")
            if self._channels_last and meta.dim() == 4:
                meta = meta.contiguous(memory_format=torch.channels_last)
        fake = FakeTensor(self.mode, meta, CPU)
        fake.requires_grad_(tensor.requires_grad)
        # The original is kept beside its twin so that its id cannot be used again.
        self._twins[id(tensor)] = (tensor, fake)
        return fake

    def tree(self, structure: Any) -> Any:
        """`structure` with every tensor in it replaced by its twin."""
        return tree_map_only(torch.Tensor, self.twin, structure)

    def state(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Twins of all parameters and buffers by name; tied ones share a twin."""
        named = [*module.named_parameters(), *module.named_buffers()]
        return {name: self.twin(tensor) for name, tensor in named}


@contextmanager
def kept_rng_state() -> Iterator[None]:
    """Put the random state of Python, numpy and torch back on leaving."""
    import random

    import numpy as np

    python, numeric, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numeric)
        torch.set_rng_state(torch_state)
