"""Time that passes when a test says so, for the tests of rl.region."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from rooflens.regions import laps as source
from rooflens.regions.loop import OWN, Region

LOADING, STEP = 2.0, 3.0
"""Seconds that the loader and the step take on the clock of a test: small whole numbers, so that sums are exact."""


class World:
    """Time that passes when a test says so, and how often a clock was asked."""

    now = 0.0
    starts = marks = reads = 0


class Turned:
    """A clock that shows the world's time."""

    name: Any = "monotonic"

    def __init__(self, world: World) -> None:
        self.world, self.moments = world, [0.0]

    def start(self) -> None:
        self.world.starts += 1
        self.moments = [self.world.now]

    def mark(self) -> None:
        self.world.marks += 1
        self.moments.append(self.world.now)

    def seconds(self) -> list[float]:
        self.world.reads += 1
        return [after - before for before, after in zip(self.moments, self.moments[1:], strict=False)]


@pytest.fixture(name="world")
def turned_world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(source, "MonotonicClock", lambda: Turned(world))
    monkeypatch.setattr(source, "where_is", lambda model: "cpu")  # where other tests used a GPU before
    return world


@pytest.fixture(name="nothing_stays_open", autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    gc.freeze()  # what other tests left in memory need not be looked through
    yield
    gc.collect()
    assert OWN.passes == []
    assert _get_current_dispatch_mode_stack() == []


def loader(world: World, n: int, batch: int = 4) -> Iterator[torch.Tensor]:
    for _ in range(n):
        world.now += LOADING
        yield torch.zeros(batch, 2)


def samples(region: Region, name: str) -> tuple[float, ...]:
    (record,) = region.records.where(name=name, source="measure")
    assert record.timing is not None
    return record.timing.samples


def run(region: Region, world: World, n: int) -> None:
    for _ in region.over(loader(world, n)):
        world.now += STEP
