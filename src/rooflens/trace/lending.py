"""A module is lent to the thread that traces it: until it is itself again, other threads wait at its door."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from rooflens.errors import ModelError
from rooflens.trace.threads import of_owner, saw

PAUSE, PATIENCE = 0.002, 120.0
"""Seconds from one look at the other threads to the next until all have left the modules, and in all."""
LOOK, STANDING = 0.5, 60
"""Seconds from one look at the tracing thread to the next, and after how many it is taken to wait for this thread.

One that waits for some other thread is taken to do so at the second look.
"""


@contextmanager
def lent(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Wait until no other thread runs one of these modules, and let none begin before leaving.

    Raises:
        ModelError: another thread runs them for long.
        RunsElsewhere: in a thread that the model itself starts and waits for: what it runs cannot be counted.
    """
    owner, ours, back = threading.get_ident(), {id(module) for module in modules}, threading.Event()
    waiting: set[int] = set()

    def at_the_door(module: torch.nn.Module, _: Any) -> None:
        thread = threading.get_ident()
        if thread == owner or id(module) not in ours:
            return
        others = of_owner(owner)
        if others is not None and thread in others.inside:
            saw(others, type(module).__name__)
        waiting.add(thread)
        try:
            _wait(back, owner, module)
        finally:
            waiting.discard(thread)

    door = register_module_forward_pre_hook(at_the_door)
    try:
        begun = time.monotonic()
        while any(
            thread != owner and thread not in waiting and _runs(frame, ours)
            for thread, frame in sys._current_frames().items()
        ):
            if time.monotonic() - begun > PATIENCE:
                raise ModelError(
                    f"another thread has run {type(modules[0]).__name__} for {PATIENCE:g} s; estimate it when that is"
                    " done, or estimate a copy (copy.deepcopy)"
                )
            back.wait(PAUSE)
        yield
    finally:
        back.set()
        door.remove()


def _runs(frame: FrameType | None, modules: set[int]) -> bool:
    """True if a method of one of the modules runs in this frame, or in one that called it."""
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",) and id(frame.f_locals.get("self")) in modules:
            return True
        frame = frame.f_back
    return False


def _wait(back: threading.Event, owner: int, module: torch.nn.Module) -> None:
    """Wait for the tracing thread, unless that waits for this one: then it is a thread of the model's."""
    before, stood = None, 0
    while not back.wait(LOOK):
        here = _place(owner)
        stood = stood + 1 if here == before else 0
        before = here
        if here is not None and stood >= (1 if here[0] == threading.__file__ else STANDING):
            saw(of_owner(owner), type(module).__name__)


def _place(thread: int) -> tuple[str, str, int] | None:
    """Where a thread is. Its frame is let go at once: it would keep tensors alive, and the trace counts lifetimes."""
    frame = sys._current_frames().get(thread)
    return None if frame is None else (frame.f_code.co_filename, frame.f_code.co_name, frame.f_lasti)
