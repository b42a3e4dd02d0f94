"""The program ``rooflens``, also as ``python -m rooflens``."""

from __future__ import annotations

import gc
import sys

from rooflens.running.process import start_for

RARELY = (50_000, 20, 20)
"""When to look for garbage: what imports make stays, millions of objects with torch, and need not be looked at."""


def main() -> None:
    """Start the processes that the command will need, then read the command line."""
    start_for(sys.argv[1:])
    gc.set_threshold(*RARELY)
    from rooflens.cli import main as command_line  # what it imports takes as long as an interpreter's start

    try:
        command_line()
    finally:
        gc.freeze()  # else the interpreter looks through all of it as it ends: half a second with torch


if __name__ == "__main__":
    main()
