"""Libraries of models are imported without torch's compiler, which takes as long as torch itself and is seldom used.

They ask it for little while they are imported: torchvision for one function that it may call later, timm to leave some
functions out of compiled code. Both are handed on to the compiler when they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import torch

COMPILER, UTILITIES = "torch._dynamo", "torch._dynamo.utils"


@contextmanager
def compiler_on_demand() -> Iterator[None]:
    """Put stand-ins where the compiler is asked for; if more of it is needed, it is imported after all."""
    if COMPILER in sys.modules:
        yield
        return
    utilities, gate = _Utilities(UTILITIES), _Gate()
    disable: Any = torch.compiler.disable

    def left_out(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
        """As :func:`torch.compiler.disable`; torch's own lazy form takes plain functions only."""
        if fn is None:
            return lambda given: left_out(given, recursive, reason=reason)
        if isinstance(fn, FunctionType) and COMPILER not in sys.modules:
            return torch._disable_dynamo(fn, recursive)
        return disable(fn, recursive, reason=reason)

    sys.modules[UTILITIES] = utilities
    sys.meta_path.insert(0, gate)
    try:
        with patch.object(torch.compiler, "disable", left_out):
            yield
    finally:
        sys.meta_path.remove(gate)
        _forget_stand_in()


class _Gate(MetaPathFinder):
    """Takes the stand-in away before the compiler itself is imported, and finds nothing."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == COMPILER:
            _forget_stand_in()


class _Utilities(ModuleType):
    """Stands in for the module of one function; whatever else it is asked for, the module itself has."""

    @staticmethod
    def is_compile_supported(device_type: Any) -> Any:
        return _utilities().is_compile_supported(device_type)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which the import system asks of every module
            raise AttributeError(name)
        return getattr(_utilities(), name)


def _utilities() -> Any:
    _forget_stand_in()
    return import_module(UTILITIES)


def _forget_stand_in() -> None:
    if isinstance(sys.modules.get(UTILITIES), _Utilities):
        del sys.modules[UTILITIES]
