"""Which module is running, and how a model is left exactly as it was."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves, tree_map_only

from rooflens.trace.lending import lent


class ModulePaths:
    """Follows calls of modules by global hooks, so that the model itself gets none.

    `on_call` is given the path of each module that is called. `is_ours` tells calls that belong to the step from those
    of other threads: autograd's threads may work for any of them.

    Every entry and exit notes the autograd sequence number at that moment. A node of the backward graph that was
    created between two notes belongs to the module that was running then; that is how backward operations find theirs.
    """

    def __init__(self, root: nn.Module) -> None:
        self._names = {id(module): name for name, module in root.named_modules()}
        self._owners = {name: name.rpartition(".")[0] for name, _ in root.named_parameters(remove_duplicate=False)}
        self._stack = [""]
        self._numbers = [0]
        self._paths = [""]
        self.on_call: Callable[[str], None] = lambda path: None
        self.is_ours: Callable[[], bool] = lambda: True
        self.base = ""
        self.failed = ""

    @property
    def current(self) -> str:
        return self._stack[-1] if len(self._stack) > 1 else self.base

    @property
    def inside(self) -> bool:
        """True while a module is being called."""
        return len(self._stack) > 1

    def enter(self, path: str) -> None:
        """Give the work outside of modules this path from here on, like "(loss)"."""
        self.base = path
        self._note()

    def of_node(self, number: int) -> str:
        """The path that was current when the autograd node with this sequence number was made."""
        return self._paths[bisect_right(self._numbers, number) - 1]

    def owner(self, parameter: str) -> str:
        """The path of the module that holds the parameter of this name."""
        return self._owners.get(parameter, "")

    def _note(self) -> None:
        self._numbers.append(torch._C._autograd._get_sequence_nr())
        self._paths.append(self.current)

    def _before(self, module: nn.Module, args: Any) -> None:
        self._stack.append(self._names.get(id(module), self.current))
        self._note()
        self.on_call(self.current)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        if output is None and not self.failed:  # called without a result: most likely the innermost module that raised
            self.failed = self.current
        self._stack.pop()
        self._note()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the calls that are ours."""
        before = register_module_forward_pre_hook(lambda *call: self._before(*call) if self.is_ours() else None)
        after = register_module_forward_hook(
            lambda *call: self._after(*call) if self.is_ours() else None, always_call=True
        )
        try:
            yield
        finally:
            before.remove()
            after.remove()


@contextmanager
def untouched(root: nn.Module, copied: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace every tensor of every module by its copy, and put all attributes back on leaving.

    Tensors are parameters, buffers, and those in plain attributes; attributes are flags, hooks, lists and dicts too.
    """
    # A script module keeps its state in C++ and its attributes are how to reach it; it is never run in place.
    modules = [module for module in reachable(root) if not isinstance(module, torch.jit.ScriptModule)]
    with lent(modules):
        saved = [(module, _shallow(module.__dict__)) for module in modules]
        try:
            for module in modules:
                _swap(module, copied)
            yield
        finally:
            for module, attributes in saved:
                _restore(module.__dict__, attributes)


def reachable(root: nn.Module) -> list[nn.Module]:
    """Every module of `root`, and those in plain attributes, lists and dicts of them."""
    reached: dict[nn.Module, None] = {}
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached[module] = None
        waiting += [value for value in module._modules.values() if value is not None]
        waiting += [value for value in _held(module) if isinstance(value, nn.Module)]
    return list(reached)


def held_values(root: nn.Module) -> list[Any]:
    """What the plain attributes of every module hold, and lists and dicts in them."""
    return [value for module in reachable(root) for value in _held(module)]


def _held(module: nn.Module) -> list[Any]:
    return tree_leaves([value for name, value in vars(module).items() if name not in _REGISTERS])


def _swap(module: nn.Module, copied: Callable[[Tensor], Tensor]) -> None:
    """Replace the tensors of a module: those of its registers, and those that only its own attributes hold."""
    for name, value in list(vars(module).items()):
        if isinstance(value, Tensor):
            vars(module)[name] = copied(value)
        elif type(value) in (list, dict) and name not in _REGISTERS:
            _refill(value, tree_map_only(Tensor, copied, value))
    for register in (module._parameters, module._buffers):
        for name, tensor in register.items():
            if tensor is not None:
                register[name] = copied(tensor)  # type: ignore[assignment]


_REGISTERS = frozenset({"_parameters", "_buffers", "_modules"})
_CONTAINERS = (dict, OrderedDict, list, set)


def _shallow(attributes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each attribute, with a copy of its contents where it is a plain container."""
    return {name: (value, value.copy() if type(value) in _CONTAINERS else None) for name, value in attributes.items()}


def _restore(attributes: dict[str, Any], saved: dict[str, tuple[Any, Any]]) -> None:
    for name in attributes.keys() - saved.keys():
        del attributes[name]
    for name, (value, contents) in saved.items():
        attributes[name] = value
        if contents is not None:
            _refill(value, contents)


def _refill(container: Any, contents: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list) else container.update)(contents)
