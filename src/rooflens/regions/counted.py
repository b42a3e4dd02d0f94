"""Counts the operations of one iteration while it runs, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import nn

from rooflens.errors import InvalidValue, ModelError
from rooflens.models import is_compiled, unwrapped
from rooflens.records import Call, Operation, Trace
from rooflens.sources.range_names import LOOP_PATH, OPTIMIZER_PATH
from rooflens.trace.lifetimes import Lifetimes
from rooflens.trace.modules import ModulePaths
from rooflens.trace.optimizer_steps import steps_noticed
from rooflens.trace.recorder import Dispatched, Recorder
from rooflens.trace.threads import OtherThreads, followed

COUNTED = (
    "the work is that of one more iteration: every operation that PyTorch ran in it; kernels of others are not seen"
)
UNREADABLE = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, ModelError)
"""What an unusual tensor (nested, opaque, on a rare device) raises when asked for its memory."""


class Counting:
    """A context that counts the operations of this thread and of the backward passes that it starts.

    Everything runs as usual: each operation runs first and is described afterwards. One that cannot be described is
    listed and never an error, since a measurement must not break the loop.

    Args:
        model: its modules give the operations their paths.
    """

    def __init__(self, model: nn.Module) -> None:
        root = unwrapped(model)
        self._paths = ModulePaths(root)
        self._lifetimes = _Watched()
        for name, cause in ((root.parameters, "parameters"), (root.buffers, "buffers")):
            for tensor in name():
                self._lifetimes.label(tensor, cause)
        self._parameters = sum(p.numel() for p in root.parameters())
        names = {id(parameter): name for name, parameter in root.named_parameters()}
        self._recorder = _LiveRecorder(self._paths, self._lifetimes, names)
        with suppress(*UNREADABLE):
            self._recorder.packed.label(root)
        self._others = OtherThreads(refuses=False)
        self._contexts = ExitStack()

    def __enter__(self) -> Counting:
        self._paths.enter(LOOP_PATH)
        with ExitStack() as contexts:
            contexts.enter_context(self._paths.followed())
            contexts.enter_context(steps_noticed(self._recorder.notice_step))
            contexts.enter_context(self._recorder)
            contexts.enter_context(followed(self._others))
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()

    def trace(self) -> Trace:
        """The operations, without memory: what was alive before is not known."""
        return Trace(
            operations=tuple(op for op in self._recorder.operations if op is not _UNKNOWN),
            memory=None,
            parameters=self._parameters + self._recorder.packed.weights,
            unsized=tuple(dict.fromkeys(self._recorder.unreadable)),
            host_calls=self._recorder.host_calls,
            notes=(COUNTED, *self._elsewhere(), *self._recorder.packed.notes),
        )

    def _elsewhere(self) -> Iterator[str]:
        """Yield a note where operations ran in threads that the iteration started."""
        seen = self._others.seen
        if seen:
            yield f"{len(seen)} operations ran in threads that the iteration started and are not counted: {seen[0]}"


def check_countable(model: nn.Module) -> None:
    """Refuse a model that would run differently while it is counted.

    Raises:
        InvalidValue: a compiled model (it would run without its compiled kernels), or one that runs in several threads.
    """
    compiled = any(is_compiled(part) or part._compiled_call_impl is not None for part in model.modules())
    name = type(unwrapped(model)).__name__
    if compiled:
        raise InvalidValue(
            f"{name} is compiled, and would run without its compiled kernels while it is counted; give model= instead"
            " of trace=, and estimate the module apart (rl.estimate)"
        )
    if isinstance(model, nn.DataParallel):
        raise InvalidValue(
            f"{name} runs in several threads (DataParallel), which cannot be counted; give model= instead of trace="
        )


class _Watched(Lifetimes):
    """Lifetimes that skip a tensor whose memory cannot be read."""

    def see(self, tensor: torch.Tensor, cause: str = "temporaries") -> None:
        with suppress(*UNREADABLE):
            super().see(tensor, cause)


class _LiveRecorder(Recorder):
    """A recorder of operations on real tensors, which finds out their phase by itself."""

    supports_higher_order_operators = True

    def __init__(self, paths: ModulePaths, lifetimes: Lifetimes, parameter_names: dict[int, str]) -> None:
        super().__init__(paths, lifetimes, parameter_names)
        self.unreadable: list[tuple[str, str]] = []
        self._stepping = False

    def notice_step(self, begins: bool) -> None:
        """Take down that an optimizer begins or ends a step."""
        if self.is_watching():
            self._stepping = begins

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            self.unreadable.append((self._paths.current, str(func)))
            return func(*args, **kwargs or {})
        self._notice_phase()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _count_module_call(self, path: str) -> None:
        self._notice_phase()
        super()._count_module_call(path)

    def _notice_phase(self) -> None:
        if torch._C._current_autograd_node() is not None:
            self.phase = "backward"
        elif self._stepping and not self._paths.inside:  # a closure runs the model again
            self.phase = "optimizer"
        else:
            self.phase = "forward"

    def _operation(self, ran: Dispatched) -> Operation:
        try:
            return super()._operation(ran)
        except UNREADABLE:
            self.unreadable.append((ran.path, ran.schema.name))
            return _UNKNOWN

    def _place(self, name: str) -> tuple[str, bool]:
        return (OPTIMIZER_PATH, False) if self.phase == "optimizer" else super()._place(name)


_UNKNOWN = Operation(Call(name="", arguments=(), outputs=(), reads=0, writes=0, weight_reads=0), "", "forward")
"""In place of an operation that cannot be described: it is listed by its name instead."""
