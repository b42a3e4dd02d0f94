"""Pins threads to a core each for a run, and frees them afterwards."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

TASKS = Path("/proc/self/task")
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_WORKOUTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinning:
    """How threads run: the cores that they are pinned to (none: not pinned), and a text that says so."""

    threads: int
    cores: tuple[int, ...]
    text: str


@contextmanager
def pinned(where: str) -> Iterator[Pinning]:
    """Pin torch's threads to a core each while the block runs, as many as torch is set to use."""
    threads = torch.get_num_threads()
    if where != "cpu":
        yield Pinning(threads=threads, cores=(), text=f"{threads} threads")
        return
    if not hasattr(os, "sched_setaffinity") or not TASKS.is_dir():
        yield _free(threads, "this system has no call for it")
        return
    cores = spread(sorted(os.sched_getaffinity(0)))[:threads]
    workers = _workers(threads)
    if min(len(cores), len(workers)) < threads:
        yield _free(threads, f"{len(cores)} cores for them, {len(workers)} threads found at work")
        return
    before = {worker: os.sched_getaffinity(worker) for worker in workers}
    try:
        for worker, core in zip(workers, cores, strict=True):
            os.sched_setaffinity(worker, {core})
        yield Pinning(threads=threads, cores=tuple(cores), text=f"{threads} threads, each pinned to a core")
    finally:
        for worker, allowed in before.items():
            with suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(worker, allowed)


def _free(threads: int, reason: str) -> Pinning:
    return Pinning(threads=threads, cores=(), text=f"{threads} threads, not pinned: {reason}")


def spread(cpus: Sequence[int]) -> list[int]:
    """The CPUs, one of each physical core first, so that a few threads share no core."""
    turn: dict[int, int] = {}
    used: dict[str, int] = {}
    for cpu in cpus:
        path = Path(SIBLINGS.format(cpu))
        core = path.read_text().strip() if path.exists() else str(cpu)
        turn[cpu] = used[core] = used.get(core, -1) + 1
    return sorted(cpus, key=lambda cpu: (turn[cpu], cpu))


def _workers(threads: int) -> list[int]:
    """This thread and those that work for it: the ones whose CPU time grows most while torch runs in parallel."""
    mine = threading.get_native_id()
    x = torch.empty(1 << 22)
    x.fill_(0.5)
    before = _times()
    for _ in range(_WORKOUTS):
        x.mul_(1.5).add_(0.5).clamp_(max=2.0)
    grown = {task: spent - before[task] for task, spent in _times().items() if task in before and task != mine}
    busy = [task for task, gain in grown.items() if gain > 0]
    return [mine, *sorted(busy, key=lambda task: -grown[task])[: threads - 1]]


def _times() -> dict[int, int]:
    """CPU time of each thread in ns; empty where the kernel does not count it."""
    times: dict[int, int] = {}
    for task in TASKS.iterdir():
        with suppress(OSError):  # the thread has ended, or the kernel keeps no such file
            times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return times
