"""The process in which the cells of a job run: ``python -m rooflens.running.part FOLDER KEY...``.

Started in the jobs of a cluster, see :mod:`rooflens.study.slurm`. What it says goes to the log of the job.
"""

from __future__ import annotations

import os
import sys
import threading

from rooflens.errors import RooflensError
from rooflens.running.studies import run_cells
from rooflens.study import CellNews


def main(folder: str, *keys: str) -> int:
    """Run these cells; the exit code is 1 where some are left, and 0 also where cells failed."""
    threading.Thread(target=_end_with_caller, daemon=True).start()
    try:
        found = run_cells(folder, keys, jobs=int(os.environ.get("SLURM_CPUS_PER_TASK", "1")), progress=_say)
    except (RooflensError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if found["left"]:
        why = "they need another device than this machine has, or the budget of the study is over"
        sys.stderr.write(f"{found['left']} of {len(keys)} cells are left: {why}\n")
    return 1 if found["left"] else 0


def _end_with_caller() -> None:
    """End when standard input closes: whoever started this is gone, and would start it again."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _say(step: CellNews) -> None:
    if step.what != "running":
        sys.stdout.write(f"{step.what}: {step.cell.label()}{step.text and f': {step.text}'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
