"""The program of a process under ncu: ``python -m rooflens.running.counted_start TURN JOB CALLER``.

It counts the step of a job's file and ends. As in :mod:`rooflens.running.start`, what needs no torch happens beside its
import: other imports, and ncu's look at a first kernel.
"""

from __future__ import annotations

import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module
from pathlib import Path

from rooflens.running.awaited import awaited
from rooflens.without_compiler import compiler_on_demand

_BESIDE = ("rooflens.running.jobs", "rooflens.running.isolation", "rooflens.results", "rooflens.machine")


def main(turn: str, job: str, caller: str) -> None:
    """Count.

    Args:
        turn: 0 for the process that counts before the others.
        caller: the number of the process that started this one.
    """
    gc.disable()  # until all is imported, which stays
    compiler_on_demand()
    beside = ThreadPoolExecutor(2)
    others = beside.submit(_imported)
    looks = [beside.submit(_woken, Path(job), int(caller))] if turn == "0" else []
    import torch  # noqa: F401

    others.result()
    from rooflens.running import profiling

    gc.freeze()
    gc.enable()
    profiling.count(Path(job), int(caller), lambda: wait(looks))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # ncu has every count, and to take torch and the card down takes longer than a hundred launches


def _woken(job: Path, caller: int) -> None:
    """Let ncu look at a kernel as soon as the card is free."""
    import msgspec

    from rooflens.running.jobs import Count
    from rooflens.sources.counters.ncu.card import wake

    build = msgspec.json.decode(awaited(job, caller), type=Count).build
    awaited(Path(build), caller)
    wake()


def _imported() -> None:
    for module in _BESIDE:
        import_module(module)


if __name__ == "__main__":
    main(*sys.argv[1:])
