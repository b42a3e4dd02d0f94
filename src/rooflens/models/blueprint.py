"""Blueprint: how to build a model and its inputs, before either exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rooflens.models.step import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Inputs of a model, the targets of its loss, the prompt that fills its cache first, and the cache's name."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    targets: Any = None
    prompt: dict[str, Any] | None = None
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A model that can be built.

    Attributes:
        name: the model as the user named it.
        build: makes the module; parameters land on torch's current default device.
        example: makes random inputs for a batch size (None: as the user's code gives them), on the default device.
        loss: loss of a training step.
        batched: whether a batch size can be chosen.
        default_batch: the batch size where none is chosen.
        images: whether its inputs are images whose size can be chosen.
        tokens: tokens per sequence of a language model; such a model has the modes prefill and decode.
        module: the module itself, where it was handed in: it is never moved, and copied before it runs.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    example: Callable[[int | None], Example]
    loss: Loss
    batched: bool = True
    default_batch: int | None = 1
    images: bool = False
    tokens: int | None = None
    module: torch.nn.Module | None = None
