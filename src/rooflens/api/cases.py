"""From a call's arguments to cases: the words that estimate and measure share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from rooflens.costs import FUSIONS, Fusion
from rooflens.errors import InvalidValue
from rooflens.models import (
    Blueprint,
    Example,
    How,
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
from rooflens.records import AS_IS, Case, Scalar, Trace
from rooflens.sources.environment import without_home

if TYPE_CHECKING:
    import torch


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
    fused: bool
    channels_last: bool
    how: How
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

    def tracer(self) -> Callable[[int | None], Trace]:
        """Traces the step of a batch, on a module that is built once and without values."""
        from rooflens.sources import estimate as source

        module = self.build("meta")
        return lambda batch: source.traced(self.step(module, batch, "meta"))

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
            fused=self.fused,
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
    fused: bool = False,
    fusion: Fusion = "none",
    causal: bool = False,
    name: str | None = None,
    how: How | None = None,
) -> Request:
    """Check the arguments of a call before anything is built.

    Raises:
        InvalidValue: an argument cannot be used.
        UnknownModel: nobody knows the model.
    """
    _refuse_graph(model)
    check_torch()
    _check_model(model)
    check_numbers(batch, img_size, seq_len)
    named = isinstance(model, str)
    dtype = dtype or ("fp32" if named else AS_IS)
    check_words(dtype, mode, optimizer)
    options = (
        options_of(
            mode=mode,
            img_size=img_size,
            seq_len=seq_len,
            channels_last=channels_last,
            fusion=fusion,
            causal=causal,
            optimizer=optimizer,
            fused=fused,
        )
        | (how or How()).options()
    )
    if isinstance(model, str):
        if name is not None:
            raise InvalidValue(f"name={name!r} is for a module that is handed in; {model!r} has its own")
        if inputs is not None:
            raise InvalidValue(f"inputs are made for the named model {model!r}; leave inputs out, or hand in a module")
        blueprint = find(model, InputOptions(img_size=img_size, seq_len=seq_len, mode=mode))
        if blueprint.tokens is not None:
            options["seq_len"] = blueprint.tokens
        own = blueprint.default_batch if blueprint.batched else None
        batches: tuple[int | None, ...] = batches_of(own if batch is None else batch)
        module, name = None, without_home(model)
    else:
        blueprint, module, name = None, model, name or type(model).__name__
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
        fused=fused,
        channels_last=channels_last,
        how=how or How(),
        options=tuple(sorted(options.items())),
    )


def options_of(
    *,
    mode: str,
    img_size: int | None,
    seq_len: int | None,
    channels_last: bool,
    fusion: Fusion,
    causal: bool,
    optimizer: str,
    fused: bool,
) -> dict[str, Scalar]:
    """What is said of a case beyond its fields: only what is not the default."""
    for what, value in (("img_size", img_size), ("seq_len", seq_len)):
        if value is not None and value < 1:
            raise InvalidValue(f"{what} is {value}; it has to be at least 1")
    if fusion not in FUSIONS:
        raise InvalidValue(f"unknown fusion {fusion!r}; known: {', '.join(FUSIONS)}")
    said: dict[str, Scalar | None] = {
        "img_size": img_size,
        "seq_len": seq_len,
        "channels_last": channels_last or None,
        "fusion": None if fusion == "none" else fusion,
        "causal": causal or None,
        "optimizer": optimizer if mode == "train" and optimizer != "sgd" else None,
        "fused": True if mode == "train" and fused and optimizer != "none" else None,
    }
    return {name: value for name, value in said.items() if value is not None}


def fused_by(compile: bool, fusion: Fusion) -> Fusion:
    """The fusion to count with: a compiler fuses element-wise work, where no more is asked for."""
    return "pointwise" if compile and fusion == "none" else fusion


def is_graph(model: object) -> TypeGuard[str]:
    """Whether a model is named by an ONNX file."""
    return isinstance(model, str) and model.lower().endswith(".onnx")


def _refuse_graph(model: object) -> None:
    """A graph can be read, but nothing here runs it."""
    if is_graph(model):
        raise InvalidValue(
            f"{model!r} is an ONNX file, which can be estimated and explained only; give the PyTorch model that it was"
            " exported from"
        )


def _check_model(model: object) -> None:
    import torch

    if not isinstance(model, str | torch.nn.Module):
        kind = "a class, not an instance of it" if isinstance(model, type) else type(model).__name__
        raise InvalidValue(f"the model is {kind}; give a name or an nn.Module")


def check_numbers(batch: object, img_size: object, seq_len: object) -> None:
    """Say of an argument of the wrong kind what it should be, before something fails on it."""
    if batch is not None and not isinstance(batch, int | Iterable):
        raise InvalidValue(f"batch {batch!r} cannot be run; give whole numbers of at least 1")
    for what, value in (("img_size", img_size), ("seq_len", seq_len)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise InvalidValue(f"{what} is {value!r}; it has to be a whole number")


def _handed_batch(batch: int | Sequence[int] | None) -> tuple[int | None, ...]:
    if batch is not None and not isinstance(batch, int):
        raise InvalidValue(
            f"batch is {batch!r}, but the inputs of a module that is handed in have one batch; give one number"
        )
    return batches_of(batch)


def batches_of(batch: int | Iterable[int] | None) -> tuple[int | None, ...]:
    """The batches asked for, each once; None is the batch of inputs that are there already.

    Raises:
        InvalidValue: there is none, or one is no whole number of at least 1.
    """
    if batch is None:
        return (None,)
    batches = (batch,) if isinstance(batch, int) else tuple(batch)
    wrong = [b for b in batches if not isinstance(b, int) or isinstance(b, bool) or b < 1]
    if wrong or not batches:
        raise InvalidValue(f"batch {wrong[0] if wrong else batches!r} cannot be run; give whole numbers of at least 1")
    return tuple(dict.fromkeys(batches))
