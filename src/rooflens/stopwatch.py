"""Where the wall time of a call goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

START, CALL, PRINT, END = "start", "call", "print", "end"
"""What a program does before a call, the call, and what comes after it."""


class Stopwatch:
    """Adds up the seconds of each part of a call: one part ends where the next begins.

    Args:
        since: when the first part, `START`, began, by the clock of :func:`time.monotonic`; default is now.

    Attributes:
        seconds: of each part, in the order in which they were entered first.
    """

    def __init__(self, since: float | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._part = START
        self._since = time.monotonic() if since is None else since

    def enter(self, part: str, at: float | None = None) -> None:
        """End the part that runs, and begin another.

        Args:
            at: when it began, also in another process of this machine; default is now.
        """
        now = max(self._since, time.monotonic() if at is None else at)
        self.seconds[self._part] = self.seconds.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now


def process_began() -> float | None:
    """Return when this process was started, by the clock of :func:`time.monotonic`; None where the system hides it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22, "starttime": man 5 proc
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)
