"""Which module is running, and how a model is left exactly as it was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from rooflens.models.holders import Caches, Holders
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
        self._left = ""
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

    def of_repeated(self, number: int) -> str:
        """The path of work between calls of modules that repeats forward work for the node of this number.

        It is that of the module which made the last of these calls, if the node is one of its own.
        """
        path, block = self.of_node(number), self._left.rpartition(".")[0]
        return block if f"{path}.".startswith(f"{block}.") else path

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
        left = self._stack.pop()
        if not self.inside:
            self._left = left
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
def untouched(root: nn.Module, copied: Callable[[Tensor], Tensor]) -> Iterator[list[Any]]:
    """Replace every tensor that a module holds by its copy, and put back on leaving whatever has changed.

    Tensors are parameters, buffers, and those in attributes, in whatever container or plain object. Yields all that the
    module held before.
    """
    holders = Holders(root)
    caches = Caches(holders.modules)
    with lent(holders.modules):
        try:
            holders.exchange(copied)
            yield holders.values
        finally:
            holders.restore()
            caches.forget_fakes()


def with_own_parameters(module: nn.Module) -> nn.Module:
    """Return a copy with parameters of its own: a script's would stay in the graph of the original's."""
    with torch.no_grad():
        copy = deepcopy(module)
    for ours, theirs in zip(copy.parameters(), module.parameters(), strict=True):
        ours.requires_grad_(theirs.requires_grad)
    return copy


def switch(module: nn.Module, training: bool) -> None:
    """Bring a module to train or eval mode, less exported programs in it, which have only the mode of their export."""
    try:
        module.train(training)
    except NotImplementedError:
        module.training = training
        for child in module.children():
            switch(child, training)


def has_scripts(module: nn.Module) -> bool:
    """True if some part of a module is a script."""
    return any(isinstance(child, torch.jit.ScriptModule) for child in module.modules())
