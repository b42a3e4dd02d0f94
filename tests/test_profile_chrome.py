"""Reading Chrome traces: what stands in the file, what is missing, and what is damaged."""

from __future__ import annotations

import gzip
import json
import runpy
from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflens as rl
from rooflens import opening
from rooflens.errors import FileError
from rooflens.sources.profile import attribute, read_trace
from rooflens.sources.profile.chrome import parse_trace
from rooflens.sources.profile.events import Events
from rooflens.sources.profile.operation_records import is_attributed

SHARED = Path(__file__).parents[2] / "shared"
TRACES = SHARED / "data" / "traces"
CASE_88 = Path(__file__).parent / "cases" / "88_trace_malformed.py"


def event(cat: str, name: str, ts: float, dur: float, *, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def flow(number: int, ph: str, ts: float, tid: int) -> dict[str, Any]:
    return {"ph": ph, "id": number, "pid": 9, "tid": tid, "ts": ts, "cat": "fwdbwd", "name": "fwdbwd"}


def parsed(*events: dict[str, Any]) -> Events:
    return parse_trace(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), "here")


SAMPLE = [
    {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "ts": 0, "args": {"name": "python"}},
    event("cpu_op", "aten::mm", 1700000000000010.0, 20.0, **{"External id": 5, "Sequence number": 3}),
    event("cuda_runtime", "cudaLaunchKernel", 1700000000000012.0, 3.0, correlation=77, **{"External id": 5}),
    event("kernel", "gemm", 1700000000000040.0, 8.0, tid=7, device=0, stream=7, correlation=77, **{"External id": 5}),
    event("gpu_memset", "Memset (Device)", 1700000000000050.0, 2.0, tid=7, device=0, stream=7, correlation=78),
    event("user_annotation", "step", 1700000000000000.0, 60.0),
    event("gpu_user_annotation", "step", 1700000000000040.0, 12.0, tid=7),
    event("Trace", "PyTorch Profiler (0)", 1700000000000000.0, 60.0),
    {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 1700000000000060.0, "s": "g"},
]


def test_events_become_what_they_are() -> None:
    events = parsed(*SAMPLE)
    (operation,), (launch,), (kernel, memset) = events.operations, events.launches, events.activities
    assert (operation.name, operation.identity, operation.sequence, operation.backward) == ("aten::mm", 5, 3, False)
    # Microseconds since the first event.
    assert (operation.start, operation.seconds) == pytest.approx((10e-6, 20e-6))
    assert (launch.correlation, launch.thread) == (77, operation.thread)
    assert (kernel.kind, kernel.device, kernel.stream, kernel.correlation) == ("kernel", 0, 7, 77)
    assert kernel.seconds == pytest.approx(8e-6)
    assert (kernel.identity, memset.kind) == (5, "memset")
    assert [found.name for found in events.ranges] == ["step"]


def test_a_file_may_be_compressed_or_a_bare_list(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": SAMPLE}).encode()
    (tmp_path / "plain.json").write_bytes(whole)
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(whole))
    (tmp_path / "list.json").write_bytes(json.dumps(SAMPLE).encode())
    plain, packed, bare = (read_trace(tmp_path / name) for name in ("plain.json", "packed.json.gz", "list.json"))
    assert plain == packed == bare == parsed(*SAMPLE)


def test_numbers_may_be_written_as_text() -> None:
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": "1.0",
        "dur": "20.0",
        "args": {"stream": 7},
    }
    (found,) = parse_trace(json.dumps({"traceEvents": [kernel]}).encode(), "x").activities
    assert found.seconds == pytest.approx(20e-6)


def test_a_copy_of_the_correlation_names_no_operation() -> None:
    """Kineto wrote it as "External id" for years; number 5 would be an operation of its own."""
    activity = parsed(event("kernel", "k", 0, 1, correlation=5, **{"External id": 5})).activities[0]
    assert (activity.correlation, activity.identity) == (5, None)


def test_numbers_that_json_does_not_have_are_left_out() -> None:
    text = json.dumps({"traceEvents": SAMPLE}).replace('"device": 0', '"bandwidth": inf, "more": -nan, "device": 0')
    assert parse_trace(text.encode(), "here") == parsed(*SAMPLE)


def test_rocm_writes_streams_of_launches_as_text() -> None:
    args: dict[str, Any] = {"stream": "0x0", "cid": 153, "correlation": 117, "size": "2560"}
    (launch,) = parsed(event("cuda_runtime", "hipMemcpyWithStream", 0, 1, **args)).launches
    assert launch.correlation == 117


def test_arrows_tell_which_thread_made_a_node() -> None:
    """The profiler numbers threads in its own way: 1 made the nodes of operations on thread 11, 2 those on 12."""
    backward = {"Sequence number": 4, "Fwd thread id": 1}, {"Sequence number": 4, "Fwd thread id": 2}
    events = parsed(
        event("cpu_op", "aten::mul", 0, 5, tid=11, **{"Sequence number": 4}),
        event("cpu_op", "aten::add", 0, 5, tid=12, **{"Sequence number": 4, "Fwd thread id": 0}),
        event("cpu_op", "MulBackward0", 10, 5, tid=13, **backward[0]),
        event("cpu_op", "AddBackward0", 20, 5, tid=13, **backward[1]),
        *(flow(1, "s", 0, 11), flow(1, "f", 10, 13), flow(2, "s", 0, 12), flow(2, "f", 20, 13)),
    )
    mul, add, of_mul, of_add = events.operations
    assert [op.backward for op in events.operations] == [False, False, True, True]
    assert (of_mul.forward_thread, of_add.forward_thread) == (mul.thread, add.thread)


def test_without_arrows_the_only_thread_that_made_nodes_made_them() -> None:
    forward = event("cpu_op", "aten::mul", 0, 5, tid=11, **{"Sequence number": 4})
    other = event("cpu_op", "aten::mul", 0, 5, tid=12, **{"Sequence number": 4})
    backward = event("cpu_op", "MulBackward0", 10, 5, tid=13, **{"Sequence number": 4, "Fwd thread id": 1})
    one, two = parsed(forward, backward), parsed(forward, other, backward)
    assert one.operations[-1].forward_thread == one.operations[0].thread
    assert two.operations[-1].forward_thread is None


def test_shapes_are_kept_where_they_were_recorded() -> None:
    dims: dict[str, Any] = {"Input Dims": [[2, 3], [], [[4], [5]]]}
    plain, shaped = parsed(event("cpu_op", "a", 0, 1), event("cpu_op", "b", 1, 1, **dims)).operations
    assert (plain.shapes, shaped.shapes) == (None, ((2, 3), (4,), (5,)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "no Chrome trace"),
        (b"{}", "no 'traceEvents'"),
        (b'{"schema": "1.0.1", "nodes": []}', "no 'traceEvents'"),
        (b'{"traceEvents": [', "no Chrome trace"),
        (b'{"traceEvents": [{"ph": "X", "ts": "soon"}]}', r"\$\.traceEvents\[0\]\.ts"),
        (b'{"traceEvents": [{"ph": 7}]}', r"traceEvents\[0\]\.ph"),
        (b"\xff\xfe", "no Chrome trace"),
        (b"[]", "holds no operation and no kernel, but no event at all"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "but 1 'events without a category'"),
        (
            b'[{"ph": "X", "cat": "v8", "ts": 0, "dur": 1}, {"ph": "X", "cat": "Kernels", "ts": 0, "dur": 1}]',
            "no kernel, but 1 'v8', 1 'Kernels'",
        ),
        (b"[" * 100_000, "no Chrome trace"),
        (b"model,batch\nresnet18,1\n", "no Chrome trace"),
    ],
)
def test_what_is_no_trace_is_an_error_that_says_where(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text)
    with pytest.raises(FileError, match=says) as raised:
        read_trace(path)
    assert "file.json" in str(raised.value)


def test_a_trace_of_nothing_but_ranges_says_that_it_holds_no_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([event("user_annotation", "step", 0, 10)]))
    with pytest.raises(FileError, match=r"holds no operation and no kernel.*but 1 'user_annotation'; record with"):
        rl.read(path)


@pytest.mark.parametrize("damage", [{"dur": None}, {"ts": None}, {"dur": -1.0}, {"dur": 1e400}])
def test_an_event_without_a_usable_time_is_an_error(damage: dict[str, Any]) -> None:
    broken = event("kernel", "gemm", 5.0, 1.0) | damage
    with pytest.raises(FileError, match=r"event 1 \('gemm'\) has no usable time|no Chrome trace"):
        parsed(event("cpu_op", "a", 0, 1), broken)


def test_a_file_that_is_cut_off_or_missing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": SAMPLE}).encode())[:-20])
    with pytest.raises(FileError, match="cannot read"):
        read_trace(path)
    with pytest.raises(FileError, match="No such file"):
        read_trace(tmp_path / "nowhere.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.integers(0, len(SAMPLE) - 1), st.sampled_from(["ph", "cat", "name", "ts", "dur", "tid", "args"]), json_values)
def test_a_trace_with_any_value_in_place_of_another_is_read_or_refused(number: int, key: str, value: Any) -> None:
    events = [dict(entry) for entry in SAMPLE]
    events[number][key] = value
    try:
        found = parsed(*events)
    except FileError:
        return
    attribute(found)
    whole = sum(activity.seconds for activity in found.activities)
    assert whole >= 0


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        events = parse_trace(text, "here")
    except FileError:
        return
    assert events == Events()


KINDS = {"kernel", "gpu_memcpy", "gpu_memset"}


def third_party() -> list[Path]:
    return sorted(path for path in TRACES.glob("*.json*") if not path.name.endswith("_et.json.gz"))


@pytest.mark.skipif(not third_party(), reason="needs the traces of other projects")
@pytest.mark.parametrize("path", third_party(), ids=lambda path: path.name[:40])
def test_traces_of_other_projects_are_read_to_their_sums(path: Path) -> None:
    """The same by a few lines of json: device time, and the operation around the launch of each kernel."""
    raw = path.read_bytes()
    listed = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["traceEvents"]
    complete = [entry for entry in listed if entry.get("ph") == "X"]
    kernels = [entry for entry in complete if entry["cat"] in KINDS]
    events = read_trace(path)
    assert len(events.activities) == len(kernels)
    assert len(events.operations) == sum(entry["cat"] == "cpu_op" for entry in complete)
    shares = attribute(events)
    if not kernels:
        assert len(events.operations) > 2000
        assert sum(map(is_attributed, shares)) / len(shares) > 0.99
        return
    assert sum(share.seconds for share in shares) == pytest.approx(1e-6 * sum(entry["dur"] for entry in kernels))
    assert len(shares) == len(kernels)
    around = _around_launches(complete)
    assert [share.operation is not None for share in shares] == [
        entry["args"]["correlation"] in around for entry in kernels
    ]


def _around_launches(complete: list[dict[str, Any]]) -> set[int]:
    """Correlations of launches during which some operation was open on the same thread."""
    operations: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for entry in complete:
        if entry["cat"] == "cpu_op":
            operations[entry["tid"]].append((entry["ts"], entry["ts"] + entry["dur"]))
    begins = {thread: sorted(begin for begin, _ in spans) for thread, spans in operations.items()}
    last_ends = {
        thread: list(accumulate((end for _, end in sorted(spans)), max)) for thread, spans in operations.items()
    }

    def inside(thread: Any, moment: float) -> bool:
        begun = bisect_right(begins.get(thread, ()), moment)
        return begun > 0 and moment < last_ends[thread][begun - 1]

    return {
        entry["args"]["correlation"]
        for entry in complete
        if entry["cat"] in ("cuda_runtime", "cuda_driver")
        and "correlation" in entry["args"]
        and inside(entry["tid"], entry["ts"])
    }


@pytest.mark.skipif(not third_party(), reason="needs the traces of other projects")
def test_an_execution_trace_is_no_chrome_trace() -> None:
    with pytest.raises(FileError, match="no 'traceEvents'"):
        read_trace(TRACES / "execution_trace__benchmark_simple_add_et.json.gz")


@pytest.mark.skipif(not third_party(), reason="needs the traces of other projects")
def test_a_rocm_training_step_is_told_apart_by_phase() -> None:
    """Sums of `dur` over the kernels launched from thread 598009 (autograd) and inside Optimizer.step, read by eye."""
    shares = attribute(read_trace(TRACES / "amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz"))
    seconds: dict[str | None, float] = defaultdict(float)
    for share in shares:
        seconds[share.place.phase] += share.seconds
    assert seconds == pytest.approx(
        {
            "forward": (22.441 + 6.88 + 17.6 + 6.72 + 15.72 + 8.32 + 11.04 + 3.36) * 1e-6,
            "backward": (2.24 + 5.28 + 5.6 + 12.64 + 13.6 + 4.96 + 4.16) * 1e-6,
            "optimizer": 8.481e-6,
        }
    )
    assert [share.operation for share in shares if share.place.phase == "optimizer"] == ["_foreach_add_"]


def test_events_whose_time_the_profiler_lost_are_left_out_and_counted() -> None:
    """Kineto writes ts 0 and dur 0 then; an event of no time at another moment is a real one."""
    events = parsed(
        event("kernel", "timed", 5.0, 20.0, tid=7),
        event("kernel", "lost", 0.0, 0.0, tid=7),
        event("gpu_memset", "lost", 0.0, 0.0, tid=7),
        event("gpu_memset", "short", 6.0, 0.0, tid=7),
        event("cpu_op", "aten::mm", 0.0, 0.0),
        event("overhead", "of no kind that is read", 0.0, 0.0),
    )
    assert [activity.name for activity in events.activities] == ["timed", "short"]
    assert events.activities[0].start == 0, "times begin with the first event that has one"
    assert not events.operations
    activities, operations = events.notes
    assert "2 of 4 kernels, copies and fills have no time" in activities
    assert "1 of 1 operations have no time" in operations


def test_a_first_event_at_zero_is_no_lost_one() -> None:
    events = parsed(event("kernel", "k", 0, 10, tid=7), event("kernel", "k", 20, 20, tid=7))
    assert [activity.seconds for activity in events.activities] == pytest.approx([10e-6, 20e-6])
    assert events.notes == ()


def test_events_in_two_halves_are_counted() -> None:
    begin, end = ({"ph": ph, "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0} for ph in "BE")
    (note,) = parsed(event("kernel", "k", 0, 10, tid=7), begin, end).notes
    assert "2 events of kernels, copies and fills that are written as begin and end" in note


def test_a_trace_of_lost_events_only_says_so(tmp_path: Path) -> None:
    path = tmp_path / "zeros.json"
    path.write_text(json.dumps({"traceEvents": [event("kernel", "k", 0, 0)]}))
    with pytest.raises(FileError, match=r"no time to attribute.*1 of 1 kernels"):
        rl.read(path)


@pytest.mark.parametrize("kept", [1, 20, 60])
def test_a_trace_that_was_cut_names_the_place(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "truncated.json"
    path.write_text(json.dumps([event("kernel", "k", 0, 10)])[:kept])
    with pytest.raises(FileError, match=rf"truncated\.json.*byte {kept}"):
        rl.read(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_case_88(tmp_path: Path) -> None:
    case = runpy.run_path(str(CASE_88))
    files, expected = case["inputs"](str(tmp_path)), case["EXPECT"]
    for name in ("list", "strings"):
        seconds = [record.timing.median for record in rl.read(files[name]) if record.timing]
        assert len(seconds) == 2
        assert sum(seconds) * 1e6 == pytest.approx(expected[f"{name}_us"])
    records = rl.read(files["zeros"])
    (seconds_left,) = (record.timing.median for record in records if record.timing)
    assert seconds_left * 1e6 == pytest.approx(expected["zeros_mean_us"])
    assert any(f"{expected['zeros_excluded']} of 2 kernels" in note for note in records.notes)
    with pytest.raises(FileError, match=r"truncated\.json.*byte \d+"):
        rl.read(files["truncated"])


@pytest.mark.parametrize("packed", [True, False])
def test_a_trace_that_unpacks_to_too_much_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: bool
) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 1000)
    text = b'{"traceEvents": []' + b" " * 1000 + b"}"
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(FileError, match="more than 1000 bytes"):
        read_trace(path)
