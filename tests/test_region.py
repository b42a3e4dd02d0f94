"""rl.region: what it times around a loader, a block and a function, by clocks that the test turns."""

from __future__ import annotations

import copy
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.region_clock import LOADING, STEP, World, loader, nothing_is_left_open, run, samples, turned_world
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.regions import laps as source
from rooflens.regions.loop import OWN

__all__ = ["nothing_is_left_open", "turned_world"]  # fixtures


def test_data_loading_is_told_from_the_step(world: World) -> None:
    region = rl.region("train step", skip=2, iterations=3)
    run(region, world, 9)
    assert samples(region, "train step") == (3, 3, 3)
    assert samples(region, "data loading") == (2, 2, 2)
    assert samples(region, "iteration") == (5, 5, 5)
    pace = region.pace
    assert pace is not None
    # Three iterations of 2 s + 3 s and 4 samples each.
    assert (pace.iterations, pace.seconds, pace.loading, pace.idle) == (3, 15, 6, None)
    assert pace.loading_share == 6 / 15
    assert pace.samples_per_second == 12 / 15


def test_the_first_iterations_are_skipped_and_the_last_are_free(world: World) -> None:
    region = rl.region("train step", skip=2, iterations=3)
    seen = []
    for n, item in enumerate(region.over(loader(world, 9))):
        world.now += 100.0 if n < 2 else STEP
        seen.append((n, len(item), world.marks + world.starts))
    assert samples(region, "train step") == (3, 3, 3)
    # The first timed iteration begins to wait; each has a mark where its step begins and one where it ends.
    assert seen == [(0, 4, 0), (1, 4, 0), (2, 4, 2), (3, 4, 4), (4, 4, 6), *((n, 4, 7) for n in range(5, 9))]


def test_the_device_is_waited_for_once_before_and_once_after(world: World) -> None:
    region = rl.region("train step", skip=1, iterations=5)
    run(region, world, 9)
    assert (world.starts, world.reads) == (1, 1)
    assert len(region.records) == 3
    assert region.pace is not None
    assert (world.starts, world.reads) == (1, 1), "what was read is kept"


def test_bursts_of_a_loader_count_although_the_median_hides_them(world: World) -> None:
    def bursts() -> Iterator[torch.Tensor]:
        for n in range(8):
            world.now += 8.0 if n % 4 == 0 else 0.0
            yield torch.zeros(4, 2)

    region = rl.region("train step", skip=0, iterations=8)
    for _ in region.over(bursts()):
        world.now += 2.0
    assert samples(region, "data loading") == (8, 0, 0, 0, 8, 0, 0, 0)
    pace = region.pace
    assert pace is not None
    # 2 x 8 s of waiting and 8 x 2 s of steps.
    assert (pace.loading_share, pace.samples_per_second) == (0.5, 1.0)
    said = "data loading: 50.0 % of 32.00 s in 8 iterations; 1.000 samples/s with it"
    assert said in " ".join(rl.table(region.records).split())


def test_several_loops_go_on_counting(world: World) -> None:
    region = rl.region("train step", skip=3, iterations=4)
    for _ in range(3):
        run(region, world, 3)
        world.now += 1000.0  # between loops
    assert samples(region, "iteration") == (5, 5, 5, 5)
    assert region.pace is not None
    assert region.pace.seconds == 20


def test_a_watched_loader_has_a_length(world: World) -> None:
    data = [torch.zeros(4, 2)] * 7
    assert len(rl.region("train step").over(data)) == 7
    with pytest.raises(TypeError):
        len(rl.region("train step").over(loader(world, 3)))


def test_a_watched_loader_is_the_loader_for_everything_else(world: World) -> None:
    class Loader(list[int]):
        dataset = "six images"

    watched = rl.region("train step").over(Loader([1, 2]))
    assert watched.dataset == "six images"
    assert watched
    assert not rl.region("train step").over(Loader())
    assert rl.region("train step").over(n for n in range(3))  # true, as a generator is, although it has no length
    with pytest.raises(AttributeError, match="sampler"):
        _ = watched.sampler
    assert list(copy.copy(watched)) == [1, 2]


def test_breaking_off_drops_the_iteration_and_saves_the_rest(world: World, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    region = rl.region("train step", skip=1, iterations=50, save=path)
    for n, _ in enumerate(region.over(loader(world, 99))):
        world.now += STEP
        if n == 4:
            break
    assert OWN.passes == []
    assert samples(region, "train step") == (3, 3, 3)
    (record,) = rl.read(path).where(name="train step")
    assert "train step: only 3 of 50 iterations were timed" in record.notes
    region._iterations.finish()


def test_an_error_in_the_loop_propagates_and_its_iteration_is_dropped(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=5)

    def epoch(fails_at: int | None) -> None:
        for n, _ in enumerate(region.over(loader(world, 3))):
            world.now += STEP
            if n == fails_at:
                raise ZeroDivisionError("of the loop")

    with pytest.raises(ZeroDivisionError, match="of the loop"):
        epoch(2)
    epoch(None)
    assert samples(region, "train step") == (3,) * 5
    assert "train step: left out: iterations that raised or were left (1)" in region.records.notes


def test_an_error_of_the_loader_propagates(world: World) -> None:
    def broken() -> Iterator[torch.Tensor]:
        yield from loader(world, 3)
        raise OSError("of the disk")

    region = rl.region("train step", skip=0, iterations=5)
    with pytest.raises(OSError, match="of the disk"):
        sum(len(x) for x in region.over(broken()))
    assert samples(region, "iteration") == (2, 2, 2)


def test_a_smaller_last_batch_is_left_out(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=4)
    for _ in range(2):
        for size in (8, 8, 5):
            for _ in region.over(loader(world, 1, size)):
                world.now += STEP
    assert {case.batch for case in region.records.cases} == {8, None}
    assert samples(region, "train step") == (3, 3, 3, 3)
    assert "train step: left out: iterations of another batch (1)" in region.records.notes


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ((torch.zeros(6, 3, 2, 2), torch.zeros(6)), 6),
        ({"weights": torch.tensor(1.0), "tokens": torch.zeros(5, 7)}, 5),
        ([3, "text"], None),
        (None, None),
    ],
)
def test_the_batch_is_what_the_loader_gives(item: Any, expected: int | None) -> None:
    assert source.samples_in(item) == expected


def test_the_watch_keeps_no_item_alive(world: World) -> None:
    region = rl.region("train step", skip=1, iterations=2)
    items = region.over(loader(world, 9)).__iter__()
    for _ in range(5):
        item = next(items)
        gone = weakref.ref(item)
        del item
        assert gone() is None
    items.close()  # type: ignore[attr-defined]


def test_the_batch_can_be_said(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=2, batch=16)
    for _ in region.over(range(3)):
        world.now += STEP
    assert region.records.cases[0].batch == 16
    assert region.pace is not None
    assert region.pace.samples_per_second == 32 / 6


def test_each_entry_of_a_block_is_one_iteration(world: World) -> None:
    region = rl.region("train step", skip=2, iterations=3)
    for n in range(9):
        world.now += LOADING
        with region as entered:
            world.now += n
        assert entered is region
    assert samples(region, "train step") == (2, 3, 4)
    assert (world.starts, world.marks) == (1, 5)
    assert region.pace is None
    assert [record.name for record in region.records] == ["train step"]


def test_a_region_made_within_the_loop_is_one_region(world: World) -> None:
    model = nn.Linear(2, 2)
    for n in range(7):
        with rl.region("train step", model=model, skip=2, iterations=3) as region:
            world.now += n
    assert samples(region, "train step") == (2, 3, 4)


def test_a_region_that_was_entered_often_is_not_the_next_ones(world: World) -> None:
    regions = []
    for n in range(3):
        region = rl.region("train step", skip=0, iterations=2)
        for _ in range(2):
            with region:
                world.now += n
        regions.append(region)
    assert [samples(region, "train step") for region in regions] == [(0, 0), (1, 1), (2, 2)]
    assert rl.region("train step").over(()) is not None


@pytest.mark.parametrize("other", [{"skip": 1}, {"iterations": 3}, {"dtype": "bf16"}, {"model": nn.Linear(2, 2)}])
def test_another_request_is_another_region(world: World, other: dict[str, Any]) -> None:
    made = []
    for words in ({}, other):
        with rl.region("train step", **words) as region:
            made.append(region)
    assert made[0] is not made[1]


def test_a_function_is_timed_call_by_call(world: World) -> None:
    region = rl.region("train step", skip=1, iterations=2)

    @region
    def step(seconds: float, *, twice: bool = False) -> str:
        """What it does."""
        world.now += seconds * (2 if twice else 1)
        return "done"

    assert [step(1.0), step(2.0, twice=True), step(3.0), step(5.0)] == ["done"] * 4
    assert (step.__name__, step.__doc__) == ("step", "What it does.")
    assert samples(region, "train step") == (4, 3)


def test_an_error_in_a_block_or_a_function_drops_it(world: World) -> None:
    region = rl.region("train step", skip=1, iterations=2)

    @region
    def step(n: int) -> None:
        world.now += n
        if n in (0, 2):
            raise KeyError(n)

    for n in range(5):
        if n in (0, 2):
            with pytest.raises(KeyError):
                step(n)
        else:
            step(n)
    # The first and the third call raise; of the others the first is skipped.
    assert samples(region, "train step") == (3, 4)


@pytest.mark.parametrize("thing", [3, "step", [1, 2]])
def test_what_cannot_be_called_is_no_function(thing: Any) -> None:
    with pytest.raises(InvalidValue, match=r"is not a function whose calls can be timed; watch a loader"):
        rl.region("train step")(thing)


def test_what_returns_before_it_runs_is_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> None:
        return

    async def asynchronous_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, coroutine, asynchronous_generator):
        with pytest.raises(InvalidValue, match=f"{function.__name__} returns before its body has run"):
            rl.region("train step")(function)
