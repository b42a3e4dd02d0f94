"""A program under ncu: followed while it runs, bounded in time, and what it kept."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rooflens import units
from rooflens.errors import CountersUnavailable
from rooflens.progress import Progress

GRACE_SECONDS = 20.0
"""For ncu to end its program and write what it has when it is told to stop; after that it is killed."""
DRAIN_SECONDS = 1.0
"""For what ncu printed to be read after it has ended."""
PLAIN = {"LC_ALL": "C", "NV_COMPUTE_PROFILER_DISABLE_SW_PRE_PASS": "1"}
"""Environment of ncu: numbers as in C, and no pass that only looks which functions a kernel calls."""
_INTERRUPTIBLE = (
    sys.executable, "-ISc",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])",
)  # fmt: skip
"""Runs a command that SIGINT ends. A shell lets what it starts in the background ignore that, and all that this starts;
ncu could not be told to stop and write what it has."""
_PROFILING = re.compile(r'==PROF== Profiling "(.*?)"(?:.*- (\d+) pass(?:es)?)?')
_TROUBLE = re.compile(r"==(ERROR|WARNING)==\s*(.*)")
_NOTHING = "No kernels were profiled"
_LOCKED = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters", re.IGNORECASE)
LOCKED = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM). The administrator opens them for all"
    " users with the line 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in a file under /etc/modprobe.d and a"
    " reload of the driver, or for one program with CAP_SYS_ADMIN (root; in a container --cap-add=SYS_ADMIN)"
)
_BUSY = "driver resource was unavailable"
BUSY = (
    "another program reads the counters of this GPU, and only one can at a time: end other profilers, pause DCGM"
    " ('dcgmi profile --pause'), and count again"
)
_MOST_KEPT = 20
"""Lines of errors, and of the program's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedReport:
    """What came of a run under ncu.

    Attributes:
        kernels: how many launches ncu began to count.
        passes: how often ncu ran a kernel, at most; None where it does not say.
        seconds: of the whole run.
        stopped: whether the time limit ended it.
        code: ncu's exit code.
        errors: in ncu's words.
        output: the last lines of the program.
    """

    report: Path
    kernels: int
    passes: int | None
    seconds: float
    stopped: bool
    code: int
    errors: tuple[str, ...]
    output: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """True if every launch is in the report."""
        return self.code == 0 and not self.stopped and not self.errors


class NcuRun:
    """An ncu that runs, with its program."""

    def __init__(self, run: subprocess.Popen[bytes]) -> None:
        self._run, self._begun = run, time.monotonic()

    @property
    def has_ended(self) -> bool:
        """True if ncu is over, with its program."""
        return self._run.poll() is not None

    def followed(
        self,
        report: Path,
        *,
        limit: float,
        expected: int | None = None,
        progress: Progress | None = None,
        echo: Callable[[str], None] | None = None,
        grace: float = GRACE_SECONDS,
    ) -> CollectedReport:
        """Follow it to its end. After `limit` seconds from now it is told to stop, and writes what it has.

        Args:
            report: what its command writes.
            expected: launches, for the time that is left.
            echo: given what the program prints.

        Raises:
            CountersUnavailable: counters are locked, or nothing was counted; ncu's own words are quoted.
        """
        output = _Output(expected, progress, echo)
        try:
            stopped = _followed(self._run, output, time.monotonic() + limit, grace)
        finally:
            _kill(self._run)
        done = CollectedReport(
            report=report,
            kernels=output.kernels,
            passes=output.passes,
            seconds=time.monotonic() - self._begun,
            stopped=stopped,
            code=self._run.returncode,
            errors=tuple(output.errors),
            output=tuple(output.program),
        )
        if not report.exists():
            raise CountersUnavailable(_no_report(done, limit))
        return done


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[NcuRun]:
    """Start ncu; it ends with the context.

    Args:
        command: of ncu, with the program that it runs.
    """
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    run = subprocess.Popen(
        [*_INTERRUPTIBLE, *command] if ignored else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | PLAIN | dict(environment or {}),
        start_new_session=True,  # so that what it starts can be ended with it
    )
    try:
        yield NcuRun(run)
    finally:
        _kill(run)


def _followed(run: subprocess.Popen[bytes], output: _Output, deadline: float, grace: float) -> bool:
    """Read what ncu prints until it ends; True if it had to be stopped."""
    lines: queue.Queue[str | None] = queue.Queue()
    listener = threading.Thread(target=_listen, args=(run, lines), daemon=True)
    listener.start()
    threading.Thread(target=_watch, args=(run, listener, lines), daemon=True).start()
    stopped = False
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if stopped:
                return True
            stopped, deadline = True, time.monotonic() + grace
            output.stopping(grace)
            _send(run, signal.SIGINT)
            continue
        if line is None:
            with suppress(subprocess.TimeoutExpired):  # it closed its output and hangs: it is killed
                run.wait(timeout=grace)
            return stopped
        output.take(line)


def _listen(run: subprocess.Popen[bytes], lines: queue.Queue[str | None]) -> None:
    assert run.stdout is not None
    with suppress(ValueError, OSError):  # the pipe was closed while this read it
        for line in run.stdout:
            lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _watch(run: subprocess.Popen[bytes], listener: threading.Thread, lines: queue.Queue[str | None]) -> None:
    """Tell of the end of ncu also where what it started lives on and keeps its output open."""
    run.wait()
    listener.join(DRAIN_SECONDS)
    lines.put(None)


def _send(run: subprocess.Popen[bytes], what: signal.Signals) -> None:
    """Send a signal to ncu and all that it started, as a terminal does.

    The command `ncu` is a shell script, which waits for the program ncu and passes no signal on.
    """
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(run.pid, what)
    else:
        run.send_signal(what)


def _kill(run: subprocess.Popen[bytes]) -> None:
    _send(run, signal.SIGKILL)
    run.kill()
    run.wait()
    assert run.stdout is not None
    run.stdout.close()


class _Output:
    """What ncu and the program printed so far."""

    def __init__(
        self,
        expected: int | None,
        progress: Progress | None,
        echo: Callable[[str], None] | None = None,
    ) -> None:
        self.kernels = 0
        self.passes: int | None = None
        self.errors: list[str] = []
        self.program: list[str] = []
        self._expected, self._progress, self._echo = expected, progress, echo
        self._first = self._share = 0.0

    def take(self, line: str) -> None:
        if (profiling := _PROFILING.match(line)) is not None:
            self._kernel(profiling[1], profiling[2])
        elif (trouble := _TROUBLE.match(line)) is not None:
            level, message = trouble.groups()
            counts = level == "ERROR" or message.startswith(_NOTHING)
            if counts and message not in self.errors and len(self.errors) < _MOST_KEPT:
                self.errors.append(message)
        elif not line.startswith("=="):
            self.program = [*self.program, *([line] if line else [])][-_MOST_KEPT:]
            if self._echo is not None:
                self._echo(line)

    def stopping(self, grace: float) -> None:
        """Tell that time is up."""
        if self._progress is not None:
            self._progress(self._share, f"the time limit is over: ncu writes what it has, in at most {grace:g} s")

    def _kernel(self, name: str, passes: str | None) -> None:
        self.kernels += 1
        if passes is not None:
            self.passes = max(self.passes or 0, int(passes))
        now = time.monotonic()
        if self.kernels == 1:
            self._first = now
        if self._progress is None:
            return
        if self._expected is None:
            self._progress(0.0, f"kernel {self.kernels}: {name}")
            return
        about = (now - self._first) / max(1, self.kernels - 1) * max(0, self._expected - self.kernels)
        until = f", about {units.show(about, 's', 2)} left" if self.kernels > 1 else ""
        self._share = self.kernels / max(self._expected, self.kernels)
        self._progress(self._share, f"kernel {self.kernels} of {self._expected}{until}")


def _no_report(done: CollectedReport, limit: float) -> str:
    """The reason why there is no report."""
    if _LOCKED.search(" ".join((*done.errors, *done.output))):
        return LOCKED
    if any(_BUSY in message for message in done.errors):
        return BUSY
    if done.stopped and not done.kernels:
        return f"no kernel was counted within the time limit of {limit:g} s; give more (--time-limit)"
    if not done.errors or any(message.startswith(_NOTHING) for message in done.errors):
        return (
            "the program marked no step: put torch.cuda.profiler.start() and stop() around one warm step, or"
            f" rooflens.region around the loop; it ended with code {done.code}"
            + (f", its last words: {done.output[-1]}" if done.output and done.code else "")
        )
    return f"ncu counted nothing: {'; '.join(done.errors)}"
