"""Take eager times on a GPU while no other program slows the host: what predictions with a probed host are judged by.

    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/quiet_on_gpu.py $OUT --seconds 350
    PYTHONPATH=.:src:$PYTHONPATH python3 benchmarks/prediction/quiet_on_gpu.py $OUT --seconds 200 --parts fitted

Cores of a rented machine are threads of a processor, of which another tenant may use the other half: then all that the
host does takes 1.4 times as long, and that changes within a second. So the main thread, and all others (backward's
among them), get the cores that are fastest just now, and probes before and after each step tell how fast the host was.
Writes $OUT/steps.jsonl: each step of each case, with its probes. `quiet_steps.py` chooses those that count.

Of the parts `fitted`, models by which nothing is judged, the host's own time is taken: until a phase is launched, with
an idle device before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from benchmarks.prediction.quiet_steps import QUIET
from benchmarks.prediction.truth_models import BATCHES, DECODERS, FITTED, MODELS, TRAINING_BATCH
from benchmarks.prediction.truth_on_gpu import (
    RESERVED,
    Case,
    Modules,
    card,
    decoding,
    images,
    once,
    probe,
    training,
    write,
)

from rooflens.errors import RooflensError
from rooflens.models import eager, running, switches
from rooflens.records.timing import TimingOrigin
from rooflens.timing import Clock, CudaClock, MonotonicClock

LOOP = 10_000
"""Additions that tell how fast a core is."""
ENOUGH, MOST = 6, 80
"""Quiet steps that are waited for, and steps in all."""
DTYPES = ("bf16", "tf32", "fp32")


class Cores:
    """The cores of this process, of which its threads get those that nobody else slows down."""

    def __init__(self) -> None:
        self._all = sorted(os.sched_getaffinity(0))
        self._least = float("inf")
        self._main: int | None = None

    def choose(self) -> None:
        """Put the main thread on the fastest core, and all others on the next one that shares nothing with it."""
        loops = {core: self._loop(core) for core in self._all}
        ranked = sorted(self._all, key=loops.__getitem__)
        if self._main is None or loops[self._main] > QUIET * self._least:
            self._main = ranked[0]
        other = next((core for core in ranked if core // 2 != self._main // 2), self._main)
        for thread in map(int, os.listdir("/proc/self/task")):
            os.sched_setaffinity(thread, {self._main if thread == threading.main_thread().native_id else other})

    def _loop(self, core: int) -> float:
        os.sched_setaffinity(0, {core})
        begun, total = time.perf_counter(), 0
        for number in range(LOOP):
            total += number
        seconds = time.perf_counter() - begun
        self._least = min(self._least, seconds)
        return seconds


class Host:
    """Probes of the host: how fast it is, and whether that is as fast as it gets."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._seen: list[tuple[float, float]] = []
        self.cores = Cores()
        for _ in range(20):
            self.cores.choose()
            self.probe()
        del self._seen[:10]  # backward's thread began on the main thread's core

    def probe(self) -> tuple[float, float]:
        """Seconds of a small module, and of its gradients."""
        found = probe(self._where)
        self._seen.append((found["module"], found["gradients"]))
        return self._seen[-1]

    def quiet(self, *probes: tuple[float, float], trains: bool) -> bool:
        """True if all of these are as fast as the fastest tenth; in inference nothing runs on backward's thread."""
        return all(
            one[kind] < QUIET * quantiles((its[kind] for its in self._seen), n=10)[0]
            for kind in range(1 + trains)
            for one in probes
        )


class Launching:
    """A clock of the host: the seconds until each phase is launched, with an idle device before it."""

    name: TimingOrigin = "monotonic"

    def __init__(self) -> None:
        self._times: list[float] = []
        self._begun = 0.0

    def start(self) -> None:
        self._times = []
        self._begin()

    def mark(self) -> None:
        self._times.append(time.perf_counter() - self._begun)
        self._begin()

    def seconds(self) -> list[float]:
        return self._times

    def _begin(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._begun = time.perf_counter()


def measured(modules: Modules, case: Case, where: str, host: Host, clock: Clock, patience: float) -> Iterator[Case]:
    """The steps of a case, until the host was quiet often enough or the patience is over; or why there are none."""
    trains, quiet = case["mode"] == "train", 0
    try:
        with switches(case["dtype"]), running(case["model"]):
            run = eager(modules.step(case), where, dense=True)
            for _ in range(2):
                once(run, clock)
            end = time.monotonic() + patience
            before = host.probe()
            for _ in range(MOST):
                if not host.quiet(before, trains=trains):
                    host.cores.choose()
                    before = host.probe()
                times = once(run, clock)
                del times["issued"]
                after = host.probe()
                yield {"times": times, "before": before, "after": after}
                quiet += host.quiet(before, after, trains=trains)
                before = after
                if quiet == ENOUGH or time.monotonic() > end:
                    return
    except RooflensError as error:
        yield {"error": str(error)}


def parts(models: tuple[str, ...]) -> dict[str, Iterator[Case]]:
    """What is to be measured. Language models run in processes of their own."""
    return {
        "training": training(models),
        "batch-1": (case for dtype in DTYPES for case in images(models, dtype, BATCHES[:1])),
        "decoders": iter(()),
        "batch-32": (case for dtype in DTYPES for case in images(models, dtype, BATCHES[1:2])),
        "training-256": (case | {"batch": 4 * TRAINING_BATCH} for case in training(models)),
        "fitted": fitted(),
        "fitted-training": (case | {"dtype": "tf32", "batch": 2} for case in training(FITTED)),
    }


def fitted() -> Iterator[Case]:
    """Steps of the models that constants of the host are read off, with few images."""
    for model in FITTED:
        for dtype in DTYPES[:2]:
            yield from images((model,), dtype, BATCHES[:1])
        yield from (case | {"batch": 2} for case in training((model,)))


def measure(out: Path, asked: Iterable[Case], end: float, where: str, patience: float, *, launching: bool) -> bool:
    """Append the steps of the cases that the time is enough for; False if it is over."""
    clock: Clock = Launching() if launching else CudaClock() if where == "cuda" else MonotonicClock()
    host, modules, last = Host(where), Modules(where), None
    with (out / "steps.jsonl").open("a") as file:
        for number, case in enumerate(asked):
            if launching and case["model"] != last:
                modules, last = Modules(where), case["model"]  # each comes once: no need to keep them
            if time.monotonic() > end:
                print(f"the time is over before {case}", flush=True)
                return False
            found = list(measured(modules, case, where, host, clock, patience))
            write(file, case | {"launching": launching, "steps": found})
            if where == "cuda" and torch.cuda.memory_reserved() > RESERVED:
                torch.cuda.empty_cache()
            if "error" in found[-1] or number % 20 == 0:
                print(f"{end - time.monotonic():.0f} s left: {case}, {len(found)} steps {found[-1]}", flush=True)
    return True


def asked_again(path: Path) -> Iterator[Case]:
    """The cases of a file, one on a line."""
    yield from map(json.loads, path.read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=350)
    parser.add_argument("--patience", type=float, default=2.5, help="seconds for the steps of a case")
    parser.add_argument("--where", default="cuda", help="torch's device type; cpu to try the script out")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--parts", nargs="*", help="only these, in this order")
    parser.add_argument("--cases", type=Path, help="only these cases, one on a line of this file")
    parser.add_argument("--decoder", help="only this language model")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    print(card(given.where), torch.__version__, flush=True)
    known = {"cases": asked_again(given.cases)} if given.cases else parts(tuple(given.models))
    if given.decoder:
        known = {"decoder": decoding(given.decoder)}
    for name in given.parts or known:
        print(f"{name}: {end - time.monotonic():.0f} s left", flush=True)
        if name == "decoders":
            for model in DECODERS:
                words: list[Any] = [sys.executable, __file__, given.out, "--seconds", end - time.monotonic()]
                subprocess.run([*map(str, words), "--where", given.where, "--decoder", model], check=False)
        elif not measure(given.out, known[name], end, given.where, given.patience, launching=name.startswith("fitted")):
            break


if __name__ == "__main__":
    main()
