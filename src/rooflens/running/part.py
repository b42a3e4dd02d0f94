"""The program of a cluster's job, which runs some cells: ``python -m rooflens.running.part FOLDER KEY...``.

:mod:`rooflens.study.slurm` starts it. Its output goes to the log of the job.
"""

from __future__ import annotations

import os
import sys
import threading

from rooflens.errors import RooflensError
from rooflens.running.studies import run_cells
from rooflens.study import CellNews


def main(folder: str, *keys: str) -> int:
    """Run these cells; return the exit code: 1 if some are left, else 0, also if cells failed."""
    threading.Thread(target=_end_with_caller, daemon=True).start()
    try:
        counts = run_cells(folder, keys, jobs=int(os.environ.get("SLURM_CPUS_PER_TASK", "1")), progress=_print)
    except (RooflensError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if counts["left"]:
        why = "they need another device than this machine has, or the budget of the study is over"
        sys.stderr.write(f"{counts['left']} of {len(keys)} cells are left: {why}\n")
    return 1 if counts["left"] else 0


def _end_with_caller() -> None:
    """End when standard input closes: the caller is gone, and will start the cells again."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _print(news: CellNews) -> None:
    if news.what != "running":
        sys.stdout.write(f"{news.what}: {news.cell.label()}{news.text and f': {news.text}'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
