"""How a worker ended, from what the system tells of it."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rooflens.errors import cut
from rooflens.host_limits import memory_kills

LAST_BYTES = 1 << 16
"""Of what a worker writes to its standard error, which may never end."""
NEXT_JOB = b"\x1e\n"
"""Stands between what a worker writes of two jobs."""
LONGEST_WORDS = 300
"""Characters that are told of the last words of a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedProcess:
    """What is known of a process that has ended and was not collected yet.

    Attributes:
        seconds: processor time that it took.
        limit: seconds of processor time that it was allowed; None without a limit.
        memory_kills: processes that the system had ended for lack of memory by then; None if it does not tell.
    """

    seconds: float | None
    limit: float | None
    memory_kills: int | None

    @classmethod
    def of(cls, pid: int) -> EndedProcess:
        """Ask the system."""
        return cls(seconds=_processor_seconds(pid), limit=_processor_limit(pid), memory_kills=memory_kills())


def ending(code: int, evidence: EndedProcess | None, kills_before: int | None) -> str:
    """Return how a process ended, and why as far as that is known.

    Args:
        kills_before: processes that the system had ended for lack of memory when it began.
    """
    if code >= 0:
        return f"ended by itself with code {code} before it gave an answer"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}{_why(-code, evidence, kills_before)}"


def _why(number: int, evidence: EndedProcess | None, kills_before: int | None) -> str:
    limit = None if evidence is None else evidence.limit
    if number == signal.SIGXCPU:
        return ", since its limit of processor time" + (f", {limit:g} s," if limit is not None else "") + " was over"
    if number != signal.SIGKILL:
        return ""
    if evidence is not None and limit is not None and evidence.seconds is not None and evidence.seconds >= limit - 1:
        return f", since its limit of processor time, {limit:g} s, was over"
    kills = None if evidence is None else evidence.memory_kills
    if kills is None or kills_before is None:
        return ", as the system does when memory runs out, and as others may do"
    return ", as the system does when memory runs out" if kills > kills_before else "; memory had not run out"


def last_words(tail: Iterable[bytes]) -> str:
    """Return what a process wrote last to its standard error: where it was, if Python's fault handler says so."""
    of_job = b"".join(tail).rpartition(NEXT_JOB)[2]
    lines = [line.strip() for line in of_job.decode(errors="replace").split("\n") if line.strip()]
    fault = next((n for n, line in enumerate(lines) if line.startswith("Current thread")), None)
    if fault is not None:
        lines = [line for line in lines[fault:] if line.startswith("File ")][:1]
    return f": {cut(lines[-1], LONGEST_WORDS)}" if lines else ""


class Tail:
    """The last bytes that came from a pipe; whoever writes to it never waits."""

    def __init__(self) -> None:
        self.parts: deque[bytes] = deque(maxlen=2)

    def follow(self, pipe: int) -> None:
        """Read until the pipe ends."""
        with suppress(OSError):
            while part := os.read(pipe, LAST_BYTES):
                if self.parts and len(self.parts[-1]) + len(part) <= LAST_BYTES:
                    self.parts[-1] += part
                else:
                    self.parts.append(part)


def _processor_seconds(pid: int) -> float | None:
    with suppress(OSError, ValueError, IndexError):
        # The name of the program, in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def _processor_limit(pid: int) -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    with suppress(OSError, AttributeError, ValueError):
        least = min(each for each in resource.prlimit(pid, resource.RLIMIT_CPU) if each != resource.RLIM_INFINITY)
        return float(least)
    return None
