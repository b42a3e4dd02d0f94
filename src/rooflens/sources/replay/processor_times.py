"""Times the calls of a processor's suite, all in turn and again: the least time of each, since others only disturb."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from rooflens.predict.fitting import TimedCall
from rooflens.predict.suite import SuiteCall
from rooflens.progress import Progress
from rooflens.sources.replay.operands import Runner, Untimed, runner

EACH = 8e-3
"""Seconds of a call in a pass, about."""
PASSES = 3
"""At least: a busy second hits neighbours, and not the same call again."""


def processor_times(
    calls: Sequence[SuiteCall],
    seconds: float,
    progress: Progress | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> list[TimedCall]:
    """Return the least seconds of each call, of passes over all of them until the seconds are over."""
    with torch.no_grad():
        ready = list(_ready(calls))
        least = dict.fromkeys(range(len(ready)), float("inf"))
        end, passes = now() + seconds, 0
        while passes < PASSES or now() < end:
            for number, (item, run) in enumerate(ready):
                if progress is not None:
                    progress(number / len(ready), f"suite: {item.effect}")
                least[number] = min(least[number], *_several(run, now))
            passes += 1
    return [TimedCall(item, least[number]) for number, (item, _) in enumerate(ready)]


def _ready(calls: Iterable[SuiteCall]) -> Iterator[tuple[SuiteCall, Runner]]:
    for item in calls:
        try:
            run = runner(item.call, "cpu")
            run()  # the first time is slow
        except (Untimed, RuntimeError, TypeError):
            continue  # this version of torch has no such call here
        yield item, run


def _several(run: Runner, now: Callable[[], float]) -> Iterator[float]:
    end = now() + EACH
    while True:
        begun = now()
        run()
        yield now() - begun
        if now() >= end:
            return
