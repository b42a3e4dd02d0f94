"""Damage counter files and traces, guided by what the readers execute, and look for crashes and hangs.

    .venv/bin/python scripts/fuzz_readers.py [SECONDS] [--reader counters|traces] [--seed N]

An input that makes a reader execute a line that none before did is kept and damaged further. Anything but a FileError,
and anything that takes longer than `SLOWEST` for its few kilobytes, is a finding: its input goes to `out/fuzz`, and the
exit code is 1. The default of 20 seconds is a smoke test; run it for 10 minutes per reader after a change.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rooflens.errors import FileError
from rooflens.records import Case
from rooflens.sources import counters, profile

ROOT = Path(__file__).parents[1]
SEEDS = ROOT / "tests" / "data" / "ncu" / "layouts"
OUT = ROOT / "out" / "fuzz"
SLOWEST = 2.0
LONGEST = 20_000
TOKENS = [
    b'"',
    b'""',
    b",",
    b'","',
    b"\n",
    b"\r\n",
    b"==PROF== ",
    b"n/a",
    b"nan",
    b"-1",
    b"9" * 50,
    b"1,024",
    b"96.256",
]
TOKENS += [
    b"\xef\xbb\xbf",
    b"\x00",
    b"\xff",
    b'"ID",',
    b"Metric Name",
    b"byte",
    b"Mbyte",
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"1e999",
]
CASE = Case(model="fuzz")
TRACE = {
    "traceEvents": [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "ts": 0,
            "dur": 9,
            "tid": 1,
            "pid": 1,
            "args": {"External id": 1},
        },
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "l",
            "ts": 1,
            "dur": 1,
            "tid": 1,
            "pid": 1,
            "args": {"correlation": 2},
        },
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 3, "dur": 4, "tid": 7, "pid": 0, "args": {"correlation": 2}},
        {"ph": "s", "cat": "fwdbwd", "name": "f", "ts": 1, "tid": 1, "pid": 1, "id": 3},
    ]
}


def read_counters(data: bytes) -> None:
    text = data.decode("utf-8", errors="replace")
    for launch in counters.parse(text.splitlines(keepends=True), counters.contents("fuzz")):
        counters.record_of(launch, counters.chip_of(launch), CASE)


def read_trace(data: bytes) -> None:
    profile.attribute(profile.parse_trace(data, "fuzz"))


READERS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "counters": (read_counters, [path.read_bytes() for path in sorted(SEEDS.iterdir())]),
    "traces": (read_trace, [json.dumps(TRACE).encode()]),
}


class Lines:
    """The lines of rooflens that ran; `fresh` counts those that never did before."""

    def __init__(self) -> None:
        self._seen: set[tuple[CodeType, int]] = set()
        self.fresh = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if "rooflens" not in frame.f_code.co_filename:
            return None
        if event == "line" and (place := (frame.f_code, frame.f_lineno)) not in self._seen:
            self._seen.add(place)
            self.fresh += 1
        return self

    def __len__(self) -> int:
        return len(self._seen)


def damaged(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 5)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((0, 0, 1, 3, 20, 200)))
        other = chance.choice(others)
        cut = chance.randint(0, len(other))
        new = chance.choice(
            (b"", chance.choice(TOKENS), bytes([chance.randrange(256)]), other[cut : cut + 100], data[start:end] * 2)
        )
        data = data[:start] + new + data[end:]
    return data[:LONGEST]


def fuzz(name: str, seconds: float, chance: random.Random) -> int:
    call, corpus = READERS[name]
    lines, runs, findings, end = Lines(), 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = corpus[runs] if runs < len(corpus) else damaged(chance.choice(corpus), corpus, chance)
        runs, lines.fresh, begun = runs + 1, 0, time.monotonic()
        problem = ""
        sys.settrace(lines)
        try:
            call(data)
        except FileError:
            pass
        except Exception as error:  # noqa: BLE001 - any other exception is what this looks for
            problem = f"{type(error).__name__}: {error}"
        finally:
            sys.settrace(None)
        if time.monotonic() - begun > SLOWEST:
            problem = problem or "slow"
        if problem:
            findings += 1
            OUT.mkdir(parents=True, exist_ok=True)
            (OUT / f"{name}-{findings}").write_bytes(data)
            print(f"{name}: {problem[:200]} (input in {OUT / f'{name}-{findings}'})")
        elif lines.fresh and runs > len(corpus):
            corpus.append(data)
    print(f"{name}: {runs} inputs, {len(corpus)} kept, {len(lines)} lines reached, {findings} findings")
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=20.0)
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = [asked.reader] if asked.reader else list(READERS)
    return int(sum([fuzz(name, asked.seconds / len(names), random.Random(asked.seed)) for name in names]) > 0)


if __name__ == "__main__":
    sys.exit(main())
