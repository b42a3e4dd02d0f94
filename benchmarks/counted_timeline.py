"""Run the command line of rooflens, and print when each part of a long task was told first and last:

python benchmarks/counted_timeline.py counters resnet18 -b 32 --mode train
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEGUN = time.monotonic()


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
    try:
        command_line()
    finally:
        note("end")
        for what, (first, last) in told.items():
            print(f"{first:6.1f} s to {last:6.1f} s  {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
