"""Jobs in a worker process: a crash, a hang or an error of the device costs one job and nothing that was kept.

A worker serves one job after another and is replaced after any failure. Jobs go to its standard input, its answers come
from its standard output (:mod:`rooflens.running.jobs`). It writes its results to files, whole or not at all.

A job may run a user's code, which may do anything: print without end, fork, leave processes behind. What it leaves is
found by a mark in its environment, and killed with the worker.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from rooflens.errors import RooflensError
from rooflens.host_limits import memory_kills
from rooflens.running.endings import NEXT_JOB, EndedProcess, Tail, ending, last_words
from rooflens.running.jobs import Answer, Done, Job, Ready, Refused, StageEntered, Start
from rooflens.running.process import SERVER, started

START_SECONDS = 300.0
"""For imports: a cold network disk can take minutes over torch."""
END_SECONDS = 2.0
"""For a process that has ended to be collected, and its pipes to be read."""
MOST_LINE = 1 << 24
"""Bytes of an answer."""
AnswerListener = Callable[[Answer], None]
"""Given what a worker answers on the way."""
Serve = Callable[[Any, AnswerListener], bool]
"""Does a job in the worker and writes the results; true if the process is fit for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A job whose worker did not live to answer.

    Attributes:
        stage: the last stage of the worker.
    """

    kind: Literal["timeout", "crash"]
    stage: str
    message: str


class Workers:
    """One worker at a time, started when it is first needed, or ahead of that with :meth:`prepare`.

    Args:
        start: the first line to each worker.
        limit: seconds for each job; the worker is killed after that.
        fresh: a new worker for each job.
        apart: they and what they start are a group of processes of their own, and killed together.
        program: a module that is run with ``python -m`` and calls :func:`serve`; it is told what it will be asked.
    """

    def __init__(
        self, start: object, *, limit: float, fresh: bool = False, apart: bool = True, program: str = SERVER
    ) -> None:
        self._start, self._limit, self._fresh, self._apart, self._program = start, limit, fresh, apart, program
        self._worker: _Worker | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def prepare(self) -> None:
        """Start a worker, so that it imports while the caller does something else; one that has ended is replaced."""
        self._prepared()

    def _prepared(self) -> _Worker:
        if self._worker is not None and self._worker.has_ended:
            self.dismiss()
        if self._worker is None:
            self._worker = _Worker(self._program, self._start, self._apart)
        return self._worker

    def run(self, job: object, tell: AnswerListener = lambda _: None) -> Done | Lost:
        """Hand a job to the worker and wait for its end."""
        ending = self._prepared().run(job, self._limit, tell)
        if self._fresh or isinstance(ending, Lost) or not ending.fit:
            self.dismiss()
        return ending

    def dismiss(self) -> None:
        """End the worker, whatever it does."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


class _Worker:
    def __init__(self, program: str, start: object, apart: bool) -> None:
        self._apart = apart
        self._kills = memory_kills()
        self._evidence: EndedProcess | None = None
        self._noted = threading.Event()
        kind = f"{getattr(start, 'kind', '')} {getattr(start, 'where', '')}"
        marked = started(program, apart, kind.strip())
        self._process, self._mark = marked.process, marked.mark
        self._asks, self._tells, complains = marked.pipes
        self._answers: queue.Queue[Answer | None] = queue.Queue()
        self._errors = Tail()
        self._listener = _in_thread(self._listen)
        self._reader = _in_thread(self._errors.follow, complains.fileno())
        self._read_by = ((self._tells, self._listener), (complains, self._reader))
        _in_thread(self._watch)
        self._send(start)
        self._ready = False

    @property
    def has_ended(self) -> bool:
        """True if it ended after it was ready: between two jobs, which is the fault of neither."""
        return self._ready and self._process.poll() is not None

    def run(self, job: object, limit: float, tell: AnswerListener) -> Done | Lost:
        stage = "start"
        starts_until = time.monotonic() + START_SECONDS
        while not self._ready:
            hello = self._answer(starts_until)
            if isinstance(hello, str):
                return self._lost(hello, stage, START_SECONDS)
            self._ready = isinstance(hello, Ready)
            tell(hello)
            if isinstance(hello, Refused):
                return Done(fit=False)
        deadline = time.monotonic() + limit
        self._send(job)
        while True:
            answer = self._answer(deadline)
            if isinstance(answer, str):
                return self._lost(answer, stage, limit)
            if isinstance(answer, Done):
                return answer
            stage = answer.name if isinstance(answer, StageEntered) else stage
            tell(answer)

    def kill(self) -> None:
        if self._apart and hasattr(os, "killpg"):
            with suppress(ProcessLookupError):  # it has ended, and so has all that it started
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        _kill_marked(self._mark)
        with suppress(BrokenPipeError):  # something unsent was left in it
            self._asks.close()
        for pipe, thread in self._read_by:
            thread.join(END_SECONDS)
            if not thread.is_alive():  # closing would wait for who reads it
                pipe.close()

    def _send(self, line: object) -> None:
        with suppress(BrokenPipeError):  # it has ended: the listener says so
            self._asks.write(msgspec.json.encode(line) + b"\n")
            self._asks.flush()

    def _listen(self) -> None:
        with suppress(ValueError, msgspec.MsgspecError):  # the pipe was closed, or the worker died amid a line
            for line in iter(partial(self._tells.readline, MOST_LINE), b""):
                self._answers.put(msgspec.json.decode(line, type=Answer))
        self._answers.put(None)

    def _watch(self) -> None:
        """Note how the worker ended before it is collected. A process that it forked may keep its pipes open."""
        if not hasattr(os, "waitid"):
            self._noted.set()
            return
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            self._evidence = EndedProcess.of(self._process.pid)
        self._noted.set()
        self._listener.join(END_SECONDS)
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
        self._noted.wait(END_SECONDS)  # before it is collected
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return Lost(kind=kind, stage=stage, message="the worker closed its output and went on; it was killed")
        self._reader.join(END_SECONDS)
        how = ending(code, self._evidence, self._kills)
        return Lost(kind=kind, stage=stage, message=f"the worker process {how}{last_words(self._errors.parts)}")


def _in_thread(run: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread


def _kill_marked(mark: str) -> None:
    """Kill processes that a worker left behind in groups of their own (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or is somebody else's
            if mark.encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


@contextmanager
def loading() -> Iterator[None]:
    """Import what stays for the life of this process: it is never looked at for garbage, now or later.

    Otherwise each collection takes a third of a second, and there are several beside each measurement.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def serve(begin: Callable[[Any, AnswerListener], Serve], start: Any = Start, job: Any = Job) -> NoReturn:
    """The worker's side: take jobs from standard input until it closes, and answer each.

    What the program or a library prints goes to standard error, and what reads standard input finds its end: nobody is
    there to answer. The process ends at once when the caller is gone, also in the middle of a job.

    Args:
        begin: given the first line and what tells, makes what does the jobs.
        start, job: the types of these lines.
    """
    answers, asked = os.fdopen(os.dup(1), "wb", buffering=0), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    with suppress(OSError):  # where memory runs out, the system ends the worker and not its caller
        Path("/proc/self/oom_score_adj").write_text("1000")
    me = os.getpid()
    lines: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        # Without a buffer: its lock would be held here when the interpreter ends, and abort it.
        for line in open(asked, "rb", buffering=0, closefd=False):  # noqa: SIM115
            lines.put(line)
        os._exit(0)

    def tell(answer: Answer) -> None:
        if os.getpid() != me:  # a user's code forked, and this is the copy: only one of them answers
            os._exit(0)
        answers.write(msgspec.json.encode(answer) + b"\n")

    threading.Thread(target=listen, daemon=True).start()
    with loading():
        try:
            do = begin(msgspec.json.decode(lines.get(), type=start), tell)
        except RooflensError as error:
            tell(Refused.of(error))
            os._exit(0)
    folder = os.getcwd()
    tell(Ready())
    while True:
        asks = msgspec.json.decode(lines.get(), type=job)
        with suppress(OSError):
            os.write(2, NEXT_JOB)
        os.chdir(folder)  # a user's code may have left it, and names of files are relative to it
        tell(Done(fit=do(asks, tell)))
