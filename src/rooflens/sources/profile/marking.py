"""The phases of a step and the calls of its modules as ranges in a profile; the model itself is not touched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import record_function

from rooflens.models import Executable
from rooflens.records import Phase
from rooflens.sources.range_names import module_range, phase_range
from rooflens.trace.modules import ModulePaths


@contextmanager
def phases_as_ranges(run: Executable) -> Iterator[Callable[[], None]]:
    """Name each phase in the profile; gives the function that ends one."""
    waiting = [record_function(phase_range(phase)) for phase in reversed(run.phases)]
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

    def __init__(self, root: torch.nn.Module) -> None:
        super().__init__(root)
        self._ranges: list[Any] = []
        thread = threading.get_ident()
        # A profiler follows autograd's threads while they work for the thread that started it.
        self.is_ours = lambda: threading.get_ident() == thread or torch.autograd._profiler_enabled()

    def place(self) -> tuple[str | None, Phase | None]:
        """Return path and phase of what runs now, None where they are not known."""
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return (self.current, "forward") if self.inside else (None, None)
        return self.current if self.inside else self.of_node(node._sequence_nr()), "backward"

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        super()._before(module, args)
        self._ranges.append(record_function(module_range(self.current)))
        self._ranges[-1].__enter__()

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._ranges.pop().__exit__(None, None, None)
        super()._after(module, args, output)
