"""What rl.region makes of parts, of misuse and of a machine: records, notes, warnings, errors."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.region_clock import Turned, World, loader, nothing_is_left_open, run, samples, turned_world
from torch import nn

import rooflens as rl
from rooflens.errors import InvalidValue, OutputError, UnknownDevice
from rooflens.records import Case
from rooflens.regions import laps as source

__all__ = ["nothing_is_left_open", "turned_world"]  # fixtures


def step_in_parts(world: World) -> None:
    with rl.region("forward"):
        world.now += 1.0
        with rl.region("attention"):
            world.now += 0.5
    world.now += 0.25
    with rl.region("backward"):
        world.now += 1.25


def test_regions_inside_are_parts_of_the_iteration(world: World) -> None:
    region = rl.region("train step", skip=1, iterations=2)
    for _ in region.over(loader(world, 5)):
        step_in_parts(world)
    assert samples(region, "train step") == (3, 3)
    assert samples(region, "forward") == (1.5, 1.5)
    assert samples(region, "forward/attention") == (0.5, 0.5)
    assert samples(region, "backward") == (1.25, 1.25)
    assert world.starts == 1, "parts have no clock of their own, which would wait for the device"


def test_no_total_adds_a_whole_and_its_parts(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=2)
    for _ in region.over(loader(world, 2)):
        step_in_parts(world)
    expected = {
        (): 3.0,
        (("region", "forward"),): 1.5,
        (("region", "forward/attention"),): 0.5,
        (("region", "backward"),): 1.25,
        (("region", "iteration"),): 5.0,
        (("region", "data loading, batch 4"),): 2.0,
    }
    found = {c.options: region.records.where(options=c.options).total().measured_seconds for c in region.records.cases}
    assert found == expected
    # The same loop measured twice is pooled, and not added up.
    twice = region.records + region.records
    from rooflens.results.evidence import join

    assert {item.case.options: item.measured().seconds for item in join(twice)} == expected  # type: ignore[union-attr]


def test_a_part_that_is_entered_several_times_has_as_many_samples(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=2)
    for _ in range(2):
        with region:
            for n in range(3):
                with rl.region("micro batch"):
                    world.now += n
    assert samples(region, "micro batch") == (0, 1, 2, 0, 1, 2)


def test_parts_of_a_dropped_iteration_are_dropped_and_so_is_a_part_that_raised(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=2)
    for n in range(3):
        try:
            with region:
                with pytest.raises(KeyError), rl.region("tried"):
                    raise KeyError(n)
                with rl.region("forward"):
                    world.now += n
                if n == 1:
                    raise ValueError
        except ValueError:
            assert n == 1
    assert samples(region, "forward") == (0, 2)
    assert len(region.records.where(name="tried")) == 0


def test_parts_are_no_regions_of_their_own_when_the_loop_is_free(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=1)
    for _ in region.over(loader(world, 20)):
        with rl.region("forward") as part:
            world.now += 1.0
    assert samples(region, "forward") == (1.0,)
    assert world.starts == 1
    with pytest.raises(InvalidValue, match="'forward' has timed nothing"):
        part.records  # noqa: B018


def test_a_part_cannot_have_wishes_of_its_own(world: World) -> None:
    with rl.region("train step", skip=0):
        message = "'forward' is entered inside 'train step' and timed with it; leave out skip, batch"
        with pytest.raises(InvalidValue, match=message), rl.region("forward", skip=3, batch=2):
            pass
        message = "'iteration' is the name of a part that every loop has"
        with pytest.raises(InvalidValue, match=message), rl.region("iteration"):
            pass


def test_the_step_of_a_model_is_a_whole_wherever_it_stands(world: World) -> None:
    model = nn.Linear(2, 2).eval()
    inside = rl.region("validation", model=model, skip=0, iterations=2)
    region = rl.region("train step", skip=0, iterations=1)
    for _ in region.over(loader(world, 1)):
        for _ in inside.over(loader(world, 2)):
            world.now += 1.0
    assert samples(region, "train step") == (6.0,)
    assert samples(inside, "validation") == (1.0, 1.0)
    assert inside.records.cases[0].mode == "inference"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"name": " "}, "cannot be called"),
        ({"skip": -1}, "skip is -1; it has to be a whole number of at least 0"),
        ({"iterations": 0}, "iterations is 0"),
        ({"iterations": 2.5}, "iterations is 2.5"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": "16"}, "batch is '16'; it has to be a whole number"),
        ({"model": "resnet18"}, "the model of a region is 'resnet18'"),
        ({"trace": 3}, "the model of a region is 3"),
        ({"roof": 3}, "roof is 3; give a name, a device file, or a Device"),
        ({"dtype": "fp31"}, "unknown dtype 'fp31'"),
        ({"mode": "training"}, "unknown mode 'training'"),
        ({"device": "tpu"}, "cannot measure on 'tpu'"),
        ({"model": nn.Linear(1, 1), "trace": nn.Linear(1, 1)}, "two different modules"),
    ],
)
def test_a_wrong_argument_is_an_error_before_the_loop(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        rl.region(**({"name": "train step"} | words))


def test_a_file_that_cannot_be_written_is_an_error_before_the_loop(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        rl.region("train step", save=tmp_path / "file" / "run.jsonl")
    with pytest.raises(UnknownDevice):
        rl.region("train step", roof="h1000")


def test_too_few_iterations_are_said(world: World, tmp_path: Path) -> None:
    region = rl.region("train step", skip=10, save=tmp_path / "run.jsonl")
    run(region, world, 4)
    with pytest.raises(InvalidValue, match=r"timed nothing: 4 iterations ended, and 10 are skipped.*smaller skip"):
        region.report()
    with pytest.warns(UserWarning, match="timed nothing: 4 iterations ended, 10 are skipped"):
        region._iterations._at_exit()
    import atexit

    atexit.unregister(region._iterations._at_exit)
    assert not (tmp_path / "run.jsonl").exists()


def test_a_second_thread_is_an_error_and_does_not_spoil_the_first(world: World) -> None:
    region = rl.region("train step", skip=0, iterations=2)
    errors: list[BaseException] = []

    def other(enter: Callable[[], object]) -> None:
        try:
            enter()
        except InvalidValue as error:
            errors.append(error)

    with region:
        world.now += 1.0
        for enter in (region.__enter__, lambda: list(region.over([1]))):
            thread = threading.Thread(target=other, args=(enter,))
            thread.start()
            thread.join()
    assert len(errors) == 2
    assert all("entered from a second thread" in str(error) for error in errors)
    assert samples(region, "train step") == (1.0,)


def test_an_iteration_within_an_iteration_is_an_error(world: World) -> None:
    region = rl.region("train step", model=nn.Linear(1, 1), skip=0, iterations=2)
    for _ in region.over(loader(world, 1)):
        world.now += 1.0
        with pytest.raises(InvalidValue, match="entered while an iteration of it runs"), region:
            pass
    assert samples(region, "train step") == (1.0,)


def test_a_function_that_calls_itself_is_an_iteration_within_an_iteration(world: World) -> None:
    region = rl.region("step", skip=0, iterations=1)

    @region
    def step(depth: int) -> None:
        world.now += 1.0
        if depth:
            step(depth - 1)

    with pytest.raises(InvalidValue, match="'step' is entered while an iteration of it runs"):
        step(1)
    step(0)
    assert samples(region, "step") == (1.0,)


def test_the_records_are_those_of_the_format(world: World, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    region = rl.region("train step", model=nn.Linear(2, 2), skip=1, iterations=6, save=path, dtype="amp-bf16")
    run(region, world, 7)
    read = rl.read(path)
    assert list(read) == list(region.records)
    step, iteration, loading = read
    machine = step.case.device
    assert step.case == Case(model="Linear", device=machine, batch=4, dtype="amp-bf16", mode="train")
    assert (step.source, step.scope, step.phase, step.calls) == ("measure", "model", None, 1)
    assert iteration.case.options == (("region", "iteration"),)
    assert (loading.case.batch, loading.case.options) == (None, (("region", "data loading, batch 4"),))
    assert step.memory is not None
    assert step.memory.peak is None, "on a processor nobody counts what is allocated"
    assert step.conditions is not None
    assert read.environment is not None
    assert "torch" in read.environment.versions
    lines = [" ".join(line.split()) for line in rl.table(read, width=200).splitlines()]
    # 4 samples in 3 s, and with data loading in 5 s. Waiting has no throughput.
    for line in ("4 - 3.000 s 0 % 1.333", "4 region=iteration 5.000 s 0 % 0.8"):
        assert line in lines
    assert "- region=data loading, batch 4 2.000 s 0 % -" in lines
    assert "batch 4: data loading: 40.0 % of 30.00 s in 6 iterations; 0.8 samples/s with it" in lines


def test_the_table_is_shown_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    region = rl.region("train step", skip=0, iterations=2, show=True)
    run(region, world, 5)
    shown = capsys.readouterr().out
    assert shown == f"{region.report()}\n"
    run(region, world, 5)
    assert capsys.readouterr().out == ""


def test_switches_are_recorded_and_never_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    for allowed in (True, False):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        region = rl.region("train step", trace=nn.Linear(2, 2), skip=0, iterations=1, dtype="fp32")
        run(region, world, 3)
        assert torch.backends.cudnn.allow_tf32 is allowed
        assert region.records.environment is not None
        assert region.records.environment.flags["cudnn may use TF32"] is allowed
        assert region.records.environment.flags["cudnn benchmark"] is True


def test_only_the_first_rank_writes(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for rank in (0, 1):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        path = tmp_path / f"{rank}.jsonl"
        region = rl.region("train step", skip=0, iterations=1, save=path)
        run(region, world, 2)
        assert path.exists() is (rank == 0)
        assert len(region.records) == 3


def test_what_cannot_be_told_is_a_warning_and_never_ends_the_loop(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    region = rl.region("train step", skip=0, iterations=1, save=folder / "run.jsonl")
    folder.rmdir()
    folder.touch()
    with pytest.warns(UserWarning, match="could not save or show its records: cannot write"):
        run(region, world, 3)


def test_a_model_says_where_it_is() -> None:
    assert source.where_is(nn.Linear(2, 2)) == "cpu"
    assert source.where_is(nn.Linear(2, 2, device="meta")) == "meta"


def test_a_device_that_cannot_be_timed_is_an_error() -> None:
    model = nn.Linear(2, 2, device="meta")
    region = rl.region("train step", model=model, skip=0)
    with pytest.raises(InvalidValue, match="cannot measure on 'meta'"):
        list(region.over([1, 2]))


def test_a_region_keeps_no_model_alive(world: World) -> None:
    model = nn.Linear(2, 2)
    region = rl.region("train step", trace=model, skip=0, iterations=2)
    run(region, world, 5)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert region.records.cases[0].model == "Linear"

    region = rl.region("train step", trace=nn.Linear(2, 2), skip=0, iterations=2)
    run(region, world, 5)
    assert "train step: the work was not counted: the model was gone" in region.records.notes


def test_on_a_device_the_step_has_the_devices_time_and_the_loop_that_of_the_host() -> None:
    host, device = World(), World()
    tape = source.Tape(Turned(host), Turned(device))
    marks = [tape.start()]
    # The host waits 1 s for data, launches for 0.5 s, and is ahead: the device is idle for 0.25 s and works for 4 s.
    for _ in range(2):
        for on_host, on_device in ((1.0, 0.25), (0.5, 4.0)):
            host.now += on_host
            device.now += on_device
            marks.append(tape.mark())
    laps = [source.Lap(waits=marks[n], begins=marks[n + 1], ends=marks[n + 2], batch=8) for n in (0, 2)]
    hosts, devices = tape.read()
    times = source.LoopTimes(name="step", case=Case(model="m", batch=8), laps=laps, host=hosts, device=devices)
    step, iteration, loading = (record.timing for record in source.records(times))
    assert step is not None
    assert iteration is not None
    assert loading is not None
    assert (step.samples, iteration.samples, loading.samples) == ((4.0, 4.0), (1.5, 1.5), (1.0, 1.0))
    pace = times.pace
    assert pace is not None
    # The loop is over when the device is: 2 x 4.25 s.
    assert (pace.seconds, pace.idle, pace.samples_per_second) == (8.5, 0.5, 16 / 8.5)
    assert "6 % of the device's time lies between steps" in str(pace)
