"""Run the command line of rooflens, and print when each part of a long task was told first and last:

python benchmarks/counted_timeline.py counters resnet18 -b 32 --mode train
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

BEGUN = time.monotonic()


def follow_ncu(note: Callable[[str], None]) -> None:
    """Note what ncu prints beside kernels, when it has ended, and how long reports are read and kept."""
    from rooflens.running import counted_step
    from rooflens.sources.counters.ncu import collecting

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*args: Any, **kwargs: Any) -> Any:
            numbers[name] += 1
            what = f"{name} {numbers[name]}"
            note(what)
            try:
                return call(*args, **kwargs)
            finally:
                note(what)

        return run

    numbers: Counter[str] = Counter()
    owners = ((counted_step, "read_report write_lean joined"), (collecting.NcuRun, "followed"))
    for owner, names in owners:
        for name in names.split():
            setattr(owner, name, noted(name, getattr(owner, name)))
    take = collecting._Output.take

    def taken(output: Any, line: str) -> None:
        if collecting._PROFILING.match(line) is None and line.strip():
            note(f"of followed {numbers['followed']}: {line.strip()[:90]}")
        take(output, line)

    collecting._Output.take = taken  # type: ignore[method-assign, assignment]


def main() -> None:
    from rooflens.cli import counters
    from rooflens.cli.main import main as command_line

    told: dict[str, tuple[float, float]] = {}

    def note(what: str) -> None:
        now = time.monotonic() - BEGUN
        if what not in told:
            print(f"{now:6.1f} s  {what}", file=sys.stderr, flush=True)
        told[what] = told[what][0] if what in told else now, now

    @contextmanager
    def timeline() -> Iterator[Callable[[float, str], None]]:
        def tell(share: float, what: str) -> None:
            note(re.sub(r"kernel \d+ of", "kernel of", re.sub(r", about .*", "", what)))

        yield tell
        note("end of the call")

    counters.progress_bar = timeline
    follow_ncu(note)
    try:
        command_line()
    finally:
        note("end")
        for what, (first, last) in told.items():
            print(f"{first:6.1f} s to {last:6.1f} s  {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
