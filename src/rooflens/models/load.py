"""From a name to a Step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from rooflens.errors import InvalidValue, ModelError, RooflensError, class_of, first_line
from rooflens.known_models import known_model, unknown_model
from rooflens.models import timm, torchvision, transformers, userfile
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.checkpointing import checkpointed
from rooflens.models.configuration import PREFIX
from rooflens.models.dtypes import FLOATING_TYPES
from rooflens.models.process import meta_parameters, neutral
from rooflens.models.step import ONE_DICT, Loss, Step, argument_names
from rooflens.runs.options import OPTIONS, Options
from rooflens.runs.run import check_word

ALL_NAMES = (
    " (names of torchvision and of 'rooflens models'; others: timm:NAME, hf:FAMILY, hf:config.json,"
    " path/file.py:function)"
)


def find(model: str, options: Options | None = None, mode: str = "inference") -> Blueprint:
    """Return the blueprint of a name, for a mode.

    ``resnet18`` is torchvision's, ``timm:NAME`` timm's, ``hf:FAMILY`` or ``hf:config.json`` transformers',
    ``llama-3.1-8b`` or ``meta-llama/Llama-3.1-8B`` a well-known one's, and ``path/file.py:function`` the user's own.

    Raises:
        UnknownModel: the name is unknown; near names are listed.
        InvalidValue: the model has no such mode.
    """
    options = options or Options()
    blueprint = _blueprint(model, options, mode)
    if blueprint.tokens is None:
        check_not_generating(mode, model)
        _refuse("seq_len", options.seq_len, model, "takes no sequences of tokens")
    if not blueprint.images:
        _refuse("img_size", options.img_size, model, "takes no images whose size rooflens chooses")
    return _checkpointed(blueprint) if options.checkpoint else blueprint


def _checkpointed(blueprint: Blueprint) -> Blueprint:
    """Return the blueprint of the model with activation checkpointing.

    Raises:
        InvalidValue: its code is the user's, and decides for itself.
    """
    make, name = blueprint.build, blueprint.name
    if make is None:
        raise InvalidValue(
            f"checkpoint=True is for models by name, and {name} is code of yours: call torch.utils.checkpoint in its"
            " forward, and leave the option out"
        )
    return replace(blueprint, build=lambda: checkpointed(make(), name))


def _refuse(option: str, value: int | None, model: str, why: str) -> None:
    """Raise InvalidValue for an option that changes nothing: the case would say what did not happen."""
    if value is not None:
        raise InvalidValue(f"{option}={value} has no meaning for {model!r}, which {why}; leave it out")


def check_not_generating(mode: str, model: str) -> None:
    """Raise InvalidValue for a mode that only language models have."""
    if mode in ("prefill", "decode"):
        raise InvalidValue(
            f"mode {mode!r} needs a language model that rooflens can feed (hf:FAMILY), and {model} is not one"
        )


def _blueprint(model: str, options: Options, mode: str) -> Blueprint:
    if model.startswith(timm.PREFIX):
        return timm.blueprint(model, options)
    if model.startswith(PREFIX) or known_model(model) is not None:
        return transformers.blueprint(model, options, mode)
    if ".py:" in model:
        return userfile.blueprint(model)
    if "/" in model or model.endswith(".py"):
        raise unknown_model(model, remedy=ALL_NAMES)
    torchvision.require()
    blueprint = torchvision.blueprint(model, options)
    if blueprint is None:
        raise unknown_model(model, others=torchvision.names(), remedy=ALL_NAMES)
    return blueprint


def build(blueprint: Blueprint, device: str) -> torch.nn.Module:
    """Return the module of a blueprint on `device`; one that was handed in stays where it is.

    A function of the user's makes its module with its inputs: see :attr:`Blueprint.make`.

    On meta nothing is allocated. Models that read values while they are built cannot be built there: everything but
    their parameters lies on the CPU meanwhile, and for those that read parameters too, these as well. On a card the
    values are made there, where that takes no time; models that mix devices while they are built, or are too large for
    it in fp32, are made on the CPU.
    """
    if blueprint.module is not None:
        return blueprint.module
    assert blueprint.build is not None
    make = blueprint.build

    def with_values() -> torch.nn.Module:
        with meta_parameters():
            return on_cpu()

    def on_cpu() -> torch.nn.Module:
        return _on("cpu", make).to(device)

    what = f"cannot build {blueprint.name}"
    if device == "cpu":
        return _guarded(what, on_cpu)
    if device == "meta":
        return _first_that_works(what, lambda: _on("meta", make), with_values, on_cpu)
    return _first_that_works(what, lambda: _on(device, make), on_cpu)


def make_example(blueprint: Blueprint, batch: int | None, device: str) -> Example:
    """Return inputs of a blueprint on a device; on meta, code that reads values gets them on the CPU.

    Raises:
        ModelError: the inputs cannot be made.
    """
    assert blueprint.example is not None
    make = partial(blueprint.example, batch)
    if blueprint.module is not None:  # inputs of any batch may come from a function of the user's
        return _on(device, make)
    what = f"cannot make inputs of {blueprint.name}" + (f" for batch {batch}" if batch is not None else "")
    places = ("meta", "cpu") if device == "meta" else (device,)
    return _first_that_works(what, *(partial(_on, place, make) for place in places))


Made = TypeVar("Made")


def _on(place: str, make: Callable[[], Made]) -> Made:
    with torch.device(place):
        return make()


def _first_that_works(what: str, first: Callable[[], Made], *others: Callable[[], Made]) -> Made:
    """Return what the first way makes, or the next one if code reads values that are not there."""
    try:
        return _guarded(what, first)
    except ModelError as error:
        if not others or not isinstance(_cause(error), RuntimeError | NotImplementedError):
            raise
    return _first_that_works(what, *others)


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, ModelError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _guarded(what: str, call: Callable[[], Made]) -> Made:
    """Run code of a provider or the user; errors become a sentence, and what it changes is put back."""
    with neutral("fp32"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # providers warn about initialisation, which does not matter here
        try:
            return call()
        except RooflensError:
            raise
        except Exception as error:
            raise ModelError(f"{what}: {class_of(error)}: {first_line(error)}") from error


def make_step(
    name: str,
    module: torch.nn.Module,
    example: Example,
    *,
    dtype: str,
    mode: str,
    loss: Loss,
    optimizer: str = "sgd",
    fused: bool = False,
    channels_last: bool = False,
    notes: tuple[str, ...] = (),
) -> Step:
    """Return the step of a module and its inputs.

    Raises:
        InvalidValue: dtype, mode or optimizer is not known.
    """
    check_words(dtype, mode, optimizer)
    _refuse_spread(name, module, example)
    return Step(
        name=name,
        module=module,
        dtype=dtype,
        args=example.args,
        kwargs=example.kwargs or {},
        targets=example.targets,
        prompt=example.prompt,
        cache=example.cache,
        empty_cache=example.empty_cache,
        seen=example.seen,
        known=example.known,
        mode=mode,
        loss=loss,
        optimizer=optimizer,
        fused=fused,
        cast=FLOATING_TYPES[dtype] if dtype in ("fp16", "bf16") else None,
        autocast=FLOATING_TYPES[dtype.removeprefix("amp-")] if dtype.startswith("amp-") else None,
        channels_last=channels_last,
        notes=notes,
    )


def _refuse_spread(name: str, module: torch.nn.Module, example: Example) -> None:
    """Raise InvalidValue where a dict that is one argument would be spread to named inputs that do not exist."""
    names = argument_names(module)
    hooked = module._forward_pre_hooks or type(module).__call__ is not torch.nn.Module.__call__
    unknown = [key for key in example.kwargs or {} if key not in names]
    if unknown and names and not example.args and not hooked:
        raise InvalidValue(
            f"the inputs of {name} are a dict, so they are given by name, but it takes {', '.join(names)} and not"
            f" {', '.join(map(str, unknown))}; {ONE_DICT}"
        )


def check_words(dtype: str, mode: str, optimizer: str = "sgd") -> None:
    """Raise InvalidValue for a dtype, mode or optimizer that is not known."""
    check_word("dtype", dtype)
    check_word("mode", mode)
    OPTIONS["optimizer"].check(optimizer)
