"""A process that reads a report and does what the name of the file says, for tests: dies, hangs, lies, or answers."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOLD = {"name": "k", "device": "0", "ranges": [], "facts": {}, "values": {}}
DONE = {"done": True}


def say(*lines: Any) -> None:
    for words in lines:
        sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def opened(results: int = 10, package: str | None = None) -> dict[str, Any]:
    return {"opened": {"package": package, "results": results}}


def told(*unit_and_value: Any) -> dict[str, Any]:
    return {"told": TOLD | {"values": {"dram__bytes.sum": unit_and_value} if unit_and_value else {}}}


def segfault(_: int) -> None:
    sys.stderr.write("the last words\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)


def dies_later(_: int) -> None:
    say(opened(), told())
    os.kill(os.getpid(), signal.SIGKILL)


def one_line_without_end(_: int) -> None:
    while True:
        sys.stdout.write("x" * 65536)


def results_without_end(_: int) -> None:
    say(opened())
    while True:
        say(told())


FAULTS: dict[str, Callable[[int], object]] = {
    "segfault": segfault,
    "exit": lambda asked: sys.exit(3),
    "hang": lambda asked: time.sleep(1000),
    "dies_later": dies_later,
    "garbage": lambda asked: sys.stdout.buffer.write(b"\x00\xff not JSON\n"),
    "nested": lambda asked: sys.stdout.write("[" * 100_000 + "\n"),
    "wrong_types": lambda asked: say(opened(), told("byte", "many")),
    "one_line_without_end": one_line_without_end,
    "results_without_end": results_without_end,
    "not_opened": lambda asked: say(told()),
    "too_few": lambda asked: say(opened(), *[told()] * (asked - 1), DONE),
    "others": lambda asked: say(opened(results=9)),
    "older": lambda asked: say(opened(package="2025.2.0")),
    "unit": lambda asked: say(opened(), *[told("parsec", 5)] * asked, DONE),
    "negative": lambda asked: say(opened(), *[told("Kbyte", -1)] * asked, DONE),
    "none": lambda asked: say(opened(), *[told("", None)] * asked, DONE),
}

if __name__ == "__main__":
    FAULTS[Path(sys.argv[1]).stem](len(json.loads(sys.stdin.readline())["results"]))
