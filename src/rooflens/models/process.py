"""Keeps apart what a caller has set, what other threads do and what a step needs; decides where parameters are made.

Modes, autocast, inference mode and the recording of gradients belong to a thread. The default type, anomaly detection,
deterministic algorithms, precisions and random numbers belong to the process: other threads see them change.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn, overrides
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils import _device
from torch.utils._python_dispatch import _disable_current_modes, _pop_mode
from torch.utils.weak import WeakTensorKeyDictionary

from rooflens.errors import InvalidValue
from rooflens.models.precisions import kept_precisions
from rooflens.records import AS_IS

_TURN = threading.RLock()
"""Held by the thread that estimates or measures: what belongs to the process has one owner at a time."""


PATIENCE = 10.0
"""Seconds for which another thread waits that would change a setting of the process."""
_OF_THE_PROCESS = (
    (torch._C, "_set_default_dtype", "the default type"),
    (torch._C, "_set_deterministic_algorithms", "deterministic algorithms"),
    (torch, "set_anomaly_enabled", "anomaly detection"),
)
"""Where torch sets what belongs to the process, and what that is."""


@contextmanager
def neutral(dtype: str) -> Iterator[list[str]]:
    """Run without what the caller has set, one thread after the other, and put everything back on leaving.

    Off are modes, hooks on saved tensors, the default device, inference mode and anomaly detection. In a dtype that has
    a name, autocast and deterministic algorithms are off too, and the default type is fp32; ``as-is`` keeps these.

    Yields:
        Notes on what other threads have changed meanwhile, which is in there as it happens.

    Raises:
        InvalidValue: this is a function that torch transforms or traces: what is in it is no tensor.
    """
    if torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None:
        raise InvalidValue(
            "a step cannot be run inside a function that torch transforms (vmap, grad, jvp) or traces"
            " (torch.jit.trace); call rooflens outside of it"
        )
    with (
        _TURN,
        kept_switches(),
        kept_random_numbers(),
        _without_modes(),
        _without_saved_hooks(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
        _kept_autocast(),
        _held_settings() as notes,
    ):
        if dtype != AS_IS:
            _without_autocast()
            torch.set_default_dtype(torch.float32)
            if torch.are_deterministic_algorithms_enabled():
                torch.use_deterministic_algorithms(False)
        yield notes


@contextmanager
def _held_settings() -> Iterator[list[str]]:
    """Let other threads wait that would change what belongs to the process; after a while they go on, with a note."""
    owner, over, notes = threading.get_ident(), threading.Event(), list[str]()

    def held(what: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != owner and not over.wait(PATIENCE):
                notes.append(f"another thread has set {what} meanwhile: what followed in the step ran so")
            return change(*args, **kwargs)

        return waiting

    with ExitStack() as patches:
        for module, name, what in _OF_THE_PROCESS:
            patches.enter_context(patch.object(module, name, held(what, getattr(module, name))))
        try:
            yield notes
        finally:
            over.set()


@contextmanager
def _without_modes() -> Iterator[None]:
    """Without modes of functions and of dispatch; the default device is one of the former. Those left are dropped."""
    devices = torch._GLOBAL_DEVICE_CONTEXT
    device, devices.device_context = getattr(devices, "device_context", None), None
    current, _device.CURRENT_DEVICE = _device.CURRENT_DEVICE, None
    modes = _popped_modes()
    try:
        with _disable_current_modes():
            try:
                yield
            finally:
                for _ in range(torch._C._len_torch_dispatch_stack()):
                    _pop_mode()
    finally:
        _popped_modes()
        for mode in reversed(modes):
            overrides._push_mode(mode)
        devices.device_context, _device.CURRENT_DEVICE = device, current


def _popped_modes() -> list[Any]:
    return [overrides._pop_mode() for _ in range(overrides._len_torch_function_stack())]


@contextmanager
def _without_saved_hooks() -> Iterator[None]:
    """Without the hooks that `torch.autograd.graph.saved_tensors_hooks` has set."""
    hooks = _popped_hooks()
    try:
        yield
    finally:
        _popped_hooks()
        for pack, unpack in reversed(hooks):
            saved_tensors_hooks(pack, unpack).__enter__()


def _popped_hooks() -> list[Any]:
    hooks: list[Any] = []
    top: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks
    while (hook := top(True)) is not None:
        hooks.append(hook)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    return hooks


@contextmanager
def _kept_autocast() -> Iterator[None]:
    """Put autocast back on leaving, with its types, its cache and its depth."""
    depth, kept = _autocast_depth(), torch.is_autocast_cache_enabled()
    places = [(place, torch.is_autocast_enabled(place), torch.get_autocast_dtype(place)) for place in ("cpu", "cuda")]
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)
        for place, enabled, dtype in places:
            torch.set_autocast_enabled(place, enabled)
            torch.set_autocast_dtype(place, dtype)
        _set_autocast_depth(depth)


def _without_autocast() -> None:
    """Turn autocast off, with its depth: within another autocast, casts are kept from one run to the next."""
    for place in ("cpu", "cuda"):
        torch.set_autocast_enabled(place, False)
    torch.set_autocast_cache_enabled(True)
    _set_autocast_depth(0)


def _autocast_depth() -> int:
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return depth - 1


def _set_autocast_depth(depth: int) -> None:
    while _autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    while _autocast_depth() < depth:
        torch.autocast_increment_nesting()


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
    """Put the random numbers of Python, numpy and torch back on leaving."""
    python, numeric, host = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cards = [card.get_state() for card in torch.cuda.default_generators]  # none before CUDA is used
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numeric)
        torch.set_rng_state(host)
        for n, card in enumerate(torch.cuda.default_generators):
            if cards:
                card.set_state(cards[n])
            else:
                card.manual_seed(card.initial_seed())


@contextmanager
def meta_parameters() -> Iterator[None]:
    """Put every parameter that a module registers on meta, and leave all else where it is made.

    One that several modules share stays one; lazy ones, which have no shape yet, are left alone.
    """
    moved, thread = WeakTensorKeyDictionary(), threading.get_ident()

    def on_meta(_: nn.Module, name: str, parameter: torch.Tensor | None) -> Any:
        if threading.get_ident() != thread or parameter is None or parameter.is_meta or nn.parameter.is_lazy(parameter):
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
