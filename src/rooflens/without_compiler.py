"""torch's compiler is imported when somebody uses it: that takes as long as torch itself, and few steps need it.

Much only names it: torch marks functions that compiled code leaves out, torchvision imports one function that it may
call later. In programs of rooflens's own, :func:`compiler_on_demand` lets the package
stand there as a shell. The first use of anything else in it runs its code, in the same module object.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
UTILITIES = f"{COMPILER}.utils"
ALONE = (f"{COMPILER}.config", f"{COMPILER}._trace_wrapped_higher_order_op")
"""Modules of it that need nothing else of it: fake tensors read its settings, transformers' masks use the other."""
_loading = threading.RLock()


def compiler_on_demand() -> None:
    """Let the compiler be imported when it is used, in this process from now on."""
    if COMPILER not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Shell(ModuleType):
    """The package before its code has run."""

    def disable(self, fn: Any = None, recursive: bool = True, **how: Any) -> Any:
        """Mark a function that compiled code leaves out: as long as there is no compiler, it runs as it is."""
        if fn is None:
            return lambda given: self.disable(given, recursive, **how)
        if not callable(fn) or isinstance(fn, type) or not hasattr(fn, "__name__"):  # a module, or a class
            return _loaded(self).disable(fn, recursive, **how)
        marked: list[Callable[..., Any]] = []

        @wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            if _is_shell(self):
                return fn(*args, **kwargs)
            if not marked:
                marked.append(self.disable(fn, recursive, **how))
            return marked[0](*args, **kwargs)

        return run

    def graph_break(self, *_: Any, **__: Any) -> None:
        """End a graph that is being compiled: there is none. Optimizers ask for that in each step."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which the import system asks of every module
            raise AttributeError(name)
        return getattr(_loaded(self), name)


def _is_shell(module: object) -> bool:
    return isinstance(module, _Shell)


def _loaded(shell: ModuleType) -> Any:
    """Run the code of the package, once; in between, its parts find what is there."""
    with _loading:  # another thread waits until it is whole
        if _is_shell(shell) and not vars(shell).get("_runs"):
            vars(shell)["_runs"] = True
            stand_in = sys.modules.get(UTILITIES)
            if isinstance(stand_in, _Utilities):
                del sys.modules[UTILITIES]
            spec = shell.__spec__
            assert spec is not None
            assert isinstance(spec.loader, _ShellLoader)
            try:
                spec.loader.real.exec_module(shell)
            finally:
                del vars(shell)["_runs"]
            shell.__class__ = ModuleType  # as importlib's own lazy loader does
    if _is_shell(shell):  # within its own code
        raise AttributeError(f"module {COMPILER!r} is being imported")
    return shell


class _Utilities(ModuleType):
    """Stands in for the module of one function; whatever else it is asked for, the module itself has."""

    @staticmethod
    def is_compile_supported(device_type: Any) -> Any:
        """Ask the compiler."""
        return _utilities().is_compile_supported(device_type)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_utilities(), name)


def _utilities() -> Any:
    _loaded(sys.modules[COMPILER])
    return import_module(UTILITIES)


class _Finder(MetaPathFinder):
    """Finds the package as a shell, and loads it before any of its modules but its settings."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == COMPILER:
            spec = PathFinder.find_spec(name, path)
            if spec is not None and spec.loader is not None:
                spec.loader = _ShellLoader(spec.loader)
            return spec
        shell = sys.modules.get(COMPILER)
        if not name.startswith(f"{COMPILER}.") or shell is None or not _is_shell(shell) or vars(shell).get("_runs"):
            return None
        if name == UTILITIES:
            return ModuleSpec(name, _Made(_Utilities(name)))
        if name in ALONE:
            return None
        _loaded(shell)
        found = sys.modules.get(name)
        return None if found is None else ModuleSpec(name, _Made(found))


class _ShellLoader(Loader):
    def __init__(self, real: Any) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Shell(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet."""

    def __getattr__(self, name: str) -> Any:  # get_source, get_resource_reader ...
        return getattr(self.real, name)


class _Made(Loader):
    """Gives a module that is there."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give it its own place back, if it had one."""
        module.__spec__ = self._spec or module.__spec__
