"""What a long task tells while it runs."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Takes the share that is done, 0 to 1, and what is being done."""

WAITING = "waiting"
"""What a text begins with that tells of somebody else who is waited for."""


def waiting(progress: Progress | None) -> Callable[[str], None]:
    """What takes such a text."""
    return lambda text: None if progress is None else progress(0.0, text)


def within(progress: Progress | None, n: int, total: float) -> Progress:
    """What the `n`-th of `total` parts tells of itself, told of the whole."""
    return lambda share, what: None if progress is None else progress((n + share) / total, what)
