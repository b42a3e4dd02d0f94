"""The program of a worker that serves: ``python -m rooflens.running.start``.

torch is imported in this thread; beside it, another imports what needs no torch, looks at the card and wakes it. Both
wait for files most of the time.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from rooflens.running.process import KIND
from rooflens.without_compiler import compiler_on_demand

if TYPE_CHECKING:
    from rooflens.sources.conditions import Observer

BESIDE = {
    "profile": ("rooflens.running.jobs", "rooflens.running.isolation", "rooflens.results"),
    "measure": ("rooflens.running.jobs", "rooflens.running.isolation", "rooflens.results", "rooflens.timing"),
    "estimate": ("sympy", "rooflens.running.jobs", "rooflens.running.isolation", "rooflens.running.estimating"),
}
"""What each kind of worker needs beside torch. Fake tensors need sympy."""


def look_and_import(kind: str, where: str) -> Callable[[], Observer | None]:
    """Import what a kind of worker needs beside torch.

    Returns:
        What waits for a first look at the card, where a card is to run.
    """
    from rooflens.sources.first_look import first_look

    looked = first_look(where if kind in ("measure", "profile") else "cpu")
    for module in BESIDE.get(kind, ()):
        import_module(module)
    return looked


def main() -> None:
    began = time.monotonic()
    gc.disable()  # until all is imported, which stays
    compiler_on_demand()
    kind, _, where = os.environ.get(KIND, "").partition(" ")
    with ThreadPoolExecutor(1) as beside:
        looking = beside.submit(look_and_import, kind, where)
        import torch  # noqa: F401

        looked = looking.result()
    from rooflens.running import worker
    from rooflens.running.isolation import serve

    serve(partial(worker.begin, looked=looked, began=began))


if __name__ == "__main__":
    main()
