"""From a name to a Step."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import torch

from rooflens.errors import InvalidValue, ModelError
from rooflens.host_limits import available_memory
from rooflens.known_models import known_model, unknown_model
from rooflens.models import timm, torchvision, transformers, userfile
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.checkpointing import checkpointed
from rooflens.models.configuration import PREFIX, is_file
from rooflens.models.construction import first_that_works, on_place
from rooflens.models.dtypes import FLOATING_TYPES
from rooflens.models.step import ONE_DICT, Loss, Step, argument_names
from rooflens.runs.options import GENERATING, OPTIONS, Options
from rooflens.runs.run import check_word
from rooflens.units import show

ALL_NAMES = (
    " (names of torchvision and of 'rooflens models'; others: timm:NAME, hf:FAMILY, hf:config.json,"
    " path/file.py:function)"
)


def find(model: str, options: Options | None = None, mode: str = "inference") -> Blueprint:
    """Return the blueprint of a name, for a mode.

    ``resnet18`` is torchvision's, ``timm:NAME`` timm's, ``llama-3.1-8b`` or ``meta-llama/Llama-3.1-8B`` a well-known
    one's, ``hf:FAMILY``, ``hf:config.json`` or the path of a folder with such a file transformers', and
    ``path/file.py:function`` the user's own.

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
    if blueprint.tokens is not None and not blueprint.images:
        _refuse("channels_last", options.channels_last or None, model, "takes no images")
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
    if mode in GENERATING:
        raise InvalidValue(
            f"mode {mode!r} needs a language model that rooflens can feed (hf:FAMILY), and {model} is not one"
        )


def _blueprint(model: str, options: Options, mode: str) -> Blueprint:
    if model.startswith(timm.PREFIX):
        return timm.blueprint(model, options)
    if model.startswith(PREFIX) or known_model(model) is not None or is_file(model):
        return transformers.blueprint(model, options, mode)
    if ".py:" in model:
        return userfile.blueprint(model)
    if model.endswith(".py"):
        raise userfile.without_function(model)
    if "/" in model:
        raise unknown_model(model, remedy=_remedy(model))
    torchvision.require()
    blueprint = torchvision.blueprint(model, options)
    if blueprint is None:
        raise unknown_model(model, others=torchvision.names(), remedy=_remedy(model))
    return blueprint


def _remedy(model: str) -> str:
    """Return what may be named instead of what is no model; of a folder what it lacks."""
    if not os.path.isdir(model):
        return ALL_NAMES
    has_one = os.path.isfile(Path(model) / "config.json")
    return "; name the folder with a slash before it: ./" + model if has_one else "; it is a folder without config.json"


def make_example(blueprint: Blueprint, batch: int | None, device: str) -> Example:
    """Return inputs of a blueprint on a device; on meta, code that reads values gets them on the CPU.

    Raises:
        ModelError: the inputs cannot be made.
    """
    assert blueprint.example is not None
    make = partial(blueprint.example, batch)
    if blueprint.module is not None:  # inputs of any batch may come from a function of the user's
        return on_place(device, make)
    _refuse_too_many_tokens(blueprint, 1 if batch is None else batch)
    what = f"cannot make inputs of {blueprint.name}" + (f" for batch {batch}" if batch is not None else "")
    places = ("meta", "cpu") if device == "meta" else (device,)
    return first_that_works(what, *(partial(on_place, place, make) for place in places))


def _refuse_too_many_tokens(blueprint: Blueprint, batch: int) -> None:
    """Raise ModelError where the ids of all tokens, which have values on every device, do not fit into the memory."""
    nbytes = batch * (blueprint.tokens or 0) * torch.int64.itemsize
    free = available_memory()
    if free is not None and nbytes > free:
        raise ModelError(
            f"cannot make inputs of {blueprint.name} for batch {batch} of {blueprint.tokens} tokens each: their ids"
            f" take {show(nbytes, 'B')}, and this machine has {show(free, 'B')} free; choose fewer sequences or shorter"
            " ones"
        )


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
        **{part.name: getattr(example, part.name) for part in fields(example)},
        name=name,
        module=module,
        dtype=dtype,
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
    unknown = [key for key in example.kwargs if key not in names]
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
