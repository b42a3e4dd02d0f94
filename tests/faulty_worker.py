"""A worker whose cells do what they are told, for tests of isolation: die, hang, starve, or answer."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rooflens.running import isolation
from rooflens.running.jobs import Share, StageEntered


def _raise(error: Exception) -> None:
    raise error


def _spin(more: int) -> None:
    """Work until the limit of processor time is over: to be warned `more` seconds before it is enforced."""
    spent = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + 1, spent + 1 + more))
    while True:
        pass


def _flood() -> None:
    for _ in range(2000):
        os.write(1, 5000 * b"x" + b"\n")
    os.write(2, b"last\n")
    os._exit(4)


def _leave(note: Path) -> None:
    """Fork a process that leaves the group, keeps every pipe open and does not end; then end."""
    if os.fork() == 0:
        os.setsid()
        note.write_text(str(os.getpid()))
        time.sleep(1000)
    while not note.exists() or not note.read_text():
        time.sleep(0.01)
    os._exit(5)


FAULTS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": lambda _: time.sleep(1000),
    "exit": lambda _: os._exit(3),
    "raise": lambda _: _raise(ValueError("wrong number")),
    "ask": lambda _: input("is anybody there? "),
    "starve": lambda _: _raise(MemoryError()),
    "spin": lambda _: _spin(0),
    "spin softly": lambda _: _spin(10),
    "flood": lambda _: _flood(),
    "copy": lambda _: os.fork(),  # both go on, and only one may answer
    "leave": lambda cell: _leave(Path(cell["left"])),
    "unfit": lambda _: None,
}


def begin(setup: dict[str, Any], _: isolation.AnswerListener) -> isolation.Serve:
    served = 0

    def run(cell: dict[str, Any], tell: isolation.AnswerListener) -> bool:
        nonlocal served
        served += 1
        tell(StageEntered(name="forward"))
        print(cell.get("says", "what a model prints is no answer"), flush=True)  # noqa: T201
        time.sleep(cell.get("after", 0.0))
        if cell["fault"] is not None:
            FAULTS[cell["fault"]](cell)
        tell(Share(done=0.5))
        with Path(setup["log"]).open("a") as log:
            log.write(f"{cell['number']}\n")
        tell(StageEntered(name=f"{os.getpid()} served {served}"))
        return bool(cell["fault"] != "unfit")

    return run


if __name__ == "__main__":
    isolation.serve(begin, start=dict, job=dict)
