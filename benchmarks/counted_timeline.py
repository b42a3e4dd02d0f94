"""Run the command line of rooflens, and print when each part of a long task was told first and last:

python benchmarks/counted_timeline.py counters resnet18 -b 32 --mode train

Of each run of ncu it also prints what a launch takes, of kernels that are new to it and of those that it knows, and the
launches that took longest.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from statistics import mean, median
from typing import Any

BEGUN = time.monotonic()
LONGEST = 6
"""Launches of a run that are printed."""
Launches = dict[int, list[tuple[float, str]]]
"""When each launch of a run was counted, and the name of its kernel."""


def follow_ncu(note: Callable[[str], None], launches: Launches) -> None:
    """Note what processes wait for, what ncu prints, when it has ended, and how long reports are read and kept.

    Args:
        launches: filled, by run.
    """
    from rooflens.running import counted_step, waiting_runs
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
    owners = (
        (counted_step, "read_report write_lean joined"),
        (collecting.NcuRun, "followed"),
        (waiting_runs.WaitingRuns, "all_loaded build all_warm count"),
    )
    for owner, names in owners:
        for name in names.split():
            setattr(owner, name, noted(name, getattr(owner, name)))
    take = collecting._Output.take

    def taken(output: Any, line: str) -> None:
        if (profiling := collecting._PROFILING.match(line)) is not None:
            launches[numbers["followed"]].append((time.monotonic() - BEGUN, profiling[1]))
        elif line.strip():
            note(f"of followed {numbers['followed']}: {line.strip()[:90]}")
        take(output, line)

    collecting._Output.take = taken  # type: ignore[method-assign, assignment]


def paces(launches: Launches) -> Iterator[str]:
    """Lines on what each launch of a run took: from the one before it."""
    for run, its in launches.items():
        gaps = [(after - before, name) for (before, _), (after, name) in pairwise(its)]
        known = {its[0][1]}
        new: list[float] = []
        again: list[float] = []
        for seconds, name in gaps:
            (again if name in known else new).append(seconds)
            known.add(name)
        yield f"run {run}: {len(its)} launches from {its[0][0]:.2f} s to {its[-1][0]:.2f} s"
        for what, some in (("new kernels", new), ("known kernels", again)):
            if some:
                middle, average = 1000 * median(some), 1000 * mean(some)
                yield f"run {run}, {len(some)} of {what}: median {middle:.1f} ms, mean {average:.1f} ms"
        longest = sorted(gaps, reverse=True)[:LONGEST]
        yield f"run {run}, longest: {', '.join(f'{1000 * seconds:.0f} ms {name[:40]}' for seconds, name in longest)}"


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
    def timeline(*, lines: bool = False) -> Iterator[Callable[[float, str], None]]:
        def tell(share: float, what: str) -> None:
            note(re.sub(r"kernel \d+ of", "kernel of", re.sub(r", about .*", "", what)))

        yield tell
        note("end of the call")

    launches: Launches = defaultdict(list)
    counters.progress_bar = timeline
    follow_ncu(note, launches)
    try:
        command_line()
    finally:
        note("end")
        for what, (first, last) in told.items():
            print(f"{first:6.1f} s to {last:6.1f} s  {what}", file=sys.stderr)
        for line in paces(launches):
            print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
