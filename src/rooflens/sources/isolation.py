"""Cells in a worker process: a crash, a hang or an error of the device costs one cell and nothing that was kept.

A worker serves one cell after another and is replaced after any failure. The two talk in lines of JSON: cells go to the
worker's standard input, its answers come from its standard output. Results travel as files, which the worker writes
whole or not at all.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NoReturn

START_SECONDS = 300.0
"""For imports: a cold network disk can take minutes over torch."""
Answer = dict[str, Any]
Run = Callable[[Mapping[str, Any], Callable[[Answer], None]], bool]
"""Runs a cell in the worker: given the cell and a function that tells the caller its ``stage`` or ``share``; writes the
results and says whether the process is fit for another cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A cell whose worker did not live to answer.

    Attributes:
        stage: what the worker said last that it was doing.
    """

    kind: Literal["timeout", "crash"]
    stage: str
    message: str


class Workers:
    """One worker at a time, started when it is first needed, or ahead of that with :meth:`prepare`.

    Args:
        entry: a module that is run with ``python -m`` and calls :func:`serve`.
        setup: told to each worker when it starts.
        limit: seconds for each cell; the worker is killed after that.
        fresh: a new worker for each cell.
    """

    def __init__(self, entry: str, setup: Mapping[str, Any], *, limit: float, fresh: bool = False) -> None:
        self._entry, self._setup, self._limit, self._fresh = entry, dict(setup), limit, fresh
        self._worker: _Worker | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dismiss()

    def prepare(self) -> None:
        """Start a worker, so that it imports while the caller does something else; one that has ended is replaced."""
        if self._worker is not None and self._worker.has_ended:
            self._dismiss()
        if self._worker is None:
            self._worker = _Worker(self._entry, self._setup)

    def run(self, cell: Mapping[str, Any], tell: Callable[[Answer], None] = lambda _: None) -> Answer | Lost:
        """Hand a cell to the worker and wait for its answer.

        Args:
            tell: given what the worker says on the way: ``stage`` or ``share``.

        Returns:
            The answer: a line with ``done``, true if the worker is fit for another cell. Or how the cell was lost.
        """
        self.prepare()
        assert self._worker is not None
        found = self._worker.run(cell, self._limit, tell)
        if self._fresh or isinstance(found, Lost) or not found["done"]:
            self._dismiss()
        return found

    def _dismiss(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def search_path() -> str:
    """What the caller can import, as a variable: a user's file may stand anywhere on its path."""
    return os.pathsep.join(dict.fromkeys(filter(None, (os.getcwd() if p == "" else p for p in sys.path))))


class _Worker:
    def __init__(self, entry: str, setup: Mapping[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", entry],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": search_path()},
            start_new_session=True,  # so that what it starts dies with it
        )
        self._answers: queue.Queue[Answer | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._say(setup)
        self._ready = False

    @property
    def has_ended(self) -> bool:
        """Whether it ended after it was ready: between two cells, which is the fault of neither."""
        return self._ready and self._process.poll() is not None

    def run(self, cell: Mapping[str, Any], limit: float, tell: Callable[[Answer], None]) -> Answer | Lost:
        stage = "start"
        if not self._ready:
            if not isinstance(hello := self._answer(time.monotonic() + START_SECONDS), dict):
                return self._lost(hello, stage, START_SECONDS)
            self._ready = True
        deadline = time.monotonic() + limit
        self._say(cell)
        while True:
            answer = self._answer(deadline)
            if not isinstance(answer, dict):
                return self._lost(answer, stage, limit)
            if "done" in answer:
                return answer
            stage = answer.get("stage", stage)
            tell(answer)

    def kill(self) -> None:
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):  # it has ended, and so has all that it started
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(BrokenPipeError):  # something unsent was left in it
                    pipe.close()

    def _say(self, words: Mapping[str, Any]) -> None:
        import msgspec

        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: the listener says so
            self._process.stdin.write(msgspec.json.encode(words) + b"\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        import msgspec

        assert self._process.stdout is not None
        with suppress(ValueError, msgspec.MsgspecError):  # the pipe was closed, or the worker died amid a line
            for line in self._process.stdout:
                self._answers.put(msgspec.json.decode(line))
        self._answers.put(None)

    def _answer(self, deadline: float) -> Answer | Literal["timeout", "crash"]:
        try:
            left = max(0.0, deadline - time.monotonic())
            answer = self._answers.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            return "timeout"
        return "crash" if answer is None else answer

    def _lost(self, kind: Literal["timeout", "crash"], stage: str, limit: float) -> Lost:
        if kind == "timeout":
            return Lost(kind=kind, stage=stage, message=f"the time limit of {limit:g} s was over; it was killed")
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return Lost(kind=kind, stage=stage, message="the worker closed its output and went on; it was killed")
        return Lost(kind=kind, stage=stage, message=f"the worker {_ending(code)}{self._last_words()}")

    def _last_words(self) -> str:
        """What the worker wrote last to its standard error: where it was, if Python's fault handler says so."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").split("\n") if line.strip()]
        fault = next((n for n, line in enumerate(lines) if line.startswith("Current thread")), None)
        if fault is not None:
            lines = [line for line in lines[fault:] if line.startswith("File ")][:1]
        return f": {lines[-1][:300]}" if lines else ""


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + (", as the system does when memory runs out" if -code == signal.SIGKILL else "")


def serve(begin: Callable[[Mapping[str, Any]], Run]) -> NoReturn:
    """The worker's side: take cells from standard input until it closes, and answer each.

    What the program or a library prints goes to standard error, and what reads standard input finds its end: nobody is
    there to answer. The process ends at once when the caller is gone, also in the middle of a cell.

    Args:
        begin: given the setup, makes what runs a cell.
    """
    import msgspec

    answers, asked = os.fdopen(os.dup(1), "wb", buffering=0), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    cells: queue.Queue[Answer] = queue.Queue()

    def listen() -> None:
        # Without a buffer: its lock would be held here when the interpreter ends, and abort it.
        for line in open(asked, "rb", buffering=0, closefd=False):  # noqa: SIM115
            cells.put(msgspec.json.decode(line))
        os._exit(0)

    def tell(words: Answer) -> None:
        answers.write(msgspec.json.encode(words) + b"\n")

    threading.Thread(target=listen, daemon=True).start()
    run = begin(cells.get())
    tell({"ready": True})
    while True:
        tell({"done": run(cells.get(), tell)})
