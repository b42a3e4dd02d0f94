"""Run the command line of rooflens, and print when each part of a long task was told first:

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

    told: dict[str, float] = {}

    @contextmanager
    def timeline() -> Iterator[Callable[[float, str], None]]:
        def tell(share: float, what: str) -> None:
            told.setdefault(re.sub(r"\d+ of (?=\d+,|\d+$)|, about .*", "", what), time.monotonic() - BEGUN)

        yield tell
        told["end of the call"] = time.monotonic() - BEGUN

    counters.progress_bar = timeline
    try:
        command_line()
    finally:
        told["end"] = time.monotonic() - BEGUN
        for what, seconds in told.items():
            print(f"{seconds:6.1f} s  {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
