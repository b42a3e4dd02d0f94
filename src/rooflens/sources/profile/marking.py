"""The phases of a step and the calls of its modules as ranges in a profile; the model itself is not touched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.profiler import record_function

from rooflens.models import Executable
from rooflens.records import Phase
from rooflens.sources.range_names import OPTIMIZER_PATH, module_range, phase_range
from rooflens.trace.modules import ModulePaths
from rooflens.trace.optimizer_steps import steps_noticed

Range = Callable[[str], AbstractContextManager[object]]
"""What gives a name to what runs inside."""


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """Name what runs inside for Nsight Compute.

    A range of the profiler is an operation: under a dispatch mode torch opens another around its beginning and its end,
    and NVTX, where what began last ends first, has that one open and not ours.
    """
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


@contextmanager
def phases_as_ranges(run: Executable, named: Range = record_function) -> Iterator[Callable[[], None]]:
    """Name each phase in the profile; gives the function that ends one."""
    waiting = [named(phase_range(phase)) for phase in reversed(run.phases)]
    waiting[-1].__enter__()

    def mark() -> None:
        waiting.pop().__exit__(None, None, None)
        if waiting:
            waiting[-1].__enter__()

    try:
        yield mark
    finally:
        if waiting:
            mark()


class ModuleRanges(ModulePaths):
    """Names each call of a module in the profile by its path, as a trace names it."""

    def __init__(self, root: torch.nn.Module, named: Range = record_function) -> None:
        super().__init__(root)
        self._named, self._is_stepping = named, False
        self._ranges: list[Any] = []
        thread = threading.get_ident()
        # A profiler follows autograd's threads while they work for the thread that started it.
        self.is_ours = lambda: threading.get_ident() == thread or torch.autograd._profiler_enabled()

    def place(self) -> tuple[str, Phase]:
        """Return path and phase of what runs now."""
        node: Any = torch._C._current_autograd_node()
        if node is not None:
            return self.current if self.inside else self.of_node(node._sequence_nr()), "backward"
        if self._is_stepping and not self.inside:  # a closure runs the model again
            return OPTIMIZER_PATH, "optimizer"
        return self.current, "forward"

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the calls and the steps of optimizers that are ours."""
        with super().followed(), steps_noticed(self._notice_step):
            yield

    def _notice_step(self, begins: bool) -> None:
        if self.is_ours():
            self._is_stepping = begins

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        super()._before(module, args)
        self._ranges.append(self._named(module_range(self.current)))
        self._ranges[-1].__enter__()

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._ranges.pop().__exit__(None, None, None)
        super()._after(module, args, output)
