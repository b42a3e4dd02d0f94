"""What a long task tells while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Takes the share that is done, 0 to 1, and what is being done."""

WAITING = "waiting"
"""What a text begins with that tells of somebody else who is waited for."""


def _unheard(share: float, what: str) -> None:
    """Warn of a wait, which may last, where nobody listens."""
    if what.startswith(WAITING):
        logging.getLogger("rooflens").warning(what)


def waiting(progress: Progress | None) -> Callable[[str], None]:
    """Return what takes such a text; without a listener it is a warning in the log."""
    return lambda text: (progress or _unheard)(0.0, text)


def within(progress: Progress | None, n: int, total: float, what_for: str = "") -> Progress:
    """Return what the `n`-th of `total` parts tells of itself, told of the whole, behind the words what it is for."""

    def tell(share: float, what: str) -> None:
        text = what if what.startswith(WAITING) else f"{what_for}{what}"
        (progress or _unheard)((n + share) / total, text)

    return tell
