"""Run a function in a process of its own, with a time limit; an exception is a result.

The process is forked, so that imports are paid for once and each run begins in the same state.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a run: a value, or the kind of error and its message."""

    value: Any = None
    error: str | None = None
    message: str = ""


def apart(function: Callable[[], Any], limit: float, *, processor: int | None = None) -> Outcome:
    """Call `function` in a forked process for at most `limit` seconds and return its result.

    Args:
        processor: seconds of the processor that it may take too, which other programs do not change.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(function, theirs, processor), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit):
            return Outcome(error="time limit", message=f"more than {limit:g} s")
        found: Outcome = ours.recv()
        return found
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return Outcome(error="time limit", message=f"more than {processor} s of processor time")
        return Outcome(error="crash", message=f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()
        ours.close()


def _answer(function: Callable[[], Any], connection: Connection, processor: int | None) -> None:
    if processor is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    try:
        outcome = Outcome(value=function())
    except Exception as error:  # noqa: BLE001  whatever a tool raises is what is reported
        outcome = Outcome(error=type(error).__name__, message=" ".join(str(error).split())[:300])
    connection.send(outcome)
