"""The step of a program: calls that repeat another are left out, and take its counts; one process of several counts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.api import counting as api
from rooflens.machine import Machine
from rooflens.records import AS_IS, Case
from rooflens.results import RecordSet
from rooflens.running import counting
from rooflens.running.attributing import EQUAL
from rooflens.running.counted_programs import program_records
from rooflens.sources import counters
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.ncu import NcuRun, Tool, collecting
from rooflens.sources.counters.nvtx import place_of
from rooflens.sources.profile import profiled_step
from rooflens.sources.profile.calls import FirstCalls
from rooflens.sources.profile.launches import PlacedCall, ProgramCalls
from rooflens.sources.profile.marking import ModuleRanges, nvtx_range
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
    repeated = [its for its in calls.placed if its.first != its.call]
    places = [(its.path, its.phase) for its in repeated if its.phase is not None]
    assert ("1", "forward") in places
    assert ("0", "backward") in places
    assert ("1", "backward") not in places
    assert all(its.first < its.call for its in repeated)
    assert told == [False, True] * len(repeated)
    assert {(its.path, its.phase) for its in calls.placed} >= {("0", "forward"), ("1", "backward")}


def test_a_call_that_is_counted_has_its_place_too() -> None:
    """Of two equal layers the first counts in forward and the second in backward; the optimizer's calls are its own."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    update = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    ranges = ModuleRanges(model)
    ranges.enter("(loop)")
    names: list[str] = []

    class Named(FirstCalls):
        def see(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            names.append(str(operation))
            super().see(operation, args, kwargs)

    with ranges.followed(), Named(lambda _: None, ranges.place) as calls:
        model(torch.ones(2, 4, requires_grad=True)).square().sum().backward()
        update.step()
    places = {(name, its.path, its.phase) for name, its in zip(names, calls.placed, strict=True)}
    mm = "aten.mm.default"
    assert {(mm, "0", "forward"), (mm, "1", "forward"), (mm, "0", "backward"), (mm, "1", "backward")} < places
    assert {its for its in places if its[0] == "aten.sum.default"} == {("aten.sum.default", "(loop)", "forward")}
    assert {phase for _, path, phase in places if path == "(loop)"} == {"forward", "backward"}
    assert {phase for _, path, phase in places if path == "(optimizer)"} == {"optimizer"}


def test_ranges_for_ncu_hold_what_runs_in_them_under_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pop ends what was pushed last, and torch has a range of its own around each that begins in the profiler."""
    stack: list[str] = []
    seen: list[list[str]] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", stack.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", stack.pop)
    model = nn.Sequential(nn.ReLU())
    ranges = ModuleRanges(model, nvtx_range)

    def place() -> tuple[None, None]:
        seen.append([*stack])
        return None, None

    with ranges.followed(), FirstCalls(lambda _: None, place):
        torch.ones(1)
        model(torch.ones(2))
        torch.ones(3)
    assert seen == [[], [], ["rooflens:module:", "rooflens:module:0"], []]


def test_a_detour_through_python_is_no_place() -> None:
    inner = place_of(("rooflens:module:0", "PythonDispatchMode", "rooflens:call:0", "aten::mm"))
    assert (inner.path, inner.phase, inner.operation) == ("0", "forward", "mm")
    lost = place_of(("PythonDispatchMode", "rooflens:call:0", "aten::mm"))
    assert (lost.path, lost.phase, lost.operation) == (None, None, "mm")
    assert place_of(("loss", "PythonSubclass", "aten::mul")).path == "loss"


def test_no_call_is_left_out_where_each_is_asked_for() -> None:
    told: list[bool] = []
    with FirstCalls(told.append, lambda: (None, None), every=True) as calls:
        for _ in range(3):
            torch.ones(2)
    assert [its.first for its in calls.placed] == [0, 1, 2]
    assert told == []


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
        calls=(
            PlacedCall(call=0, first=0, path=None, phase=None),
            PlacedCall(call=1, first=0, path="l2", phase="forward"),
            PlacedCall(call=3, first=9, path=None, phase=None),  # it launched nothing
            PlacedCall(call=4, first=2, path=None, phase="backward"),
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
    def once(module: object, told: Any, every: bool) -> Iterator[None]:
        begun.append(1)
        yield
        told((PlacedCall(call=1, first=0, path="a", phase=None),))

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
        assert told == ProgramCalls(calls=(PlacedCall(call=1, first=0, path="a", phase=None),), processes=4)
        assert json.loads((tmp_path / "calls.json").read_text())["processes"] == 4


NCU = """
import json, os, pathlib, signal, subprocess, sys, time

report, metrics, program = pathlib.Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
rows = [["ID", "Process ID", "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
         "Kernel Name", "Device", "CC", *metrics], [""] * 6]
units = {"per_second": "hz", "time": "ns", "bytes": "byte"}
rows[1] += [next((unit for part, unit in units.items() if part in name), "") for name in metrics]

def write(*_):
    quoted = (",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
    report.write_text("\\n".join(quoted) + "\\n")
    os._exit(130 if _ else 0)

signal.signal(signal.SIGINT, write)
with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as run:
    for line in run.stdout:  # what was launched between the marks: process, kernel, ranges
        process, kernel, *ranges = line.split()
        cell = process + "".join(f'  "<default domain>:{its}:none:none:none:none:none:none"' for its in ranges) + " "
        rows.append([str(len(rows)), process, cell, kernel, "0", "9.0", *("1000" for _ in metrics)])
        print(f'==PROF== Profiling "{kernel}" - {len(rows)}: 0%....50%....100% - 1 pass', flush=True)
write()
"""
STEP = """
import json, os, sys, time

calls = [("gemm", "rooflens:phase:forward", "rooflens:module:0", "rooflens:call:0"),
         ("relu", "rooflens:phase:forward", "rooflens:module:1", "rooflens:call:1")]
how = os.environ.get("ROOFLENS_COUNTERS", "")
told = how.removeprefix("every:")
if how:  # a mode sees the calls: ranges of the program's own profiler are lost
    again = [("gemm", "rooflens:call:2")] if told != how else []
    calls = [(kernel, "PythonDispatchMode", call) for kernel, *_, call in [*calls, *again]]
if os.environ.get("LOCAL_RANK", "0") == "0" or not how:
    for kernel, *ranges in calls:
        print(os.getpid(), kernel, *ranges, flush=True)
    if how:
        first = [0, 1, 2 if told != how else 0]
        placed = [{"call": n, "first": first[n], "path": str(n), "phase": "forward"} for n in range(3)]
        open(told, "w").write(json.dumps({"calls": placed, "processes": int(os.environ.get("WORLD_SIZE", "1"))}))
"""
RANKS = """
import os, subprocess, sys

for rank in ("1", "0"):
    subprocess.run([sys.executable, sys.argv[1]], env=os.environ | {"LOCAL_RANK": rank, "WORLD_SIZE": "2"}, check=True)
"""


class PlayedTool(Tool):
    """An ncu that runs the program, which prints what it launches."""

    def command(self, metrics: Any, report: Path, *, cache: str, program: Any, several: bool = False) -> list[str]:
        assert several  # kernels of NCCL are left out
        return [sys.executable, self.path, str(report), ",".join(metrics), *program]


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RecordSet]:
    """Counts a program under a played ncu, through the public function."""
    for name, text in (
        ("ncu.py", NCU),
        ("step.py", STEP),
        ("marks.py", STEP.replace("ROOFLENS_COUNTERS", "NONE")),
        ("ranks.py", RANKS),
        ("endless.py", STEP + "open(sys.argv[0] + '.told', 'w').close()\ntime.sleep(60)\n"),
    ):
        (tmp_path / name).write_text(text)
    tool = PlayedTool(path=str(tmp_path / "ncu.py"), version="1", options=frozenset())
    card = Machine(
        where="cuda", title="H200", cards=("GPU-1",), known=None, stored=tmp_path, device=rl.device("h200-sxm-141gb")
    )
    monkeypatch.setattr(counting.ncu, "find", lambda: tool)
    monkeypatch.setattr(counting.ncu, "capability", lambda: "9.0")
    monkeypatch.setattr(api, "this_machine", lambda *_: card)
    monkeypatch.setattr(PlayedTool, "printed", lambda _, report: nullcontext(iter(report.read_text().splitlines(True))))

    def run(*program: str, **options: Any) -> RecordSet:
        words = [sys.executable, *(str(tmp_path / name) for name in program)]
        return rl.count_program(words, keep=tmp_path / "kept", **options)

    return run


def test_a_program_with_a_region_is_counted_from_end_to_end(count: Callable[..., RecordSet], tmp_path: Path) -> None:
    """Two launches are counted, 1000 + 1000 bytes read and as many written; a third takes the counts of the first."""
    found = count("step.py")
    assert [(r.name, r.path, r.phase) for r in found] == [
        ("gemm", "0", "forward"),
        ("relu", "1", "forward"),
        ("gemm", "2", "forward"),
    ]
    assert found.total("forward").bytes["dram"] == 3 * 2000
    assert any(note.startswith("2 launches were counted for 3") for note in found.notes)
    assert not any("processes" in note or "partial" in note for note in found.notes)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["step-bnone-as-is-inference.ncu-rep"]


def test_of_ranks_the_first_is_counted_or_shown_and_said(count: Callable[..., RecordSet], tmp_path: Path) -> None:
    found = count("ranks.py", "step.py")
    assert [r.path for r in found] == ["0", "1", "2"]
    assert any(note.startswith("one of 2 processes was counted") for note in found.notes)
    marks = count("ranks.py", "marks.py", every=True)  # all ranks mark their step
    assert [r.path for r in marks] == ["0", "1"]
    assert any(note.startswith("2 processes marked a step") for note in marks.notes)


def test_where_each_call_counts_places_are_the_same(count: Callable[..., RecordSet]) -> None:
    once, every = count("step.py"), count("ranks.py", "step.py", every=True)
    assert [(r.name, r.path, r.phase) for r in every] == [(r.name, r.path, r.phase) for r in once]
    assert not any(EQUAL in r.notes for r in every)
    assert not any("were counted for" in note for note in every.notes)
    assert any(note.startswith("one of 2 processes was counted") for note in every.notes)


def test_a_program_that_its_limit_cuts_off_keeps_what_was_counted(
    count: Callable[..., RecordSet], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program lives on and holds the output open, as workers of a launcher do: nobody waits for it."""
    followed = NcuRun.followed

    def until_all_is_launched(run: NcuRun, report: Path, *, limit: float, **others: Any) -> Any:
        while not (tmp_path / "endless.py.told").exists():
            time.sleep(0.01)
        return followed(run, report, limit=0.1, **others)

    monkeypatch.setattr(NcuRun, "followed", until_all_is_launched)
    monkeypatch.setattr(collecting, "DRAIN_SECONDS", 0.1)
    found = count("endless.py")
    assert found.total().bytes["dram"] == 3 * 2000
    assert any(note.startswith("partial: 2 launches were counted (the time limit was over)") for note in found.notes)
