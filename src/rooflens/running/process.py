"""Processes of workers. This imports next to nothing, so that a command starts them before it imports the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

SERVER = "rooflens.running.start"
"""The program that serves whoever started it."""
MARK = "ROOFLENS_WORKERS"
"""The variable that names the workers that started a process, directly or not."""
KIND = "ROOFLENS_WORKER"
"""The variable that says what a worker imports, and on which device it will run: ``measure cuda``."""

ANYWHERE = "anywhere"
"""On a card if torch finds one, else on the processor."""


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A worker's process, and the mark in its environment and in that of whatever it starts."""

    process: subprocess.Popen[bytes]
    mark: str

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        """Standard input, output and error of the process, which was started with a pipe for each."""
        stdin, stdout, stderr = self.process.stdin, self.process.stdout, self.process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        return stdin, stdout, stderr


_KINDS = {"measure": "measure", "counters": "profile"}
"""The kind of worker that a command needs first."""
_ahead: dict[str, MarkedProcess] = {}


def start_ahead(*kinds: str) -> None:
    """Start processes that :func:`started` will hand out. Those that it does not end when this program does."""
    for kind in kinds:
        if kind not in _ahead:
            _ahead[kind] = _new(SERVER, True, kind)


@contextmanager
def ahead(*kinds: str) -> Iterator[None]:
    """Start processes that :func:`started` hands out in the block; those that nobody took by its end are ended."""
    start_ahead(*kinds)
    try:
        yield
    finally:
        for kind in kinds:
            if kind in _ahead:
                _end(_ahead.pop(kind))


def _end(marked: MarkedProcess) -> None:
    marked.process.kill()
    marked.process.wait()
    for pipe in marked.pipes:
        pipe.close()


def start_for(words: Sequence[str]) -> None:
    """Start ahead what a command line will need, before it is read as it should be: a wrong guess costs a process.

    Args:
        words: of the command line, without the program.
    """
    command = next((word for word in words if not word.startswith("-")), "")
    if command not in _KINDS or not {"-h", "--help", "--"}.isdisjoint(words):
        return
    devices = [word.removeprefix("--device=") for word in words if word.startswith("--device=")]
    devices += [after for word, after in pairwise(words) if word == "--device"]
    where = devices[-1] if devices else ANYWHERE
    start_ahead(f"{_KINDS[command]} {where}", *(["estimate cpu"] if "--no-estimate" not in words else []))


def started(program: str, apart: bool, kind: str) -> MarkedProcess:
    """Return a process of a program, which was started ahead or is started now.

    Args:
        program: a module that is run with ``python -m``.
        apart: it is in a group of processes of its own.
        kind: the value of :data:`KIND`.
    """
    waiting = _ahead.pop(kind, None) if program == SERVER and apart else None
    return waiting or _new(program, apart, kind)


def _new(program: str, apart: bool, kind: str) -> MarkedProcess:
    mark = f"{os.environ.get(MARK, '')}:{uuid.uuid4().hex}"
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": search_path(), MARK: mark, KIND: kind},
        start_new_session=apart,
    )
    return MarkedProcess(process, mark)


def search_path() -> str:
    """What the caller can import, as a variable: a user's file may stand anywhere on its path."""
    return os.pathsep.join(dict.fromkeys(filter(None, (os.getcwd() if p == "" else p for p in sys.path))))
