"""Coverage-guided fuzzing in plain Python: keep what reaches new branches, damage it further.

`atheris` has no wheels for the Pythons of this project, so `sys.settrace` records branches. A branch is a step from one
line of rooflens to another; a new count of it (once, a few times, many times) is a new branch too.
"""

from __future__ import annotations

import atexit
import json
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FOLDER = Path(tempfile.mkdtemp(prefix="rooflens-fuzz-"))
"""For the files of this process, which go with it."""
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
SLOWEST = 2.0
"""Seconds of processor time that a few kilobytes may take while nobody looks at branches."""
HANGS = 30.0
"""Seconds of processor time after which a call is given up."""
LONGEST = 20_000
MEMORY = 4 * 2**30
TOKENS = (
    *(b'"', b'""', b",", b'","', b"\n", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b":", b"="),
    *(b"-", b"0", b"1", b"9" * 50, b"1,024", b"96.256", b"1e999", b"-1", b"1e-400", b"nan", b"inf", b"n/a", b"null"),
    *(b"true", b'"0"', b"0x10", b" ", b"\t", "\u00a0".encode(), "\u0663".encode(), b"\\", b"\\u0000", b"#", b"'"),
)
_NUMBER = re.compile(rb"\d+")
_COLUMNS = ("seconds", "inputs", "branches", "found", "mended")
_TABLE = re.compile(r"(\| reader \| seconds \|.*\n\|[-:|]+\|\n)(?:\|.*\n)*")


class Hang(BaseException):
    """A call that does not come back; no reader may catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A reader that is fuzzed.

    Attributes:
        call: reads bytes, and holds what it read against them: an AssertionError is a number from nowhere.
        seeds: inputs to begin with.
        refusals: what it may raise.
        words: what its files are made of, beside `TOKENS`.
    """

    call: Callable[[bytes], None]
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...]
    words: Sequence[bytes] = ()


@dataclass(slots=True)
class Outcome:
    """What fuzzing a reader came to."""

    seconds: float = 0.0
    inputs: int = 0
    kept: int = 0
    branches: int = 0
    findings: list[str] = field(default_factory=list)


class Branches:
    """The branches that ran; those of `call` are new if :meth:`fresh` says so afterwards."""

    def __init__(self, below: str) -> None:
        self._below = below
        self._wanted: dict[CodeType, bool] = {}
        self._seen: dict[tuple[CodeType, int, int], int] = {}
        self._now: dict[tuple[CodeType, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._seen)

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._now.clear()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def fresh(self) -> bool:
        """Whether the last call took a branch that none took before, or took one more often."""
        new = False
        for branch, times in self._now.items():
            often = min(times.bit_length(), 8)
            if often > self._seen.get(branch, 0):
                self._seen[branch], new = often, True
        return new

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = self._below in code.co_filename and code.co_name != "<module>"
        return self._lines(code) if wanted else None

    def _lines(self, code: CodeType) -> Callable[[FrameType, str, Any], Any]:
        before, now = 0, self._now

        def line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            if event == "line":
                branch = (code, before, frame.f_lineno)
                now[branch] = now.get(branch, 0) + 1
                before = frame.f_lineno
            return line

        return line


def fuzz(
    reader: Reader, seconds: float, chance: random.Random, out: Path, name: str, below: str = "rooflens/"
) -> Outcome:
    """Damage the seeds of a reader, and what reaches new branches of the code `below`, for some time.

    Findings go to the folder `out`, one of each kind.
    """
    branches, outcome, begun = Branches(below), Outcome(), time.monotonic()
    corpus = list(reader.seeds)
    signal.signal(signal.SIGVTALRM, _hangs)
    said: set[str] = set()
    while (spent := time.monotonic() - begun) < seconds or outcome.inputs < len(reader.seeds):
        first = outcome.inputs < len(reader.seeds)
        data = corpus[outcome.inputs] if first else damaged(_chosen(corpus, chance), corpus, reader.words, chance)
        outcome.inputs += 1
        with branches.watched():
            problem = _problem(reader, data)
        if problem == "slow":  # under the tracer
            problem = _problem(reader, data)
        if problem and (kind := re.sub(r"0x[0-9a-f]+|\d+", "0", problem)[:60]) not in said:
            said.add(kind)
            outcome.findings.append(problem)
            out.mkdir(parents=True, exist_ok=True)
            place = out / f"{name}-{len(outcome.findings)}"
            place.write_bytes(data)
            print(f"{name}: {problem[:300]} (input in {place})", file=sys.stderr, flush=True)
        if branches.fresh() and not first and not problem:
            corpus.append(data)
    outcome.seconds, outcome.kept, outcome.branches = spent, len(corpus), len(branches)
    return outcome


def _problem(reader: Reader, data: bytes) -> str:
    """What is wrong with how a reader takes an input, "" if nothing is."""
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS)
    try:
        reader.call(data)
    except reader.refusals as error:
        if not str(error):
            return "an error without a message"
    except Hang:
        return "hangs"
    except Exception as error:  # noqa: BLE001 - any other exception is what this looks for
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "slow" if time.process_time() - begun > SLOWEST else ""


def _hangs(*_: Any) -> None:
    raise Hang


def _chosen(corpus: Sequence[bytes], chance: random.Random) -> bytes:
    """Rather one of the youngest: they are the furthest from the seeds."""
    return chance.choice(corpus if chance.random() < 0.5 else corpus[-max(1, len(corpus) // 5) :])


def damaged(data: bytes, corpus: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """An input with one to five faults: in bytes, in numbers, or in lines."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        data = chance.choice((_bytes, _bytes, _number, _lines))(data, corpus, words, chance)
    return data[:LONGEST]


def _bytes(data: bytes, corpus: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    start = chance.randint(0, len(data))
    end = min(len(data), start + chance.choice((0, 0, 1, 3, 20, 200)))
    other = chance.choice(corpus)
    cut = chance.randint(0, len(other))
    token = chance.choice(words) if words and chance.random() < 0.5 else chance.choice(TOKENS)
    new = chance.choice(
        (b"", token, token, bytes([chance.randrange(256)]), other[cut : cut + 100], data[start:end] * 2)
    )
    return data[:start] + new + data[end:]


def _number(data: bytes, corpus: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data[:LONGEST]))
    if not found:
        return data
    match = chance.choice(found)
    digits = match[0]
    cut = chance.randint(0, len(digits))
    new = chance.choice(
        (digits[:cut], digits[:cut] + b"." + digits[cut:], digits * 9, b"-" + digits, b"0", digits + b"e9")
    )
    return data[: match.start()] + new + data[match.end() :]


def _lines(data: bytes, corpus: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = chance.randrange(len(lines))
    to = chance.randrange(len(lines))
    line = lines[at]
    match chance.randrange(6):
        case 0:
            lines[at] = line[: chance.randint(0, len(line))]  # cut, and glued to the next one
        case 1:
            lines[at] = line[: chance.randint(0, len(line))] + b"\n"
        case 2:
            del lines[at]
        case 3:
            lines.insert(to, line)
        case 4:
            lines[at], lines[to] = lines[to], line
        case _:
            other = chance.choice(corpus).splitlines(keepends=True) or [b""]
            lines.insert(at, chance.choice(other))
    return b"".join(lines)


def limit_memory() -> None:
    """Let this process have `MEMORY` bytes: what wants more is a finding."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def save(results: Path, page: Path, name: str, outcome: Outcome, mended: int) -> None:
    """Put what fuzzing a reader came to into a file, beside what is there of others, and all of it into a page."""
    known = json.loads(results.read_text()) if results.exists() else {}
    known[name] = {
        "seconds": round(outcome.seconds),
        "inputs": outcome.inputs,
        "kept": outcome.kept,
        "branches": outcome.branches,
        "found": len(outcome.findings),
        "mended": mended,
    }
    known = dict(sorted(known.items()))
    results.write_text(json.dumps(known, indent=1) + "\n")
    page.write_text(quoted(page.read_text(), known))


def quoted(page: str, results: Mapping[str, Mapping[str, int]]) -> str:
    """A page with these results in the place of its table of them."""
    rows = [f"| {name} | " + " | ".join(f"{its[key]:,}" for key in _COLUMNS) + " |" for name, its in results.items()]
    return _TABLE.sub(lambda head: head[1] + "".join(f"{row}\n" for row in rows), page)
