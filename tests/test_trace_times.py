"""Times of a trace that cannot be added as they stand: overlaps, copies, steps, launches without kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import nsys_samples
from tests.nsys_samples import call, pushed

import rooflens as rl
from rooflens.compare import KernelComparison
from rooflens.errors import FileError, InvalidValue
from rooflens.records import Record, Work
from rooflens.results import RecordSet, join
from rooflens.sources.profile.device_time import busy
from rooflens.sources.profile.events import NamedRange
from rooflens.sources.profile.steps import MarkedSteps

US = 1e-6
CARD = "NVIDIA H100 80GB HBM3"
Entry = dict[str, Any]


def complete(cat: str, name: str, ts: float, dur: float, **args: Any) -> Entry:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, *, stream: int = 7, launch: int | None = None, device: int = 0) -> Entry:
    told = {} if launch is None else {"correlation": launch}
    return {**complete("kernel", name, ts, dur, device=device, stream=stream, **told), "pid": device, "tid": stream}


def launched(ts: float, number: int, name: str = "cudaLaunchKernel") -> Entry:
    return complete("cuda_runtime", name, ts, 2, correlation=number)


def operation(name: str, ts: float, dur: float = 20) -> Entry:
    return complete("cpu_op", name, ts, dur)


def read(folder: Path, *entries: Entry, cards: Sequence[str] = (CARD,)) -> rl.RecordSet:
    properties = [{"id": n, "name": name} for n, name in enumerate(cards)]
    path = folder / "trace.json"
    path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": entries}))
    return rl.read(path)


def measured(records: rl.RecordSet) -> tuple[float, float | None, tuple[float, ...]]:
    """Seconds of the step, the sum of the times, and the samples."""
    (item,) = join(records)
    time = item.measured()
    assert time is not None
    return time.seconds, time.summed, () if time.timing is None else time.timing.samples


def test_busy_time_and_the_sum_of_times_are_two_numbers(tmp_path: Path) -> None:
    records = read(tmp_path, kernel("gemm", 0, 100), kernel("gemm", 0, 100, stream=8))
    assert measured(records)[:2] == pytest.approx((100 * US, 200 * US))
    (note,) = [note for note in records.notes if "busy" in note]
    assert (
        note
        == "busy time 100.0 us, sum of times 200.0 us: 2 kernels, copies and fills on streams 7, 8, taken as one step"
    )
    assert records.total().measured_seconds == pytest.approx(200 * US), "a total of kernels is the sum of their times"
    assert sum(group.total.measured_seconds or 0 for group in records.by("op")) == pytest.approx(200 * US)


def test_an_idle_device_is_told_with_its_span(tmp_path: Path) -> None:
    # 10 us at 0 and 15 us at 85: 25 us of a span of 100, so 75 % idle. A bound of 5 us is 20 % of 25 and 5 % of 100.
    records = read(tmp_path, kernel("gemm", 0, 10), kernel("gemm", 85, 15))
    shown = " ".join(rl.table(records, width=80).split())
    assert "idle for 75.0 % of 100.0 us, from its first kernel to the end of its last: it waited for the host" in shown
    assert "a profiler slows the host, so without one the share is smaller" in shown
    assert "say it with --model, -b, --mode, --dtype (of a language model --seq-len)" in shown
    (item,) = join(rl.read(records.save(tmp_path / "saved.jsonl")))
    time = item.measured()
    assert time is not None
    assert (time.span, time.idle) == pytest.approx((100 * US, 0.75))
    peak = rl.device("h100-sxm5-80gb").require("dram").rate
    case = records.cases[0]
    work = Work(flops={}, bytes={"dram": 5 * US * peak})
    estimate = Record(case=case, source="estimate", scope="op", name="add", phase="forward", work=work)
    both = records + RecordSet([estimate], devices=records.devices)
    told = " ".join(rl.table(both, width=200).split())
    assert "efficiency: bound over the time in which the device was busy; over its span it is 5.00 %" in told


def test_the_span_of_each_marked_step_is_its_own(tmp_path: Path) -> None:
    # Steps of 60 and 100 us from first to last, busy for 40 and 90: the medians are 80 and 65, idle 18.75 %.
    marks = [complete("user_annotation", f"ProfilerStep#{n}", ts, 500) for n, ts in ((1, 0), (2, 1000))]
    launches = [launched(ts, n) for n, ts in enumerate((10, 20, 1010, 1020), start=1)]
    ran = ((100, 20), (140, 20), (1100, 45), (1155, 45))
    kernels = [kernel("gemm", ts, dur, launch=n) for n, (ts, dur) in enumerate(ran, start=1)]
    records = read(tmp_path, *marks, *launches, *kernels)
    (item,) = join(records)
    time = item.measured()
    assert time is not None
    assert (time.seconds, time.span, time.idle) == pytest.approx((65 * US, 80 * US, 0.1875))
    assert "idle for" not in rl.table(records), "it was mostly busy"


def test_a_copy_beside_a_kernel_counts_once(tmp_path: Path) -> None:
    """50 to 150 us and 120 to 180 us cover 130 us; the device then waits."""
    copy = {**kernel("Memcpy HtoD", 120, 60, stream=20), "cat": "gpu_memcpy"}
    records = read(tmp_path, kernel("gemm", 50, 100), copy, kernel("relu", 300, 10))
    assert measured(records)[:2] == pytest.approx((140 * US, 170 * US))


def test_the_tables_have_both_by_name(tmp_path: Path) -> None:
    table = rl.table(read(tmp_path, kernel("gemm", 0, 100), kernel("gemm", 0, 100, stream=8)), format="csv")
    header, row = (line.split(",") for line in table.splitlines()[:2])
    values = dict(zip(header, row, strict=True))
    assert (float(values["measured_seconds"]), float(values["summed_seconds"])) == pytest.approx((100 * US, 200 * US))


def test_several_cards_in_one_trace_are_several_cases(tmp_path: Path) -> None:
    records = read(tmp_path, kernel("a", 0, 100), kernel("b", 0, 70, device=1), cards=(CARD, "NVIDIA A40"))
    assert [(case.device, dict(case.options)) for case in records.cases] == [
        ("h100-sxm5-80gb", {"gpu": 0}),
        ("a40", {"gpu": 1}),
    ]
    assert [records.where(device=name).total().measured_seconds for name in ("h100-sxm5-80gb", "a40")] == [
        pytest.approx(100 * US),
        pytest.approx(70 * US),
    ]


def test_an_event_that_stands_twice_counts_once(tmp_path: Path) -> None:
    one = kernel("gemm", 100, 200, launch=1)
    records = read(tmp_path, operation("aten::mm", 0), launched(10, 1), one, one)
    assert measured(records)[:2] == pytest.approx((200 * US, 200 * US))
    assert "1 of 2 kernels, copies and fills stand in the file twice and count once" in records.notes


def test_a_kernel_ends_where_the_next_of_its_stream_begins(tmp_path: Path) -> None:
    """A second on the clock, but the next kernel of the stream begins 10 us later: 10 us and 40 us."""
    records = read(tmp_path, kernel("gemm", 100, 1e6), kernel("relu", 110, 40))
    assert measured(records)[:2] == pytest.approx((50 * US, 50 * US))
    (note,) = [note for note in records.notes if "cannot be" in note]
    assert note == (
        "1 of 2 kernels, copies and fills end after the next one of their stream begins, which cannot be: they count"
        " until then, 10.00 us in all; the file says gemm 1.000 s"
    )


def test_a_comparison_repeats_that_times_cannot_be(tmp_path: Path) -> None:
    records = read(tmp_path, kernel("gemm", 100, 1e6), kernel("relu", 110, 40))
    compared = rl.compare(records, records)
    assert isinstance(compared, KernelComparison)
    repeated = [doubt for doubt in compared.doubts if "which cannot be" in doubt]
    assert [doubt.partition(":")[0] for doubt in repeated] == ["both sides"]


def test_rounding_to_microseconds_and_other_streams_are_no_doubt(tmp_path: Path) -> None:
    records = read(tmp_path, kernel("a", 100, 11), kernel("b", 110, 40), kernel("c", 100, 1000, stream=8))
    assert measured(records)[:2] == pytest.approx((1000 * US, 1051 * US))
    assert not [note for note in records.notes if "cannot be" in note]


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "hipModuleLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync"])
def test_host_time_never_stands_for_a_device_whose_kernels_are_missing(tmp_path: Path, name: str) -> None:
    counted = complete("cuda_profiler_range", "mm", 15, 30, **{"smsp__inst_executed.sum": 5})
    with pytest.raises(FileError) as error:
        read(tmp_path, operation("aten::mm", 0), launched(10, 1, name), counted, counted)
    said = "GPU work was launched (1 calls like {}), no kernel is in the file; 2 ranges of counters"
    assert said.format(name) in str(error.value)
    with pytest.raises(
        FileError, match=r"no kernel is in the file\. Host time does not tell how long the device worked"
    ):
        read(tmp_path, operation("aten::mm", 0), launched(10, 1, name))


def test_host_time_without_a_launch_is_of_no_gpu(tmp_path: Path) -> None:
    records = read(tmp_path, operation("aten::mm", 0, 50))
    assert [case.device for case in records.cases] == [None]
    assert any("no kernel" in note and "nothing of a GPU" in note for note in records.notes)
    path = tmp_path / "trace.json"
    assert [case.device for case in rl.read(path, device="h100-sxm5-80gb").cases] == [None]
    assert [case.device for case in rl.read(path, device="epyc-7763").cases] == ["epyc-7763"]


def test_categories_that_are_not_read_are_told(tmp_path: Path) -> None:
    records = read(tmp_path, kernel("gemm", 0, 10), complete("npu_op", "x", 0, 5), complete("cuda_sync", "wait", 0, 5))
    assert "not read: 1 'npu_op'" in records.notes


def three_steps(mark: str, *durations: float) -> list[Entry]:
    """Steps of 1000 us, each with one product."""
    entries = []
    for n, duration in enumerate(durations):
        at = 1000 * n
        entries += [complete("user_annotation", f"{mark}{n}", at, 900), operation("aten::mm", at + 10, 50)]
        entries += [launched(at + 20, n + 1), kernel("gemm", at + 100, duration, launch=n + 1)]
    return entries


def test_of_marked_steps_on_the_host_the_pauses_are_told(tmp_path: Path) -> None:
    """Steps of 500 us in which operations take 100: for 80 % of them none ran. Without marks nothing is told."""
    marks = [complete("user_annotation", f"ProfilerStep#{n}", 1000 * n, 500) for n in (1, 2)]
    calls = [operation("aten::mm", 1000 * n + 50, 100) for n in (1, 2)]
    told = "of marked steps of 500.0 us no operation ran for 80.0 %: Python, waits, sleep"
    assert told in read(tmp_path, *marks, *calls).notes
    assert not any("no operation ran" in note for note in read(tmp_path, *calls).notes)


@pytest.mark.parametrize("mark", ["ProfilerStep#", "iteration ", "step_", "Training step #"])
def test_each_marked_step_is_a_sample(tmp_path: Path, mark: str) -> None:
    """The sum, 620 us, is the time of no step; the kernels of the last one run after its mark has ended."""
    records = read(tmp_path, *three_steps(mark, 200, 220, 900)[:-1], kernel("gemm", 2950, 200, launch=3))
    seconds, summed, samples = measured(records)
    assert samples == pytest.approx((200 * US, 220 * US, 200 * US))
    assert (seconds, summed) == pytest.approx((200 * US, 200 * US))
    (product,) = [record for record in records if record.scope == "op"]
    assert product.timing is not None
    assert product.timing.samples == pytest.approx((200 * US, 220 * US, 200 * US))
    assert any("(median of 200.0 us, 220.0 us, 200.0 us)" in note for note in records.notes)


def test_an_older_profiler_marks_steps_by_operations(tmp_path: Path) -> None:
    """They claim no kernel: it belongs to the product, or to nobody."""
    entries = [dict(entry) for entry in three_steps("ProfilerStep#", 200, 220, 210)]
    for entry in entries:
        entry["cat"] = "cpu_op" if entry["cat"] == "user_annotation" else entry["cat"]
    records = read(tmp_path, *entries, launched(1800, 9), kernel("odd", 1900, 5, launch=9))
    assert measured(records)[2] == pytest.approx((200 * US, 225 * US, 210 * US))
    assert {(record.scope, record.name) for record in records} == {("op", "mm"), ("kernel", "odd"), ("model", "")}


def test_steps_that_differ_keep_what_each_of_them_ran(tmp_path: Path) -> None:
    """Only the second of three steps copies: 0, 40 and 0 us; and what lies between two steps is told."""
    copy = {**kernel("Memcpy DtoH", 1500, 40, launch=9), "cat": "gpu_memcpy"}
    between = [launched(1950, 8), kernel("between", 1960, 5, launch=8)]
    entries = [*three_steps("ProfilerStep#", 200, 200, 200), launched(1400, 9, "cudaMemcpyAsync"), copy, *between]
    records = read(tmp_path, *entries)
    assert measured(records)[2] == pytest.approx((200 * US, 240 * US, 200 * US))
    (copied,) = [record for record in records if record.name == "Memcpy DtoH"]
    assert copied.timing is not None
    assert copied.timing.samples == pytest.approx((0, 40 * US, 0))
    assert "Memcpy DtoH ran in 1 of 3 steps" in copied.notes
    outside = "1 kernel, copy or fill of 5.000 us, launched outside of the marked steps, belong to no step"
    assert any(note.startswith(outside) and "between 5.000 us" in note for note in records.notes)


def test_a_step_in_which_nothing_ran_is_no_sample(tmp_path: Path) -> None:
    """The schedule of torch's profiler often ends with an empty mark."""
    empty = complete("user_annotation", "ProfilerStep#3", 3000, 40)
    assert len(measured(read(tmp_path, *three_steps("ProfilerStep#", 200, 200, 200), empty))[2]) == 3


def test_a_trace_whose_kernels_are_of_no_step_is_an_error(tmp_path: Path) -> None:
    mark = complete("user_annotation", "ProfilerStep#0", 5000, 900)
    with pytest.raises(FileError, match=r"nothing that can be used: 1 kernel, copy or fill of 70\.00 us"):
        read(tmp_path, operation("aten::mm", 0), launched(10, 1), kernel("gemm", 50, 70, launch=1), mark)


def test_one_numbered_range_is_no_step(tmp_path: Path) -> None:
    """A program may number a single range; nobody knows then that the rest is no part of a step."""
    entries = [*three_steps("step ", 200), launched(1500, 9), kernel("later", 1510, 50, launch=9)]
    assert measured(read(tmp_path, *entries))[0] == pytest.approx(250 * US)


def test_marks_within_a_step_do_not_divide_it() -> None:
    marks = [("ProfilerStep#1", 0, 10), ("ProfilerStep#2", 10, 10), ("step 5", 2, 3), ("step 6", 6, 3)]
    steps = MarkedSteps(NamedRange(name=name, start=at, seconds=long, thread=0) for name, at, long in marks)
    assert [steps.at(time) for time in (-1, 0, 7, 10, 19, 20)] == [None, 0, 0, 1, 1, None]


def test_kernels_from_before_the_recording_belong_to_no_step(tmp_path: Path) -> None:
    left = [kernel("left_over_gemm", 1000, 600, launch=1), kernel("left_over_gemm", 1600, 300, launch=2)]
    step = [complete("user_annotation", "ProfilerStep#6", 1500, 800), operation("aten::mm", 1510, 50)]
    records = read(tmp_path, *left, *step, launched(1520, 3), kernel("gemm", 2000, 100, launch=3))
    assert measured(records)[:2] == pytest.approx((100 * US, 100 * US))
    (note,) = [note for note in records.notes if "before the recording began" in note]
    assert note.startswith("2 kernels, copies and fills of 900.0 us, launched before the recording began, and ended")
    assert note.endswith("left out: left_over_gemm 900.0 us")


def test_the_same_without_a_marked_step(tmp_path: Path) -> None:
    """A kernel that still runs when the first launched one begins, and one after it, are kept: they may be of it."""
    early, beside = kernel("early", 0, 50, launch=1), kernel("beside", 60, 100, launch=2, stream=8)
    step = [operation("aten::mm", 70), launched(80, 3), kernel("gemm", 100, 30, launch=3)]
    records = read(tmp_path, early, beside, *step, kernel("after", 200, 5, launch=4))
    assert measured(records)[:2] == pytest.approx((105 * US, 135 * US))
    assert {record.name for record in records if record.scope != "model"} == {"mm", "beside", "after"}


def test_kernels_without_any_launch_are_all_kept(tmp_path: Path) -> None:
    assert measured(read(tmp_path, kernel("a", 0, 50), kernel("b", 60, 10)))[0] == pytest.approx(60 * US)


def test_an_export_of_nsys_has_its_steps_too(tmp_path: Path) -> None:
    """Two ranges called iteration, of 300 ns and 500 ns on the device; the second holds two kernels side by side."""
    rows = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            nsys_samples.kernel(2_000, 2_300, 11, 1),
            nsys_samples.kernel(5_000, 5_500, 12, 1),
            nsys_samples.kernel(5_100, 5_300, 13, 3, stream=13),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1_100, 1_200, 11), call(4_100, 4_200, 12), call(4_300, 4_400, 13)],
        "NVTX_EVENTS": [pushed(1_000, 1_900, "iteration 0"), pushed(4_000, 4_900, "iteration 1")],
    }
    records = rl.read(nsys_samples.database(tmp_path / "x.sqlite", rows))
    seconds, summed, samples = measured(records)
    assert samples == pytest.approx((300e-9, 500e-9))
    assert (seconds, summed) == pytest.approx((400e-9, 400e-9 + 100e-9))
    assert [record.name for record in records if record.scope == "kernel"] == ["void gemm<float>(int)", "relu"]


def test_two_processes_may_use_streams_of_one_number(tmp_path: Path) -> None:
    first, second = nsys_samples.kernel(2_000, 2_000_000, 11, 1), list(nsys_samples.kernel(3_000, 3_500, 11, 3))
    second[6] = nsys_samples.PROCESS + (1 << 24)
    records = rl.read(nsys_samples.database(tmp_path / "x.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": [first, second]}))
    assert measured(records)[:2] == pytest.approx((1_998_000e-9, 1_998_500e-9))


def test_busy_time_is_the_union() -> None:
    assert busy([(4, 6), (0, 3), (1, 2), (2, 4.5)]) == 6
    assert busy([]) == 0


def test_threads_of_the_host_overlap_too(tmp_path: Path) -> None:
    """Of 100 us each, the second thread's product begins 60 us after the first one's; the last one runs alone."""
    second = {**operation("aten::mm", 60, 100), "tid": 2}
    records = read(tmp_path, operation("aten::mm", 0, 100), second, operation("aten::relu", 300, 10))
    assert measured(records)[:2] == pytest.approx((170 * US, 210 * US))
    known = "100.0 % of 210.0 us host time of operations belongs to an operation, and none names its module"
    assert any(note.endswith(known) for note in records.notes)
    with pytest.raises(InvalidValue, match="or of a profile without any"):
        rl.table(records, by="module")
    assert "busy time 170.0 us, sum of times 210.0 us: host time of 3 operations, taken as one step" in records.notes
