"""What modules and inputs hold: a trace exchanges the tensors in it, and puts back all that has changed.

Modules and plain objects hold their attributes, containers their items. Nothing of theirs is called.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import _lru_cache_wrapper, partial
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_any, tree_map_only

_HOLD_NOTHING = (Tensor, torch.jit.ScriptModule, type, ModuleType, FunctionType, str, bytes, int, float, complex)
_HOLDING = frozenset({"argparse", "collections", "dataclasses", "types"})
"""Modules of Python's own library whose objects hold what somebody put there. Others have locks, threads and files."""
_STRANGE = ("torch.fx", "torch.export", "torch.utils.data", "torch.distributed", "torch.cuda", "torch._dynamo")
"""Parts of torch whose objects hold graphs, data sets, or what belongs to the process."""

_PLAIN = frozenset({dict, OrderedDict, list, set})
_BARE = frozenset({str, int, float, bool, bytes, complex})
_LARGE = 10_000
"""A container outside of a model with more items than that is no cache of its tensors."""


class Holders:
    """Every module, plain object and container that is reachable from some values.

    Attributes:
        modules: the modules, but for scripts, which keep their state in C++.
        values: all that was reached.
    """

    def __init__(self, *roots: Any, models: bool = True) -> None:
        """Walk.

        Args:
            roots: where to begin.
            models: also enter modules, and containers of any size.
        """
        self.modules: list[nn.Module] = []
        self._saved: list[tuple[Any, list[tuple[Any, Any]]]] = []
        reached: dict[int, Any] = {}
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if value is None or id(value) in reached:
                continue
            reached[id(value)] = value
            if type(value) not in _BARE and (models or not isinstance(value, nn.Module)):
                waiting += self._entered(value, models)
        self.values = list(reached.values())

    def _entered(self, value: Any, models: bool) -> Iterator[Any]:
        """Save what `value` holds, and give it."""
        if isinstance(value, nn.Module) and not isinstance(value, torch.jit.ScriptModule):
            self.modules.append(value)
        if type(value) in _PLAIN and not value:  # hooks and buffers that most modules do not have
            self._saved.append((value, []))
            return
        for container in _containers(value):
            if models or isinstance(container, _Slots) or len(container) <= _LARGE:
                items = _items(container)
                self._saved.append((container, items))
                yield from (item for _, item in items)
        yield from _fixed(value)

    def exchange(self, copied: Callable[[Tensor], Tensor]) -> None:
        """Put the copy of every tensor in its place."""
        for container, items in self._saved:
            for key, value in items:
                other = _exchanged(value, copied)
                if other is not value:
                    _put(container, key, other)

    def restore(self) -> None:
        """Put back everything that has changed."""
        for container, items in self._saved:
            if (container or items) and not _same(_items(container), items):
                _refill(container, items)

    def forget_fakes(self) -> None:
        """Put back what a container held where it now holds a tensor without memory."""
        for container, items in self._saved:
            if container and any(tree_any(_is_fake, value) for _, value in _items(container)):
                _refill(container, items)


class Caches:
    """What the code of modules keeps outside of them: caches of functions, and what is global or of a class."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        kinds = {kind for module in modules for kind in type(module).__mro__ if _holds_attributes(kind)}
        kinds = {kind for kind in kinds if kind.__module__.partition(".")[0] != "torch"}
        names = {kind.__module__ for kind in kinds} & sys.modules.keys()
        spaces: list[Mapping[str, Any]] = [*map(vars, kinds), *(vars(sys.modules[name]) for name in names)]
        values = [value for space in spaces for name, value in list(space.items()) if not name.startswith("__")]
        functions = [value for value in values if isinstance(value, _lru_cache_wrapper)]
        self._functions = [(function, function.cache_info().misses) for function in functions]
        self._holders = Holders(*values, models=False)

    def forget_fakes(self) -> None:
        """Let none of them keep a tensor without memory. A cache of a function that has grown is cleared."""
        for function, misses in self._functions:
            if function.cache_info().misses != misses:
                function.cache_clear()
        self._holders.forget_fakes()


def _is_fake(leaf: Any) -> bool:
    return isinstance(leaf, FakeTensor)


class _Slots:
    """The slots of an object that have a value."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        kinds = [kind for kind in type(owner).__mro__ if "__slots__" in vars(kind)]
        self.slots = {k: s for kind in kinds for k, s in vars(kind).items() if isinstance(s, MemberDescriptorType)}

    def items(self) -> list[tuple[str, Any]]:
        filled = []
        for name, slot in self.slots.items():
            try:
                filled.append((name, slot.__get__(self.owner)))
            except AttributeError:  # empty
                continue
        return filled


def _containers(value: Any) -> list[Any]:
    """The containers whose items `value` holds, and which may be changed: its own items, and its attributes."""
    own = [value] if isinstance(value, dict | list | deque | set) else []
    if isinstance(value, _HOLD_NOTHING) or not (isinstance(value, nn.Module) or _holds_attributes(type(value))):
        return own
    with suppress(AttributeError):  # an object may have slots only
        own.append(object.__getattribute__(value, "__dict__"))
    slots = _Slots(value)
    return [*own, slots] if slots.slots else own


def _holds_attributes(kind: type) -> bool:
    library = kind.__module__.partition(".")[0]
    if library in sys.stdlib_module_names or library == "numpy":
        return library in _HOLDING
    return not kind.__module__.startswith(_STRANGE)


def _fixed(value: Any) -> Iterable[Any]:
    """What `value` holds and cannot exchange."""
    if isinstance(value, tuple | frozenset):
        return value
    if isinstance(value, MethodType):
        return (value.__self__,)
    return (value.func, *value.args, *value.keywords.values()) if isinstance(value, partial) else ()


def _exchanged(value: Any, copied: Callable[[Tensor], Tensor]) -> Any:
    """`value` with copies of its tensors where it is one or a tuple with some."""
    if isinstance(value, Tensor):
        return value if isinstance(value, FakeTensor) else copied(value)
    if type(value) is tuple and tree_any(lambda leaf: isinstance(leaf, Tensor), value):
        return tuple(_exchanged(item, copied) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tree_map_only(Tensor, lambda tensor: _exchanged(tensor, copied), value)
    return value


def _items(container: Any) -> list[tuple[Any, Any]]:
    if isinstance(container, _Slots):
        return container.items()
    if isinstance(container, dict):
        return list(_kind(container).items(container))
    return list(enumerate(container))


def _kind(container: dict[Any, Any]) -> type[dict[Any, Any]]:
    """Return the plain class of a dictionary. Its methods change only the items; a subclass may do anything."""
    return OrderedDict if isinstance(container, OrderedDict) else dict


def _put(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, _Slots):
        container.slots[key].__set__(container.owner, value)
    elif isinstance(container, dict):
        _kind(container).__setitem__(container, key, value)
    elif not isinstance(container, set):
        container[key] = value


def _same(now: list[tuple[Any, Any]], before: list[tuple[Any, Any]]) -> bool:
    return len(now) == len(before) and all(
        k is key and v is value for (k, v), (key, value) in zip(now, before, strict=True)
    )


def _refill(container: Any, items: list[tuple[Any, Any]]) -> None:
    if isinstance(container, _Slots):
        for name, slot in container.slots.items():
            if name in dict(container.items()):
                slot.__delete__(container.owner)
        for name, value in items:
            _put(container, name, value)
    elif isinstance(container, dict):
        _kind(container).clear(container)
        for key, value in items:
            _put(container, key, value)
    else:
        container.clear()
        values = [value for _, value in items]
        (container.update if isinstance(container, set) else container.extend)(values)
