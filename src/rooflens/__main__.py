"""The program ``rooflens``, also as ``python -m rooflens``."""

from __future__ import annotations

import sys

from rooflens.running.process import start_for


def main() -> None:
    """Start the processes that the command will need, then read the command line."""
    start_for(sys.argv[1:])
    from rooflens.cli import main as command_line  # what it imports takes as long as an interpreter's start

    command_line()


if __name__ == "__main__":
    main()
