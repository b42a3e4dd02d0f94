"""Blueprint: how to build a model and its inputs, before either exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rooflens.models.step import Loss
    from rooflens.models.stored_weights import StoredWeights
    from rooflens.runs.options import Options
    from rooflens.runs.run import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Inputs of a model, and targets of its loss.

    Attributes:
        args: positional inputs.
        kwargs: named inputs.
        targets: what the loss compares the output with, or None.
        prompt: named inputs of the runs before the step that fill the cache with which it goes on (decode).
        cache: the name under which a language model takes and gives its cache (prefill, decode and generate), or None.
        empty_cache: makes the cache to begin with; None leaves that to the model.
        seen: tokens of each sequence that the cache has seen after the step (prefill, decode and generate).
        following: named inputs of the steps after prefill, one for each further token of an answer (generate).
        known: the values of its integers are known where nothing else has any; they decide shapes, as grids do.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    targets: Any = None
    prompt: tuple[dict[str, Any], ...] = ()
    cache: str | None = None
    empty_cache: Callable[[], Any] | None = None
    seen: int | None = None
    following: tuple[dict[str, Any], ...] = ()
    known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeByUser:
    """What a user's function made: a module with its inputs, and notes on what its code has set meanwhile."""

    module: torch.nn.Module
    example: Example
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A model that can be built.

    Attributes:
        name: the model as the user named it.
        build: makes the module, on torch's default device.
        example: makes random inputs for a batch, on the default device; None is the batch of the user's code.
        make: of a function of the user's, instead of both: makes a module and its inputs for a batch, at a place.
        loss: loss of a training step.
        batched: a batch can be chosen.
        default_batch: the batch if none is chosen.
        images: its inputs are images whose size can be chosen.
        tokens: tokens per sequence of a language model; such a model has the modes prefill and decode. Of a whole
            answer those of its first step, which in an encoder-decoder are those of the decoder.
        least_tokens: the fewest that it takes, more than one where images are among them.
        positions: the most tokens of a sequence, by its configuration; None where that is not known.
        notes: what has to be said of its inputs.
        example_of_step: of a language model: from mode and options of another step to its inputs for a batch.
        stored: how its configuration says that weights are stored; None where it says nothing of that.
        module: the module, if it was handed in: it is never moved, and copied before it runs.
    """

    name: str
    build: Callable[[], torch.nn.Module] | None = None
    example: Callable[[int | None], Example] | None = None
    make: Callable[[int | None, Place], MadeByUser] | None = None
    loss: Loss
    batched: bool = True
    default_batch: int | None = 1
    images: bool = False
    tokens: int | None = None
    least_tokens: int = 1
    positions: int | None = None
    notes: tuple[str, ...] = ()
    example_of_step: Callable[[str, Options], Callable[[int | None], Example]] | None = None
    stored: StoredWeights | None = None
    module: torch.nn.Module | None = None
