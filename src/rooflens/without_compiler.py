"""torch's compiler is imported when somebody uses it: that takes as long as torch itself, and few steps need it.

Much only names it: torch and transformers mark functions for compiled code, torchvision imports one function that it
may call later, and torch's profiler reads one setting of the compiler's backend. In programs of rooflens's own,
:func:`compiler_on_demand` lets both packages stand there as shells. The first use of anything else in one runs its
code, in the same module object.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any
from weakref import ref

COMPILER, BACKEND = "torch._dynamo", "torch._inductor"
UTILITIES = f"{COMPILER}.utils"
ALONE = (
    f"{COMPILER}.config",
    f"{COMPILER}._trace_wrapped_higher_order_op",
    f"{BACKEND}.config",
    f"{BACKEND}.custom_graph_pass",
)
"""Modules that need nothing else of their package: fake tensors and the profiler read settings, transformers' masks use
another."""
_MARKS = "_rooflens_marks"
"""Where a shell keeps what the compiler is to be told of, once it is there."""
_loading = threading.RLock()


def compiler_on_demand() -> None:
    """Let the compiler be imported when it is used, in this process from now on."""
    if COMPILER not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Shell(ModuleType):
    """A package before its code has run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which the import system asks of every module
            raise AttributeError(name)
        return getattr(_loaded(self), name)


class _CompilerShell(_Shell):
    """The compiler, with what torch asks of it in any program."""

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

    def assume_constant_result(self, fn: Any) -> Any:
        """Mark a function whose result compiled code keeps, once there is a compiler. transformers has some."""
        return self._marked_later("assume_constant_result", fn)

    def allow_in_graph(self, fn: Any) -> Any:
        """Mark a function that compiled code calls as it is, once there is a compiler."""
        return self._marked_later("allow_in_graph", fn)

    def _marked_later(self, how: str, fn: Any) -> Any:
        if not isinstance(fn, FunctionType):  # a list, or a class
            return getattr(_loaded(self), how)(fn)
        self._later(lambda compiler: getattr(compiler, how)(fn))
        return fn

    def mark_static_address(self, t: Any, guard: bool = False) -> None:
        """Mark a tensor that stays where it is, once there is a compiler: those of static caches do."""
        there = ref(t)

        def mark(compiler: Any) -> None:
            if (tensor := there()) is not None:
                compiler.mark_static_address(tensor, guard=guard)

        self._later(mark)

    def _later(self, mark: Callable[[Any], object]) -> None:
        vars(self).setdefault(_MARKS, []).append(mark)

    def graph_break(self, *_: Any, **__: Any) -> None:
        """End a graph that is being compiled: there is none. Optimizers ask for that in each step."""


def _is_shell(module: object) -> bool:
    return isinstance(module, _Shell)


def _loaded(shell: ModuleType) -> Any:
    """Run the code of the package, once; in between, its parts find what is there."""
    with _loading:  # another thread waits until it is whole
        if _is_shell(shell) and not vars(shell).get("_runs"):
            vars(shell)["_runs"] = True
            stand_in = sys.modules.get(UTILITIES)
            if isinstance(shell, _CompilerShell) and isinstance(stand_in, _Utilities):
                del sys.modules[UTILITIES]
            spec = shell.__spec__
            assert spec is not None
            assert isinstance(spec.loader, _ShellLoader)
            try:
                spec.loader.real.exec_module(shell)
            finally:
                del vars(shell)["_runs"]
            shell.__class__ = ModuleType  # as importlib's own lazy loader does
            for mark in vars(shell).pop(_MARKS, ()):
                mark(shell)
    if _is_shell(shell):  # within its own code
        raise AttributeError(f"module {shell.__name__!r} is being imported")
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
    """Finds the packages as shells, and loads one before any of its modules but its settings."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == COMPILER or (name == BACKEND and _waits(COMPILER)):  # who has the compiler needs its backend too
            spec = PathFinder.find_spec(name, path)
            if spec is not None and spec.loader is not None:
                spec.loader = _ShellLoader(spec.loader)
            return spec
        package = next((its for its in (COMPILER, BACKEND) if name.startswith(f"{its}.")), None)
        if package is None or package not in sys.modules or not _waits(package):
            return None
        if name == UTILITIES:
            return ModuleSpec(name, _Made(_Utilities(name)))
        if name in ALONE:
            return None
        _loaded(sys.modules[package])
        found = sys.modules.get(name)
        return None if found is None else ModuleSpec(name, _Made(found))


def _waits(package: str) -> bool:
    """True if no code of a package has begun to run."""
    shell = sys.modules.get(package)
    return shell is None or (_is_shell(shell) and not vars(shell).get("_runs"))


class _ShellLoader(Loader):
    def __init__(self, real: Any) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _CompilerShell(spec.name) if spec.name == COMPILER else _Shell(spec.name)

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
