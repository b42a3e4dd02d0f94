"""A program under ncu: followed while it runs, bounded in time, and what it kept."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rooflens import units
from rooflens.errors import CountersUnavailable
from rooflens.progress import Progress

GRACE_SECONDS = 60.0
"""For ncu to write what it has when it is told to stop; after that it is killed."""
_PROFILING = re.compile(r'==PROF== Profiling "(.*?)"(?:.*- (\d+) pass(?:es)?)?')
_TROUBLE = re.compile(r"==(ERROR|WARNING)==\s*(.*)")
_NOTHING = "No kernels were profiled"
_LOCKED = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters", re.IGNORECASE)
LOCKED = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM). The administrator opens them for all"
    " users with the line 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in a file under /etc/modprobe.d and a"
    " reload of the driver, or for one program with CAP_SYS_ADMIN (root; in a container --cap-add=SYS_ADMIN)"
)
_MOST_SAID = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedReport:
    """What came of a run under ncu.

    Attributes:
        kernels: how many launches ncu began to count.
        passes: how often ncu ran a kernel, at most; None where it does not say.
        seconds: of the whole run.
        stopped: whether the time limit ended it.
        code: ncu's exit code.
        said: its errors.
        output: the last lines of the program.
    """

    report: Path
    kernels: int
    passes: int | None
    seconds: float
    stopped: bool
    code: int
    said: tuple[str, ...]
    output: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether every launch is in the report."""
        return self.code == 0 and not self.stopped and not self.said


def collect(
    command: Sequence[str],
    report: Path,
    *,
    limit: float,
    expected: int | None = None,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
    echo: Callable[[str], None] | None = None,
    grace: float = GRACE_SECONDS,
) -> CollectedReport:
    """Run ncu to its end, or until `limit` seconds are over: then it is told to stop, and writes what it has.

    Args:
        command: of ncu, with the program that it runs.
        report: what the command writes.
        expected: launches, for the time that is left.
        progress: told the share that is done, and what is being done.
        echo: given what the program prints.

    Raises:
        CountersUnavailable: counters are locked, or nothing was counted; ncu's own words are quoted.
    """
    begun = time.monotonic()
    said = _Said(expected, progress, echo)
    run = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"LC_ALL": "C"} | dict(environment or {}),
        start_new_session=True,  # so that what it starts can be ended with it
    )
    try:
        stopped = _followed(run, said, begun + limit, grace)
    finally:
        _kill(run)
    found = CollectedReport(
        report=report,
        kernels=said.kernels,
        passes=said.passes,
        seconds=time.monotonic() - begun,
        stopped=stopped,
        code=run.returncode,
        said=tuple(said.errors),
        output=tuple(said.output),
    )
    if not report.exists():
        raise CountersUnavailable(_why(found, limit))
    return found


def _followed(run: subprocess.Popen[bytes], said: _Said, deadline: float, grace: float) -> bool:
    """Read what ncu says until it ends; whether it had to be stopped."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(run, lines), daemon=True).start()
    stopped = False
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if stopped:
                return True
            stopped, deadline = True, time.monotonic() + grace
            run.send_signal(signal.SIGINT)
            continue
        if line is None:
            with suppress(subprocess.TimeoutExpired):  # it closed its output and hangs: it is killed
                run.wait(timeout=grace)
            return stopped
        said.take(line)


def _listen(run: subprocess.Popen[bytes], lines: queue.Queue[str | None]) -> None:
    assert run.stdout is not None
    with suppress(ValueError, OSError):  # the pipe was closed while this read it
        for line in run.stdout:
            lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _kill(run: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(run.pid, signal.SIGKILL)
    run.kill()
    run.wait()
    assert run.stdout is not None
    run.stdout.close()


class _Said:
    """What ncu and the program said so far."""

    def __init__(
        self, expected: int | None, progress: Progress | None, echo: Callable[[str], None] | None = None
    ) -> None:
        self.kernels = 0
        self.passes: int | None = None
        self.errors: list[str] = []
        self.output: list[str] = []
        self._expected, self._progress, self._echo = expected, progress, echo
        self._first = 0.0

    def take(self, line: str) -> None:
        if (profiling := _PROFILING.match(line)) is not None:
            self._kernel(profiling[1], profiling[2])
        elif (trouble := _TROUBLE.match(line)) is not None:
            kept = self.errors if trouble[1] == "ERROR" or trouble[2].startswith(_NOTHING) else []
            if trouble[2] not in kept and len(kept) < _MOST_SAID:
                kept.append(trouble[2])
        elif not line.startswith("=="):
            self.output = [*self.output, *([line] if line else [])][-_MOST_SAID:]
            if self._echo is not None:
                self._echo(line)

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
        left = max(0, self._expected - self.kernels)
        about = (now - self._first) / max(1, self.kernels - 1) * left
        until = f", about {units.show(about, 's', 2)} left" if self.kernels > 1 else ""
        self._progress(
            self.kernels / max(self._expected, self.kernels), f"kernel {self.kernels} of {self._expected}{until}"
        )


def _why(found: CollectedReport, limit: float) -> str:
    """Why there is no report."""
    words = " ".join((*found.said, *found.output))
    if _LOCKED.search(words):
        return LOCKED
    if found.stopped and not found.kernels:
        return f"no kernel was counted within the time limit of {limit:g} s; give more (--time-limit)"
    if not found.said or any(words.startswith(_NOTHING) for words in found.said):
        return (
            "the program marked no step: put torch.cuda.profiler.start() and stop() around one warm step, or"
            f" rooflens.region around the loop; it ended with code {found.code}"
            + (f", its last words: {found.output[-1]}" if found.output and found.code else "")
        )
    quoted = "; ".join(found.said)
    return f"ncu counted nothing: {quoted}"
