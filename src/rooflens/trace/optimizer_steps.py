"""When optimizers step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


@contextmanager
def steps_noticed(notice: Callable[[bool], None]) -> Iterator[None]:
    """Tell that a step of any optimizer, on any thread, begins (True) or ends (False), by hooks that all share."""
    handles = (
        register_optimizer_step_pre_hook(lambda *_: notice(True)),
        register_optimizer_step_post_hook(lambda *_: notice(False)),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
