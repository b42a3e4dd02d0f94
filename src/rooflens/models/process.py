"""Puts back what a user's code may change in a process, and decides where parameters are made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakTensorKeyDictionary

from rooflens.models.precisions import kept_precisions


@contextmanager
def kept_switches() -> Iterator[None]:
    """Put torch's default type, gradient mode, precisions, cuDNN switches and number of threads back on leaving."""
    dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    benchmark, threads = torch.backends.cudnn.benchmark, torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with kept_precisions():
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(gradients)
            torch.backends.cudnn.benchmark = benchmark
            if torch.are_deterministic_algorithms_enabled() != deterministic:
                torch.use_deterministic_algorithms(deterministic, warn_only=warns_only)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


@contextmanager
def kept_random_numbers() -> Iterator[None]:
    """Put the random number generators of Python, numpy and torch back on leaving."""
    cards = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    python, numeric = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(cards):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numeric)


@contextmanager
def meta_parameters() -> Iterator[None]:
    """Put every parameter that a module registers on meta, and leave all else where it is made.

    One that several modules share stays one; lazy ones, which have no shape yet, are left alone.
    """
    moved = WeakTensorKeyDictionary()

    def on_meta(_: nn.Module, name: str, parameter: torch.Tensor | None) -> Any:
        if parameter is None or parameter.is_meta or nn.parameter.is_lazy(parameter):
            return None  # as it is
        if parameter not in moved:
            moved[parameter] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
            moved[parameter].__dict__.update(parameter.__dict__)
        return moved[parameter]

    handle = register_module_parameter_registration_hook(on_meta)
    try:
        yield
    finally:
        handle.remove()
