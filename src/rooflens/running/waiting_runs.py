"""The processes under ncu that count one step: they start at once, and wait for each thing that they do next.

Each waits for a file of their folder, and tells by another that it is done.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rooflens.errors import CountersUnavailable
from rooflens.running.awaited import LOOKS, written
from rooflens.running.jobs import Count
from rooflens.running.process import search_path
from rooflens.runs.run import Run
from rooflens.sources.counters import ncu
from rooflens.sources.counters.ncu import NcuRun, Tool
from rooflens.sources.profile.launches import Round

COUNTER = "rooflens.running.counted_start"
"""The program that counts under ncu."""
NO_GPU = "torch finds no NVIDIA GPU on this machine, and only those have the counters that ncu reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRuns:
    """Processes under ncu.

    Attributes:
        groups: of counters, one for each process.
        folder: where they look for jobs, and write their reports.
    """

    tool: Tool
    dtype: str
    cache: str
    groups: tuple[tuple[str, ...], ...]
    runs: tuple[NcuRun, ...]
    folder: Path

    def job(self, n: int) -> Path:
        """The file of the job of a process."""
        return self.folder / f"job{n}.json"

    def report(self, n: int) -> Path:
        """What it writes."""
        return self.folder / f"{n}.ncu-rep"

    def give(self, run: Run) -> None:
        """Tell all of them what they will run: they load torch's libraries, and the one that has the model."""
        for n in range(len(self.runs)):
            files = {
                "loaded": self._loaded(n),
                "build": self._build(n),
                "warm": self._warm(n),
                "rounds": self._rounds(n),
            }
            written(self.job(n), Count(run=run, **{name: str(path) for name, path in files.items()}))

    def all_loaded(self, until: float) -> bool:
        """Wait for all of them to have loaded torch's libraries; false if some had not by then."""
        return self._all(self._loaded, until)

    def build(self, n: int) -> None:
        """Let one build the step on the card, and warm it up."""
        written(self._build(n), "")

    def all_warm(self, until: float) -> bool:
        """Wait for all of them to have done that; false if some had not by then."""
        return self._all(self._warm, until)

    def count(self, n: int, rounds: Sequence[Round]) -> None:
        """Let one count."""
        written(self._rounds(n), rounds)

    def _all(self, file: Callable[[int], Path], until: float) -> bool:
        """One that has ended does nothing any more, and is not waited for."""
        while any(not file(n).exists() and not run.has_ended for n, run in enumerate(self.runs)):
            if time.monotonic() > until:
                return False
            time.sleep(LOOKS)
        return True

    def _loaded(self, n: int) -> Path:
        return self.folder / f"loaded{n}"

    def _build(self, n: int) -> Path:
        return self.folder / f"build{n}.json"

    def _warm(self, n: int) -> Path:
        return self.folder / f"warm{n}"

    def _rounds(self, n: int) -> Path:
        return self.folder / f"rounds{n}.json"


@contextmanager
def waiting_runs(dtype: str, cache: str) -> Iterator[WaitingRuns]:
    """Start the processes that count a step of this type of elements on the card of this machine.

    Raises:
        CountersUnavailable: ncu is missing.
        InvalidValue: the chip is not known.
    """
    with ThreadPoolExecutor(1) as beside:
        looked = beside.submit(ncu.capability)
        tool, capability = ncu.find(), looked.result()
    if capability is None:
        raise CountersUnavailable(NO_GPU)
    groups = ncu.metric_groups(capability, dtype)
    with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch, ExitStack() as stack:
        waiting = WaitingRuns(tool=tool, dtype=dtype, cache=cache, groups=groups, runs=(), folder=Path(scratch))
        runs = []
        for n, group in enumerate(groups):
            program = [sys.executable, "-m", COUNTER, str(waiting.job(n)), str(os.getpid())]
            command = tool.command(group, waiting.report(n), cache=cache, program=program)
            runs.append(stack.enter_context(ncu.started(command, {"PYTHONPATH": search_path()})))
        yield replace(waiting, runs=tuple(runs))
