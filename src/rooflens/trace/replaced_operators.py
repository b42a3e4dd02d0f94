"""Replaced operators: what a script, a traced module or an exported graph calls without Python's functions.

Python's functions are replaced where they are called (:mod:`rooflens.trace.replaced_calls`). Others call the operator
behind a function. While a step is traced, the operator's kernel for the CPU is replaced too, so that both ways give the
same operations. Only the thread that traces sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

Kernels = Mapping[str, Callable[..., Any]]
"""Replacements of operators that torch takes apart itself, by name and overload: ``lstm.input``."""


class _Thread(threading.local):
    """What this thread replaces."""

    def __init__(self) -> None:
        self.kernels: Kernels = {}


class _Dispatcher:
    """Torch's dispatcher, which is told once of all traces that run at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces = 0
        self._libraries: list[torch.library.Library] = []

    def enter(self, kernels: Kernels) -> None:
        with self._lock:
            self._traces += 1
            if self._traces == 1:
                library = torch.library.Library("aten", "IMPL")
                self._libraries.append(library)
                for name in kernels:
                    library.impl(name, _kernel(name), "AutogradCPU")

    def leave(self) -> None:
        with self._lock:
            self._traces -= 1
            if not self._traces:
                self._libraries.pop()._destroy()


_thread = _Thread()
_dispatcher = _Dispatcher()


@contextmanager
def replaced(kernels: Kernels) -> Iterator[None]:
    """Replace the CPU kernels of these operators in this thread."""
    _dispatcher.enter(kernels)
    try:
        with _replacing(kernels):
            yield
    finally:
        _dispatcher.leave()


@contextmanager
def as_torch() -> Iterator[None]:
    """Let torch's own kernels answer, in this thread."""
    with _replacing({}):
        yield


def tracing() -> bool:
    """True if this thread replaces operators now."""
    return bool(_thread.kernels)


def taken_apart(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the replacement of an operator, or its parts."""
    return _answered(_name(operator), operator.decompose, args, kwargs)


def _answered(name: str, plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    replacement = _thread.kernels.get(name)
    if replacement is None:
        return plain(*args, **kwargs)
    with as_torch():
        return replacement(*args, **kwargs)


@contextmanager
def _replacing(kernels: Kernels) -> Iterator[None]:
    before, _thread.kernels = _thread.kernels, kernels
    try:
        yield
    finally:
        _thread.kernels = before


def _kernel(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    plain = partial(operator._op_dk, DispatchKey.CompositeImplicitAutograd)

    def call(*args: Any, **kwargs: Any) -> Any:
        return _answered(name, plain, args, kwargs)

    return call


def _name(operator: OpOverload) -> str:
    """The name of an operator of torch, as kernels are listed by."""
    return operator._schema.name.removeprefix("aten::") + f".{operator._overloadname}".removesuffix(".default")
