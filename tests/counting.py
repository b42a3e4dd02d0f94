"""Small models counted through the public estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

import rooflens as rl
from rooflens.results import RecordSet


def train(module: nn.Module, *args: Any, **kwargs: Any) -> RecordSet:
    return rl.estimate(module, inputs=(args, kwargs), mode="train", optimizer="none")


def macs(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[float | None, float | None]:
    """Multiply-adds of forward, equal in eval and train mode, and of backward; everything has a formula."""
    evaluated = rl.estimate(module, inputs=(args, kwargs))
    trained = train(module, *args, **kwargs)
    assert evaluated.coverage.uncounted == trained.coverage.uncounted == ()
    assert evaluated.total("forward").matmul_flops == trained.total("forward").matmul_flops
    return trained.total("forward").macs, trained.total("backward").macs


class Calls(nn.Module):
    """A module that runs a function of itself, with parameters and modules by name."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)
