"""Workers that are copies of a process which has imported torch: a test that needs one waits for no imports.

A nursery is started once for each test process, and forks itself for each worker. The copy is handed over as a child of
the test process, which waits for it as for a process that it started itself. Workers are started as everywhere else
where the system is not Linux, in processes that a test starts, and for programs of other modules.

``python -m tests.warm_workers FD`` is the nursery; requests come by the socket that it was handed.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

from rooflens.running.process import SERVER
from rooflens.without_compiler import compiler_on_demand

WARM = (SERVER, "rooflens.capacity")
"""Programs of workers that load torch."""
LOADED = (
    *("torch", "sympy", "torchvision", "transformers"),
    *("rooflens.running.timed", "rooflens.running.estimating", "rooflens.capacity.worker"),
)
"""What workers import sooner or later."""
_MOST = 1 << 20
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


class Nursery:
    """Starts copies; begun with the first, and ended with the context."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner, self._lock = os.getpid(), threading.Lock()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()

    def popen(self, command: Sequence[str], **how: Any) -> Any:
        """Stands for subprocess.Popen, as workers are started with it."""
        if command[-1] not in WARM or sys.platform != "linux" or os.getpid() != self._owner:
            return subprocess.Popen(command, **how)
        return Copy(self, command[-1], how["env"], apart=how["start_new_session"])

    def fork(self, request: Mapping[str, Any], pipes: Sequence[int]) -> int:
        """Return the process that runs the program of a request; it is a child of this process."""
        with self._lock, _adopting():
            control = self._control()
            socket.send_fds(control, [json.dumps(request).encode()], list(pipes))
            return int(control.recv(100))

    def _control(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-X", "faulthandler", "-m", __name__, str(theirs.fileno())]
            path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | path, **silent)  # type: ignore[call-overload]
            theirs.close()
        return self._socket


class Copy:
    """A process that this one has not started but waits for, as subprocess.Popen does."""

    def __init__(self, nursery: Nursery, program: str, environment: Mapping[str, str], *, apart: bool) -> None:
        pipes = [os.pipe() for _ in range(3)]
        (taken, given), *answers = pipes
        request = {"program": program, "environment": dict(environment), "apart": apart, "folder": os.getcwd()}
        self.pid = nursery.fork(request, [taken, *(theirs for _, theirs in answers)])
        for theirs in (taken, *(theirs for _, theirs in answers)):
            os.close(theirs)
        self.returncode: int | None = None
        self.stdin: IO[bytes] = open(given, "wb")  # noqa: SIM115
        self.stdout, self.stderr = (open(ours, "rb") for ours, _ in answers)  # noqa: SIM115

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 1e9)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans among the descendants of this process become its children."""
    system = ctypes.CDLL(None)
    system.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(_SUBREAPER, 0, 0, 0, 0)


def nursery(control: socket.socket) -> None:
    """Fork for each request; a copy returns from here when its program has ended, the nursery when nobody asks more."""
    compiler_on_demand()
    for name in LOADED:
        import_module(name)

    gc.collect()
    gc.freeze()
    while True:
        words, pipes, _, _ = socket.recv_fds(control, _MOST, 3)
        if not words:
            return
        between = os.pipe()
        if (middle := os.fork()) == 0:
            if (copy := os.fork()) != 0:  # this process ends, so that the copy has no parent
                os.write(between[1], array.array("q", [copy]).tobytes())
                os._exit(0)
            control.close()
            for end in between:
                os.close(end)
            _become(json.loads(words), pipes)
            return
        os.waitpid(middle, 0)
        (pid,) = array.array("q", os.read(between[0], 8))
        for end in (*between, *pipes):
            os.close(end)
        control.send(str(pid).encode())


def _become(request: Mapping[str, Any], pipes: Sequence[int]) -> None:
    """Run the program as ``python -m`` does."""
    if request["apart"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for place, pipe in enumerate(pipes):
        os.dup2(pipe, place)
        os.close(pipe)
    sys.path[:] = [request["folder"], *os.environ["PYTHONPATH"].split(os.pathsep)]
    sys.argv[:] = [request["program"]]
    runpy.run_module(request["program"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    nursery(socket.socket(fileno=int(sys.argv[1])))
