"""Measure the cost of rl.region per iteration, around a loop that does nothing, in microseconds of the host.

    python benchmarks/region_cost.py

Prints one line per way to use it, with its states: skipping, timing, done. On a machine with a GPU it shows timing
there too, where each mark is also an event. The bare loop is subtracted. Each number is the best of several repeats,
because other work of the machine only adds time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch

import rooflens as rl

REPEATS = 7
NEVER = 10**9
STATES = {
    "skipping": {"skip": NEVER},
    "timing": {"skip": 0, "iterations": NEVER},
    "done": {"skip": 0, "iterations": 1},
}
ITEM = torch.zeros(8, 1), torch.zeros(8)


def over(n: int, **words: Any) -> Callable[[], None]:
    region = rl.region("over a loader", **words)

    def loop() -> None:
        for _ in region.over(repeat(ITEM, n)):
            pass

    return loop


def block(n: int, **words: Any) -> Callable[[], None]:
    region = rl.region("a block", **words)

    def loop() -> None:
        for _ in repeat(ITEM, n):
            with region:
                pass

    return loop


def made_inside(n: int, **words: Any) -> Callable[[], None]:
    def loop() -> None:
        for _ in repeat(ITEM, n):
            with rl.region("made inside the loop", **words):
                pass

    return loop


def function(n: int, **words: Any) -> Callable[[], None]:
    @rl.region("a function", **words)
    def step() -> None:
        pass

    def loop() -> None:
        for _ in repeat(ITEM, n):
            step()

    return loop


def with_a_part(n: int, **words: Any) -> Callable[[], None]:
    region = rl.region("over a loader, with a part", **words)

    def loop() -> None:
        for _ in region.over(repeat(ITEM, n)):
            with rl.region("forward", device=words.get("device")):
                pass

    return loop


def bare(n: int) -> Callable[[], None]:
    def loop() -> None:
        for _ in repeat(ITEM, n):
            pass

    return loop


USES = (over, block, made_inside, function, with_a_part)
WAYS = [(use, state, "cpu") for use in USES for state in STATES]
if torch.cuda.is_available():
    WAYS += [(use, "timing", "cuda") for use in USES]


def seconds(loop: Callable[[], None]) -> float:
    begun = time.perf_counter()
    loop()
    return time.perf_counter() - begun


def main(iterations: int = 2000) -> None:
    nothing = min(seconds(bare(iterations)) for _ in range(REPEATS))
    print(f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}, per iteration of a loop")
    for use, state, device in WAYS:
        loop = use(iterations, device=device, **STATES[state])
        seconds(loop)  # what is done once is done: looking at the machine, and timing one iteration where that is all
        best = min(seconds(loop) for _ in range(REPEATS))
        cost = max(0.0, best - nothing) / iterations
        print(f"{use.__name__.replace('_', ' '):14} {device:5} {state:9} {1e6 * cost:8.2f} us")


if __name__ == "__main__":
    main()
