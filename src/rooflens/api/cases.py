"""From a call's arguments to cases: the words that estimate and measure share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflens.costs import FUSIONS, Fusion
from rooflens.errors import InvalidValue
from rooflens.models import (
    Blueprint,
    Example,
    InputOptions,
    Loss,
    Step,
    build,
    check_not_generating,
    check_torch,
    check_words,
    find,
    make_example,
    make_step,
    split_inputs,
    sum_of_outputs,
)
from rooflens.records import AS_IS, Case, Scalar

if TYPE_CHECKING:
    import torch

Progress = Callable[[float, str], None]
"""Told the share that is done, 0 to 1, and what is being done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be run, checked.

    Attributes:
        blueprint: how to build a named model; None for a module that was handed in.
        module: the module that was handed in, with its `inputs`; None for a named model.
    """

    name: str
    blueprint: Blueprint | None
    module: torch.nn.Module | None
    inputs: Any
    batches: tuple[int | None, ...]
    dtype: str
    mode: str
    loss: Loss | None
    optimizer: str
    channels_last: bool
    options: tuple[tuple[str, Scalar], ...]

    def cases(self, device: str | None) -> list[Case]:
        """One case per batch."""
        return [
            Case(model=self.name, device=device, batch=batch, dtype=self.dtype, mode=self.mode, options=self.options)
            for batch in self.batches
        ]

    def build(self, device: str) -> torch.nn.Module:
        """The module, built on a device unless it was handed in."""
        if self.module is not None:
            return self.module
        assert self.blueprint is not None
        return build(self.blueprint, device)

    def step(self, module: torch.nn.Module, batch: int | None, device: str) -> Step:
        """The step of one batch; a named model's inputs are made on `device`."""
        if self.blueprint is None:
            args, kwargs = split_inputs(self.inputs)
            example, loss = Example(args=args, kwargs=kwargs), self.loss or sum_of_outputs
        else:
            example, loss = make_example(self.blueprint, batch, device), self.loss or self.blueprint.loss
        return make_step(
            self.name,
            module,
            example,
            dtype=self.dtype,
            mode=self.mode,
            loss=loss,
            optimizer=self.optimizer,
            channels_last=self.channels_last,
        )


def request(
    model: str | torch.nn.Module,
    *,
    inputs: Any,
    batch: int | Sequence[int] | None,
    dtype: str | None,
    mode: str,
    loss: Loss | None,
    optimizer: str,
    img_size: int | None,
    seq_len: int | None,
    channels_last: bool,
    fusion: Fusion = "none",
) -> Request:
    """Check the arguments of a call before anything is built.

    Raises:
        InvalidValue: an argument cannot be used.
        UnknownModel: nobody knows the model.
    """
    check_torch()
    named = isinstance(model, str)
    dtype = dtype or ("fp32" if named else AS_IS)
    check_words(dtype, mode, optimizer)
    for what, value in (("img_size", img_size), ("seq_len", seq_len)):
        if value is not None and value < 1:
            raise InvalidValue(f"{what} is {value}; it has to be at least 1")
    if fusion not in FUSIONS:
        raise InvalidValue(f"unknown fusion {fusion!r}; known: {', '.join(FUSIONS)}")
    options: dict[str, Scalar] = {} if fusion == "none" else {"fusion": fusion}
    if img_size is not None:
        options["img_size"] = img_size
    if seq_len is not None:
        options["seq_len"] = seq_len
    if channels_last:
        options["channels_last"] = True
    if mode == "train" and optimizer != "sgd":
        options["optimizer"] = optimizer
    if isinstance(model, str):
        if inputs is not None:
            raise InvalidValue(f"inputs are made for the named model {model!r}; leave inputs out, or hand in a module")
        blueprint = find(model, InputOptions(img_size=img_size, seq_len=seq_len, mode=mode))
        if blueprint.tokens is not None:
            options["seq_len"] = blueprint.tokens
        batches: tuple[int | None, ...] = _batches(1 if batch is None and blueprint.batched else batch)
        module, name = None, model
    else:
        blueprint, module, name = None, model, type(model).__name__
        check_not_generating(mode, name)
        if inputs is None:
            raise InvalidValue(
                f"{name} was handed in without inputs; give inputs=tensor, a tuple, a dict, or (args, kwargs)"
            )
        batches = _handed_batch(batch)
    return Request(
        name=name,
        blueprint=blueprint,
        module=module,
        inputs=inputs,
        batches=batches,
        dtype=dtype,
        mode=mode,
        loss=loss,
        optimizer=optimizer,
        channels_last=channels_last,
        options=tuple(sorted(options.items())),
    )


def _handed_batch(batch: int | Sequence[int] | None) -> tuple[int | None, ...]:
    if batch is not None and not isinstance(batch, int):
        raise InvalidValue(
            f"batch is {batch!r}, but the inputs of a module that is handed in have one batch; give one number"
        )
    return _batches(batch)


def _batches(batch: int | Iterable[int] | None) -> tuple[int | None, ...]:
    if batch is None:
        return (None,)
    batches = (batch,) if isinstance(batch, int) else tuple(batch)
    wrong = [b for b in batches if not isinstance(b, int) or isinstance(b, bool) or b < 1]
    if wrong or not batches:
        raise InvalidValue(f"batch {wrong[0] if wrong else batches!r} cannot be run; give whole numbers of at least 1")
    return tuple(dict.fromkeys(batches))
