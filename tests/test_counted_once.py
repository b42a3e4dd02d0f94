"""Launches that do the same are counted once: which they are, in which windows, and who takes their counts."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from tests.test_counters_joined import counted, launched
from torch import nn

import rooflens as rl
from rooflens.machine import Machine
from rooflens.records import Failure, Record, RecordFile, write_records
from rooflens.results import RecordSet
from rooflens.running import counted_start, counted_step, profiling, waiting_runs
from rooflens.running.attributing import EQUAL, REPLAYED, UNREACHED, spread
from rooflens.running.counted_step import plan_of
from rooflens.running.counting import Counter
from rooflens.running.jobs import Count, Done, Profiled, Warmed
from rooflens.running.observations import CountingPlan, every_launch, planned, standing
from rooflens.runs.run import Run
from rooflens.sources.counters import short
from rooflens.sources.counters.ncu import NcuRun, Tool
from rooflens.sources.profile import profiled_step
from rooflens.sources.profile.calls import Calls, CallWindows, NumberedCalls
from rooflens.sources.profile.events import DeviceActivity, Events, HostOperation, LaunchCall, NamedRange
from rooflens.sources.profile.launches import CalledLaunch, Round, called_launches
from rooflens.sources.range_names import call_of, call_range


def groups_of(*calls: Any) -> list[int | None]:
    numbered = NumberedCalls()
    with torch.no_grad(), numbered:
        for call in calls:
            call()
    return numbered.groups


def test_calls_with_equal_operands_are_of_one_group() -> None:
    a, b, wide = torch.ones(4, 4), torch.zeros(4, 4), torch.ones(4, 8)
    same = groups_of(lambda: torch.mm(a, b), lambda: torch.mm(b, b), lambda: torch.mm(a, wide), lambda: torch.add(a, b))
    assert same == [0, 0, 1, 2]
    layouts = groups_of(lambda: torch.mm(a, b.t()), lambda: torch.mm(a, b))
    assert len({*layouts[-2:]}) == 2  # before the first product there is the call that transposes
    assert groups_of(lambda: a * 2, lambda: a * 2.0, lambda: a.double() * 2, lambda: a * 3)[::1] == [0, 1, 2, 3, 4]
    lists = groups_of(lambda: torch._foreach_add([a, b], 1.0), lambda: torch._foreach_add([b, a], 1.0))
    assert lists == [0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x.index_add(0, i, x),
        lambda x, i: x.scatter(0, i[:, None], x),
        lambda x, i: nn.functional.embedding(i, x),
        lambda x, i: x.sort(),
        lambda x, i: x.topk(2),
        lambda x, i: x.nonzero(),
        lambda x, i: torch.sparse.mm(x.to_sparse_coo(), x),
        lambda x, i: x.masked_select(x > 0),
    ],
)
def test_where_values_decide_the_work_a_call_stands_for_itself(call: Any) -> None:
    x, i = torch.randn(4, 4), torch.arange(4)
    assert None in groups_of(lambda: call(x, i))


def test_backward_and_the_optimizer_are_numbered_too_and_equal_layers_are_one() -> None:
    """Three equal layers: of 8 products (forward, and backward without the gradient of the input) 3 are distinct."""
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(3)))
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    names: list[str] = []

    class Named(NumberedCalls):
        def see(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            names.append(str(operation))
            super().see(operation, args, kwargs)

    numbered = Named()
    with numbered:
        model(torch.ones(2, 8)).square().sum().backward()
        update.step()
    products = [group for name, group in zip(names, numbered.groups, strict=True) if name == "aten.mm.default"]
    assert len(products) == 3 + 3 + 2
    assert len(set(products)) == 3
    assert any("_foreach" in name or "add_" in name for name in names)


def test_ranges_compute_nothing_and_have_no_number() -> None:
    seen = Calls(lambda _: nullcontext())
    with seen:
        with torch.profiler.record_function("mine"):
            torch.ones(1)
        torch.ones(1)
    assert seen.begun == 2


def test_windows_open_during_and_after_the_calls_that_are_asked_for() -> None:
    told: list[object] = []
    windows = CallWindows(frozenset({1, 2}), frozenset({-1, 3}), told.append)
    with windows.over_step():
        for n in range(5):
            told.append(f"launch {n}?")
            torch.ones(1)
    # Open before the first; from the second to the end of the third; after the fourth, until the fifth begins.
    assert told == [True, "launch 0?", False, "launch 1?", True, False, "launch 2?", True, False, "launch 3?", True, "launch 4?", False]  # fmt: skip  # noqa: E501
    with pytest.raises(KeyError), windows.over_step():
        raise KeyError
    assert told[-2:] == [True, False]


def test_kernels_belong_to_the_call_that_launched_them() -> None:
    """Two calls on two threads, and a kernel between them that no call launched."""

    def kernel(number: int) -> DeviceActivity:
        return DeviceActivity(
            name=f"k{number}",
            kind="kernel",
            start=10.0 - number,
            seconds=1,
            correlation=number,
            shape=(1, 1, 1, 32, 1, 1),
        )

    def launch(number: int, start: float, thread: int = 0) -> LaunchCall:
        return LaunchCall(name="cudaLaunchKernel", start=start, seconds=0.1, thread=thread, correlation=number)

    events = Events(
        ranges=(
            NamedRange(name="rooflens:phase:forward", start=1, seconds=9, thread=0),
            NamedRange(name=call_range(0), start=2, seconds=1, thread=0),
            NamedRange(name=call_range(1), start=5, seconds=1, thread=1),
        ),
        operations=(HostOperation(name="aten::mm", start=2.1, seconds=0.8, thread=0),),
        launches=(launch(1, 0.5), launch(2, 1.5), launch(3, 2.5), launch(4, 4.0), launch(5, 5.5, 1)),
        activities=tuple(kernel(n) for n in (5, 4, 3, 2, 1)),
    )
    found = list(called_launches(events, [7, None]))
    # The first was launched before the step began.
    assert [(its.name, its.call, its.inside, its.group) for its in found] == [
        ("k2", -1, False, None),
        ("k3", 0, True, 7),
        ("k4", 0, False, None),
        ("k5", 1, True, None),
    ]
    assert call_of("rooflens:call:" + "9" * 40) is None


def launches(*rows: tuple[str, int, int | None]) -> list[CalledLaunch]:
    """Kernels by name, call and group; what has a negative call lies between calls."""
    return [
        CalledLaunch(name=name, shape=(1,), call=abs(call), inside=call >= 0, group=group) for name, call, group in rows
    ]


def test_the_nth_of_a_kernel_in_equal_calls_is_one_observation() -> None:
    rows = launches(("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("b", 1, 0), ("a", 2, 1), ("x", 3, None), ("x", 4, None))
    assert standing(rows, [1.0] * 7) == (0, 1, 0, 1, 4, 5, 6)


def test_in_one_call_only_launches_that_take_equally_long_are_one() -> None:
    """An optimizer over many parameters: full launches take 100 us, the last one 40."""
    rows = launches(*[("step", 0, 0)] * 4, *[("step", 1, 0)] * 4)
    seconds = [100.0, 101.0, 40.0, 99.0]
    assert standing(rows, [*seconds, 100.0, 100.0, 41.0, 150.0]) == (0, 0, 2, 0, 0, 0, 2, 0)


def test_what_stands_for_most_time_is_counted_first() -> None:
    """Calls 0 and 2 are equal and take 95 of 100 s: the first run counts one of them, the second the rest."""
    rows = launches(("gemm", 0, 0), ("relu", 1, 1), ("gemm", 2, 0), ("triton", -2, None))
    plan = planned(rows, [50.0, 2.0, 45.0, 3.0])
    assert plan.stands == (0, 1, 0, 3)
    assert plan.rounds == (
        Round(during=frozenset({0})),
        Round(during=frozenset({1}), after=frozenset({2})),
    )
    assert plan.counted == (0, 1, 3)


def test_a_call_is_counted_whole() -> None:
    rows = launches(("a", 0, 0), ("b", 0, 0))
    plan = planned(rows, [1.0, 1.0])
    assert (plan.rounds, plan.counted) == ((Round(during=frozenset({0})),), (0, 1))


def spread_plan() -> tuple[list[Any], CountingPlan]:
    shares = [launched("gemm", 1, path="fc1"), launched("relu", 2, "relu", "act"), launched("gemm", 3, path="fc2")]
    rows = launches(("gemm", 0, 0), ("relu", 1, 1), ("gemm", 2, 0))
    return shares, planned(rows, [share.seconds for share in shares])


def test_equal_launches_take_the_counts_and_keep_their_time_and_place() -> None:
    shares, plan = spread_plan()
    first, relu, second = spread({0: counted("gemm", 70), 1: counted("relu", 5)}, [], shares, plan)
    assert (first.path, second.path) == ("fc1", "fc2")
    assert first.work == second.work == counted("gemm", 70).work
    assert [r.timing.samples for r in (first, relu, second) if r.timing is not None] == [(1.0,), (2.0,), (3.0,)]
    assert [EQUAL in r.notes for r in (first, relu, second)] == [False, False, True]


def test_what_was_not_reached_has_a_time_and_no_counts() -> None:
    shares, plan = spread_plan()
    first, relu, second = spread({0: counted("gemm", 70)}, [], shares, plan)
    assert first.work == second.work
    assert relu.work is not None
    assert (relu.work.missing, dict(relu.work.bytes), relu.notes) == (frozenset({"relu"}), {}, (UNREACHED,))
    assert relu.timing is not None


def test_a_counted_kernel_that_the_profile_does_not_have_stays_and_says_so() -> None:
    shares, plan = spread_plan()
    *_, stranger = spread({0: counted("gemm"), 1: counted("relu")}, [counted("odd")], shares, plan)
    assert (stranger.name, REPLAYED in stranger.notes) == ("odd", True)


def test_every_launch_is_counted_where_equal_ones_cannot_be_told() -> None:
    shares, _ = spread_plan()
    rows = launches(("gemm", 0, 0), ("relu", 1, 1), ("gemm", 2, 0))
    plan, notes = plan_of(shares, rows, False)
    assert plan.rounds
    assert not notes
    assert plan_of(shares, rows, True) == (every_launch(3), ())
    for other, why in ((None, "compiled"), (rows[:2], "different kernels")):
        none, (note,) = plan_of(shares, other, False)
        assert none == every_launch(3)
        assert why in note


def test_a_plan_can_be_narrowed_to_some_launches() -> None:
    """What the calls of those launch beside them is counted too."""
    rows = launches(("gemm", 0, 0), ("cast", 0, 0), ("relu", 1, 1), ("triton", -1, None))
    plan = planned(rows, [50.0, 1.0, 2.0, 3.0])
    only = plan.only({0, 3}, rows)
    assert (only.counted, only.stands) == ((0, 1, 3), plan.stands)
    assert [its.during for its in only.rounds] == [frozenset({0}), frozenset()]
    assert plan.only(set(), rows).counted == ()
    assert every_launch(4).only({1}, rows) == every_launch(4)  # one run has them all


class PlayedTool(Tool):
    """An ncu whose report is the file of launches that it was given."""

    def command(self, metrics: Any, report: Path, *, cache: str, program: Any, several: bool = False) -> list[str]:
        assert int(program[-1]) == os.getpid()
        return [sys.executable, self.path, str(report), program[-2], ",".join(metrics), json.dumps(VALUES)]


VALUES = {
    "gpu__time_duration.sum": (1000, 1000),
    "dram__bytes_read.sum": (1900, 30),
    "dram__bytes_write.sum": (100, 0),
    "sm__inst_executed_pipe_tensor.sum": (8, 0),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": (10, 5),
    "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off.sum": (64, 0),
}
"""Counters of a product and of an element-wise kernel."""
NCU = """
import json, pathlib, sys, time

report, job, metrics, values = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3].split(","), sys.argv[4]
values = json.loads(values)
def awaited(path):
    while not path.exists():
        time.sleep(0.01)
    return json.loads(path.read_bytes())
job = awaited(job)
pathlib.Path(job["loaded"]).touch()
awaited(pathlib.Path(job["build"]))
pathlib.Path(job["warm"]).touch()
rounds = awaited(pathlib.Path(job["rounds"]))
step = ["gemm", "relu", "gemm"]
names = [step[n] for its in rounds for n in sorted(its["during"])] if rounds else step
for n, name in enumerate(names):
    print(f'==PROF== Profiling "{name}" - {n}: 0%....50%....100% - 1 pass', flush=True)
rows = [["ID", "Process ID", "Kernel Name", "Device", "CC", *metrics], ["", "", "", "", ""]]
units = {"per_second": "hz", "time": "ns", "bytes": "byte"}
rows[1] += [next((unit for part, unit in units.items() if part in m), "") for m in metrics]
rows += [
    [str(n), "1", name, "0", "9.0", *(str(values.get(m, [0, 0])[name == "relu"]) for m in metrics)]
    for n, name in enumerate(names)
]
report.write_text("\\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\\n")
"""


class PlayedWorkers:
    """Profiles nothing: leaves the files that a worker leaves."""

    def __init__(self, room: int, compiled: bool = False, fails: bool = False) -> None:
        self._room, self._compiled, self._fails = room, compiled, fails

    def dismiss(self) -> None:
        """Nothing runs."""

    def run(self, job: Any, tell: Any) -> Done:
        names = ("gemm", "relu", "gemm")
        tell(Warmed())
        assert Path(job.free).exists()
        tell(Profiled(held=1, beside=0, free=self._room))
        case = job.run.case(job.device)
        record = Record(case=case, source="profile", scope="model", notes=("busy",))
        failure = Failure(case=case, source="profile", stage="build", kind="error", message="no room")
        items = {"records": (), "failures": (failure,)} if self._fails else {"records": (record,)}
        write_records(Path(job.out), RecordFile(**items))
        events: list[dict[str, Any]] = [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": "rooflens:phase:forward",
                "pid": 1,
                "tid": 1,
                "ts": 1,
                "dur": 99,
            }
        ]
        for n, name in enumerate(names, start=1):
            at: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 2}
            events.append(at | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": n}})
            of = {"correlation": n, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": "odd"}
            events.append(at | {"cat": "kernel", "name": name, "args": of})
        Path(job.trace).write_text(json.dumps({"traceEvents": events}))
        if not self._compiled:
            rows = launches(("gemm", 0, 0), ("relu", 1, 1), ("gemm", 2, 0))
            Path(job.launches).write_bytes(msgspec.json.encode(rows))
        return Done(fit=True)


def played(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    every: bool = False,
    room: int = 1000,
    limit: float = 20,
    chip: str = "9.0",
    **workers: bool,
) -> RecordFile:
    script = tmp_path / "ncu.py"
    script.write_text(NCU)
    tool = PlayedTool(path=str(script), version="1", options=frozenset())
    monkeypatch.setattr(waiting_runs.ncu, "find", lambda: tool)
    monkeypatch.setattr(waiting_runs.ncu, "capability", lambda: chip)
    monkeypatch.setattr(PlayedTool, "printed", lambda _, report: nullcontext(iter(report.read_text().splitlines(True))))
    run = Run(model="net", batch=2, dtype="bf16")
    machine = Machine(
        where="cuda", title="H200", cards=(), known=None, stored=tmp_path, device=rl.device("h200-sxm-141gb")
    )
    counts = Counter(
        PlayedWorkers(room, **workers),  # type: ignore[arg-type]
        cache="all",
        limit=limit,
        every=every,
        keep=tmp_path / "kept",
    )
    counts.start("fp16")  # what was started for another type is not used
    return counts._file(run, machine, lambda share, what: None)


@pytest.mark.parametrize("room", [1000, 2])  # where there is no room for several, one process follows the other
def test_a_step_is_profiled_while_ncu_starts_and_then_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Two products are equal: of three launches two are counted, 2000 and 30 bytes, and the total is 4030.

    Each product does 64 FLOP on tensor cores and 20 elsewhere, the third kernel 10.
    """
    found = RecordSet(played(tmp_path, monkeypatch, room=room).records)
    assert found.total().bytes["dram"] == 4030
    assert found.total().matmul_flops == 128
    assert found.total().flops == 128 + 50
    assert [record.seconds for record in found] == [2e-6] * 3
    assert any(note.startswith("2 launches were counted for 3") for note in found.notes)
    assert any("3 passes per kernel in 3 runs" in note for note in found.notes)
    assert any(note.startswith("for 1 launches a further run counted mma.sync") for note in found.notes)
    assert not any("not every launch has every counter" in note for note in found.notes)
    stem = "net-b2-bf16-inference"
    kept = [f"{stem}.2.ncu-rep", f"{stem}.3.ncu-rep", f"{stem}.ncu-rep", f"{stem}.trace.json"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == kept


@pytest.mark.parametrize("how", [{"every": True}, {"compiled": True}])
def test_every_launch_is_counted_where_it_is_asked_for_or_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    found = RecordSet(played(tmp_path, monkeypatch, **how).records)
    assert found.total().bytes["dram"] == 4030
    assert not any("were counted for" in note for note in found.notes)
    assert any("compiled code" in note for note in found.notes) == ("compiled" in how)


def test_counters_of_a_run_that_failed_are_missing_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "NCU", NCU.replace("rounds = awaited", "if 'smsp' in sys.argv[3]: sys.exit(3)\nrounds = awaited"))  # fmt: skip  # noqa: E501
    found = RecordSet(played(tmp_path, monkeypatch).records)
    assert found.total().bytes["dram"] == 4030
    assert all(record.work is not None and record.work.missing for record in found)
    why = "NOT COUNTED: FLOP of the general lanes, since the program marked no step"
    assert any(note.startswith(why) for note in found.notes)


def cut_off(counter: str) -> str:
    """The played ncu; the process that reads such a counter reaches the first launch only."""
    begin = "names = names[:1] if cut else names\nfor n, name in enumerate(names):\n    print"
    text = NCU.replace("step = [", f"cut = {counter!r} in sys.argv[3]\nstep = [")
    return text.replace("for n, name in enumerate(names):\n    print", begin) + "sys.exit(9 * cut)\n"


def test_a_later_run_that_is_cut_off_leaves_flop_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the general lanes those of the products are counted, and not those of the third kernel."""
    monkeypatch.setitem(globals(), "NCU", cut_off("smsp"))
    found = RecordSet(played(tmp_path, monkeypatch).records)
    assert found.total().bytes["dram"] == 4030
    assert [bool(record.work and record.work.missing) for record in found] == [False, True, False]
    why = "partial: FLOP of the general lanes: 1 of 2 launches were counted (ncu ended with code 9)"
    assert why in found.notes
    assert not any("stand for" in note for note in found.notes)  # all have bytes


def test_what_only_a_later_run_reached_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first was cut off after the products, 4 of 6 us: of the third kernel no bytes are known."""
    monkeypatch.setitem(globals(), "NCU", cut_off("dram"))
    found = RecordSet(played(tmp_path, monkeypatch).records)
    assert [UNREACHED in record.notes for record in found] == [False, True, False]
    assert any(note.startswith("the counted launches stand for 66.7%") for note in found.notes)


CUT = """for n, name in enumerate(names):
    if n == 1:
        try:
            report.with_suffix(".first").touch()
            time.sleep(60)
        except KeyboardInterrupt:
            names = names[:1]
            break
"""


@pytest.fixture(params=["heard", "ignored"])
def interrupts(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a shell in the foreground makes of SIGINT, and one that starts us in the background."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN if request.param == "ignored" else signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.usefixtures("interrupts")
def test_a_step_that_its_limit_cuts_off_says_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chip that is counted in one run: the products, which take 4 of 6 us, are counted first, and then time is up.

    The two products have 2000 bytes each; those of the third kernel are unknown.
    """
    monkeypatch.setitem(globals(), "NCU", NCU.replace("for n, name in enumerate(names):\n", CUT))
    followed = NcuRun.followed

    def until_the_first(run: NcuRun, report: Path, *, limit: float, **others: Any) -> Any:
        while not report.with_suffix(".first").exists():
            time.sleep(0.01)
        return followed(run, report, limit=0.1, **others)

    monkeypatch.setattr(NcuRun, "followed", until_the_first)
    found = RecordSet(played(tmp_path, monkeypatch, chip="8.0").records)
    assert [UNREACHED in record.notes for record in found] == [False, True, False]
    assert [None if r.work is None else r.work.bytes.get("dram") for r in found] == [2000, None, 2000]
    assert all(record.seconds for record in found)
    assert "partial: 1 of 2 launches were counted (the time limit was over)" in found.notes
    assert any(note.startswith("the counted launches stand for 66.7% of the kernels' time") for note in found.notes)


@pytest.mark.parametrize("file", ["loaded", "warm"])
def test_a_process_that_does_not_get_there_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setitem(globals(), "NCU", NCU.replace(f'pathlib.Path(job["{file}"]).touch()', ""))
    monkeypatch.setattr(
        counted_step, {"loaded": "LOAD_SECONDS", "warm": "BUILD_SECONDS"}[file], 0.1
    )  # the worker was played too, and took no time
    found = RecordSet(played(tmp_path, monkeypatch).records)
    assert found.total().bytes["dram"] == 4030
    why = {"loaded": counted_step.LOADING, "warm": counted_step.BUSY}
    assert [name for name, note in why.items() if note in found.notes] == [file]


def test_a_process_under_ncu_counts_and_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads torch's libraries before the card has to be quiet, and builds the step when it may."""
    did: list[object] = []
    files = {name: str(tmp_path / name) for name in ("loaded", "build", "warm", "rounds")}
    job = Count(run=Run(model="net", batch=2, dtype="bf16"), **files)

    def awaited(path: Path, caller: int) -> bytes:
        did.append((path.name, *(its.name for its in tmp_path.iterdir())))
        return msgspec.json.encode(job)

    monkeypatch.setattr(counted_start, "gc", SimpleNamespace(disable=int, freeze=int, enable=int))
    monkeypatch.setattr(profiling, "awaited", awaited)
    monkeypatch.setattr(profiling, "workload_of", lambda run: did.append(run.model))
    monkeypatch.setattr(profiling.measure, "load_libraries", did.append)
    monkeypatch.setattr(profiling, "_step", lambda *_: SimpleNamespace(name="net"))
    monkeypatch.setattr(profiling, "eager", lambda *_: None)
    monkeypatch.setattr(profiled_step, "counted", lambda *_: did.append("counted"))
    monkeypatch.setattr(counted_start.os, "_exit", lambda code: did.append(f"ended with {code}"))
    counted_start.main("job0", "1")
    assert did == ["cuda", ("job0",), "net", ("build", "loaded"), "counted", "ended with 0"]


def test_a_process_takes_what_its_driver_takes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 bytes 40 are free; the step reserved 12 and now holds 10; four processes' driver takes 30, or 7.5 each.

    Three more then need 58.5 bytes; one more, if two share those 30, 27.
    """
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (40, 80))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 10)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 12)
    step = profiling._profiled()
    assert step == Profiled(held=12, beside=30, free=40)
    assert (step.has_room_for(3), step.has_room_for(1)) == (False, True)
    assert not Profiled(held=0, beside=0, free=0).has_room_for(1)  # on a processor


def test_a_step_that_cannot_be_profiled_ends_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = played(tmp_path, monkeypatch, fails=True)
    assert not found.records
    (failure,) = found.failures
    assert (failure.source, failure.message) == ("counters", "no room")


def test_names_in_the_compilers_spelling_are_those_of_the_same_kernel() -> None:
    ours, theirs = (
        "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitEEEvNT_6ParamsE",
        "void cutlass::Kernel<A>(P)",
    )
    assert short(ours) == short(theirs) == "Kernel"
    assert short("_Z9broken") == "_Z9broken"
