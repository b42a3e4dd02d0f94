"""The program of a process under ncu: ``python -m rooflens.running.counted_start JOB CALLER``.

It counts the step of a job's file and ends. What needs no torch is imported beside it, as in
:mod:`rooflens.running.start`.
"""

from __future__ import annotations

import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from rooflens.without_compiler import compiler_on_demand

_BESIDE = ("rooflens.running.jobs", "rooflens.running.isolation", "rooflens.results", "rooflens.machine")


def main(job: str, caller: str) -> None:
    """Count.

    Args:
        caller: the number of the process that started this one.
    """
    gc.disable()  # until all is imported, which stays
    compiler_on_demand()
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_imported)
        import torch  # noqa: F401
    from rooflens.running import profiling

    gc.freeze()
    gc.enable()
    profiling.count(Path(job), int(caller))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # ncu has every count; taking torch down takes another 0.7 s


def _imported() -> None:
    for module in _BESIDE:
        import_module(module)


if __name__ == "__main__":
    main(*sys.argv[1:])
