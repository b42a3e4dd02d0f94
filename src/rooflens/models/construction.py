"""Building modules on a device: on meta where that works, else with the values that their code reads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from rooflens.errors import ModelError, RooflensError, class_of, first_line
from rooflens.models.blueprint import Blueprint
from rooflens.models.process import meta_parameters, neutral
from rooflens.models.quiet import no_hints_of_kernels

Made = TypeVar("Made")


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
        return on_place("cpu", make).to(device)

    what = f"cannot build {blueprint.name}"
    if device == "cpu":
        return _guarded(what, on_cpu)
    if device == "meta":
        with no_hints_of_kernels():
            return first_that_works(what, lambda: on_place("meta", make), with_values, on_cpu)
    return first_that_works(what, lambda: on_place(device, make), on_cpu)


_RANDOM = frozenset(
    getattr(torch.Tensor, f"{name}_")
    for name in ("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform")
)
"""Methods that write random numbers into a tensor."""


class _Unfilled(TorchFunctionMode):
    """Random numbers are not written on meta, where nothing is: torch would load its compiler for that."""

    def __torch_function__(self, called: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called in _RANDOM and args[0].is_meta:
            return args[0]
        return called(*args, **kwargs or {})


def on_place(place: str, make: Callable[[], Made]) -> Made:
    with torch.device(place), _Unfilled() if place == "meta" else nullcontext():
        return make()


def first_that_works(what: str, first: Callable[[], Made], *others: Callable[[], Made]) -> Made:
    """Return what the first way makes, or the next one if code reads values that are not there."""
    try:
        return _guarded(what, first)
    except ModelError as error:
        if not others or not isinstance(_cause(error), RuntimeError | NotImplementedError):
            raise
    return first_that_works(what, *others)


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
