"""The step of a program: calls that repeat another are left out, and take its counts; one process of several counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.records import AS_IS, Case
from rooflens.running.attributing import EQUAL
from rooflens.running.counted_programs import program_records
from rooflens.sources import counters
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.ncu import Tool
from rooflens.sources.profile import profiled_step
from rooflens.sources.profile.calls import FirstCalls
from rooflens.sources.profile.launches import ProgramCalls, RepeatedCall
from rooflens.sources.profile.marking import ModuleRanges
from rooflens.sources.range_names import call_range

CASE = Case(model="train", dtype=AS_IS)


def test_calls_that_repeat_another_are_left_out_with_their_places() -> None:
    """Two equal layers: of the second nothing is recorded, in forward nor in backward but for the input's gradient."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    told: list[bool] = []
    ranges = ModuleRanges(model)
    x = torch.ones(2, 4, requires_grad=True)
    with ranges.followed(), FirstCalls(told.append, ranges.place) as calls:
        model(x).square().sum().backward()
    places = [(its.path, its.phase) for its in calls.repeated if its.phase is not None]
    assert ("1", "forward") in places
    assert ("0", "backward") in places
    assert ("1", "backward") not in places
    assert all(its.first < its.call for its in calls.repeated)
    assert told == [False, True] * len(calls.repeated)


def launch(name: str, *ranges: str, process: str = "1", seconds: float = 1e-6) -> KernelLaunch:
    return KernelLaunch(
        line=len(name),
        key=(process, name),
        name=name,
        cc="9.0",
        ranges=ranges,
        values={"gpu__time_duration.sum": seconds, "dram__bytes.sum": 100},
    )


def test_launches_of_calls_that_were_left_out_take_the_counts_of_the_first() -> None:
    own = [
        launch("a", "rooflens:module:l1", call_range(0)),
        launch("bb", "rooflens:module:l1", call_range(0)),
        launch("ccc"),  # between the calls
        launch("dddd", "rooflens:module:l2", call_range(2)),
    ]
    calls = ProgramCalls(
        repeated=(
            RepeatedCall(call=1, first=0, path="l2", phase="forward"),
            RepeatedCall(call=3, first=9, path=None, phase=None),  # it launched nothing
            RepeatedCall(call=4, first=2, path=None, phase="backward"),
        ),
        processes=8,
    )
    records, notes = program_records(own, counters.CounterReading("x"), CASE, calls)
    assert [(r.name, r.path, r.phase) for r in records] == [
        ("a", "l1", "forward"),
        ("bb", "l1", "forward"),
        ("ccc", "(unattributed)", None),
        ("a", "l2", "forward"),
        ("bb", "l2", "forward"),
        ("dddd", "l2", "forward"),
        ("dddd", "l2", "backward"),
    ]
    assert [EQUAL in r.notes for r in records] == [False, False, False, True, True, False, True]
    assert sum(r.work.bytes["dram"] for r in records if r.work is not None) == 700
    assert notes[0].startswith("one of 8 processes was counted")
    assert notes[1].startswith("4 launches were counted for 7")


def test_of_several_processes_that_marked_a_step_one_is_shown() -> None:
    records, (note,) = program_records(
        [launch("a", process="7"), launch("bb", process="8"), launch("ccc", process="7")],
        counters.CounterReading("x"),
        CASE,
        None,
    )
    assert [r.name for r in records] == ["a", "ccc"]
    assert note == "2 processes marked a step: the launches are those of process 7 alone"


def test_kernels_that_wait_for_other_processes_are_left_out() -> None:
    tool = Tool(path="ncu", version="1", options=frozenset())
    words: list[Any] = [tool.command([], Path("x"), cache="all", program=["p"], several=its) for its in (True, False)]
    assert ["regex:^(?!nccl)" in its for its in words] == [True, False]


@pytest.mark.parametrize(("rank", "marks"), [(None, 1), ("0", 1), ("3", 0)])
def test_a_region_tells_what_it_left_out_and_only_the_first_process_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: str | None, marks: int
) -> None:
    begun: list[int] = []

    @contextmanager
    def once(module: object, told: Any) -> Iterator[None]:
        begun.append(1)
        yield
        told((RepeatedCall(call=1, first=0, path="a", phase=None),))

    monkeypatch.setattr(profiled_step, "marked_once", once)
    monkeypatch.setenv("ROOFLENS_COUNTERS", str(tmp_path / "calls.json"))
    monkeypatch.setenv("WORLD_SIZE", "4")
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    region = rl.region("step", skip=1, iterations=2)
    for _ in range(4):
        with region:
            pass
    assert len(begun) == marks
    if marks:
        told = msgspec.json.decode((tmp_path / "calls.json").read_bytes(), type=ProgramCalls)
        assert told == ProgramCalls(repeated=(RepeatedCall(call=1, first=0, path="a", phase=None),), processes=4)
        assert json.loads((tmp_path / "calls.json").read_text())["processes"] == 4
