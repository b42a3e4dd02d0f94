"""A profile and an estimate belong together if the sizes that the profiler recorded are those of the estimate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.records import Call, Case, Phase, Record, Tensor, Work
from rooflens.results import RecordSet, join
from rooflens.results.parts import parts

Size = tuple[int, ...]


def trace(folder: Path, *calls: tuple[str, list[Any], float], recorded: bool = True) -> Path:
    """Write a trace of operations, each with one kernel of so many microseconds; sizes as Kineto writes them."""
    events: list[dict[str, Any]] = []
    for n, (name, sizes, duration) in enumerate(calls, start=1):
        common = {"ph": "X", "pid": 9}
        shapes = {"Input Dims": sizes} if recorded else {}
        host = {**common, "tid": 1, "ts": 10.0 * n}
        events += [
            {**host, "cat": "cpu_op", "name": f"aten::{name}", "dur": 5.0, "args": {"External id": n, **shapes}},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1.0, "args": {"correlation": n}},
            {
                **common,
                "cat": "kernel",
                "name": f"k{n}",
                "tid": 7,
                "ts": 1000.0 * n,
                "dur": duration,
                "args": {"correlation": n, "device": 0, "stream": 7},
            },
        ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def estimated(case: Case, *calls: tuple[str, list[Size]], phase: Phase = "forward") -> RecordSet:
    records = []
    for n, (name, sizes) in enumerate(calls):
        tensors = tuple((f"a{i}", Tensor(size, "bf16", 2)) for i, size in enumerate(sizes))
        call = Call(name=name, arguments=tensors, outputs=(), reads=1, writes=1)
        work = Work(flops={"matmul.bf16": 1e9}, bytes={"dram": 1e6})
        records.append(
            Record(case=case, source="estimate", scope="op", path=f"l{n}", name=name, phase=phase, work=work, call=call)
        )
    return RecordSet(records)


IMAGES = [("convolution", [[8, 3, 160, 160], [64, 3, 7, 7], []], 30.0), ("addmm", [[1000], [8, 64], [64, 1000]], 5.0)]


def images(batch: int, size: int) -> list[tuple[str, list[Size]]]:
    return [
        ("convolution", [(batch, 3, size, size), (64, 3, 7, 7)]),
        ("addmm", [(1000,), (batch, 64), (64, 1000)]),
    ]


def joined(path: Path, estimate: RecordSet, **facts: Any) -> tuple[bool, str]:
    """Whether an estimate stands beside the trace, and what is said if not."""
    items = join(rl.read(path, case={"model": "m", "dtype": "bf16", **facts}) + estimate)
    (observed,) = (item for item in items if item.time is not None)
    return observed.work is not None, observed.apart or ""


def test_an_estimate_of_the_same_sizes_stands_beside_a_trace(tmp_path: Path) -> None:
    case = Case(model="m", batch=8, dtype="bf16", options=(("img_size", 160),))
    assert joined(trace(tmp_path, *IMAGES), estimated(case, *images(8, 160)), batch=8, img_size=160) == (True, "")


@pytest.mark.parametrize(
    ("batch", "size", "told"),
    [(8, 224, "so img_size 160 ran"), (16, 160, "so batch 8 ran"), (4, 96, "so batch 8 and img_size 160 ran")],
)
def test_another_image_size_or_batch_is_told_and_not_joined(tmp_path: Path, batch: int, size: int, told: str) -> None:
    case = Case(model="m", batch=8, dtype="bf16")
    together, why = joined(trace(tmp_path, *IMAGES), estimated(case, *images(batch, size)), batch=8)
    assert not together
    assert told in why
    assert f"8x3x160x160 and 64x3x7x7 in the profile and {batch}x3x{size}x{size}" in why


def test_another_length_is_told_of_decode_although_all_else_agrees(tmp_path: Path) -> None:
    keys = [[2, 8, 1, 64], [2, 8, 513, 64], [2, 8, 513, 64], []]
    path = trace(tmp_path, ("mm", [[2, 64], [64, 64]], 3.0), ("attention", keys, 4.0))
    case = Case(model="m", batch=2, dtype="bf16", mode="decode", options=(("seq_len", 1024),))
    longer: list[Size] = [(2, 8, 1, 64), (2, 8, 1025, 64), (2, 8, 1025, 64)]
    estimate = estimated(case, ("mm", [(2, 64), (64, 64)]), ("attention", longer))
    together, why = joined(path, estimate, batch=2, mode="decode", seq_len=1024)
    assert (together, why.partition(", so ")[2]) == (False, "seq_len 512 ran")


def test_a_prompt_of_another_length_is_told_by_its_embedding(tmp_path: Path) -> None:
    path = trace(tmp_path, ("embedding", [[1000, 64], [2, 128]], 3.0))
    case = Case(model="m", batch=2, dtype="bf16", mode="prefill")
    together, why = joined(path, estimated(case, ("embedding", [(1000, 64), (2, 96)])), batch=2, mode="prefill")
    assert (together, why.partition(", so ")[2]) == (False, "seq_len 128 ran")


def test_a_trace_without_shapes_is_joined_as_before(tmp_path: Path) -> None:
    case = Case(model="m", batch=8, dtype="bf16")
    assert joined(trace(tmp_path, *IMAGES, recorded=False), estimated(case, *images(8, 224)), batch=8) == (True, "")


def test_a_trace_of_which_too_little_is_told_says_what_to_give(tmp_path: Path) -> None:
    case = Case(model="m", batch=8, dtype="bf16", options=(("img_size", 160),))
    together, why = joined(trace(tmp_path, *IMAGES), estimated(case, *images(8, 160)))
    assert not together
    assert why.endswith("give --batch 8 --img-size 160 if it ran so")


def test_a_trace_of_another_device_says_so(tmp_path: Path) -> None:
    case = Case(model="m", batch=8, dtype="bf16", device="t4")
    items = join(
        rl.read(trace(tmp_path, *IMAGES), case={"model": "m", "batch": 8, "dtype": "bf16"}, device="l4")
        + estimated(case, *images(8, 160))
    )
    assert next(item.apart for item in items if item.time is not None) == (
        "no estimate stands beside it: m batch 8 bf16 inference is estimated on t4, this is of l4"
    )


def test_options_that_a_mode_has_no_use_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="kv_cache='static' is about the cache"):
        rl.read(trace(tmp_path, *IMAGES), case={"model": "m", "kv_cache": "static"})
    with pytest.raises(InvalidValue, match="'image'"):
        rl.read(trace(tmp_path, *IMAGES), case={"image": 3})


def test_calls_of_equal_names_are_timed_apart_by_their_sizes_without_modules(tmp_path: Path) -> None:
    """Both are `mm` of the whole model: 3 us belong to the first size, 4 + 5 us to the other."""
    small, large = [[2, 64], [64, 64]], [[2, 64], [64, 512]]
    path = trace(tmp_path, ("mm", small, 3.0), ("mm", large, 4.0), ("mm", large, 5.0))
    case = Case(model="m", batch=2, dtype="bf16")
    first: tuple[str, list[Size]] = ("mm", [(2, 64), (64, 64)])
    second: tuple[str, list[Size]] = ("mm", [(2, 64), (64, 512)])
    read = rl.read(path, case={"model": "m", "batch": 2, "dtype": "bf16"})
    (item,) = join(read + estimated(case, first, second, second))
    assert [part.calls for part in parts(item, "op")] == [1, 2]
    assert [part.seconds for part in parts(item, "op")] == pytest.approx([3e-6, 9e-6])
    (alone,) = join(read)
    assert [part.shapes for part in parts(alone, "op")] == [((2, 64), (64, 64)), ((2, 64), (64, 512))]
    table = rl.table(read, by="op")
    assert "2x64 64x512" in table
    assert "as written" not in rl.table(read + estimated(case, first, second, second), by="op", width=80)


@pytest.mark.parametrize("recorded", [True, False])
def test_an_operator_joins_the_calls_of_all_shapes(recorded: bool, tmp_path: Path) -> None:
    """Two sizes of `mm` in three calls of 3 + 4 + 5 us, and a `relu` of 2; each call is estimated with 1 GFLOP."""
    small: tuple[str, list[Size]] = ("mm", [(2, 64), (64, 64)])
    large: tuple[str, list[Size]] = ("mm", [(2, 64), (64, 512)])
    relu: tuple[str, list[Size]] = ("relu", [(2, 512)])
    calls = [(name, [*map(list, sizes)], us) for (name, sizes), us in ((small, 3.0), (large, 4.0), (large, 5.0))]
    path = trace(tmp_path, *calls, ("relu", [[2, 512]], 2.0), recorded=recorded)
    read = rl.read(path, case={"model": "m", "batch": 2, "dtype": "bf16"})
    (alone,) = join(read)
    sizes = [2, 1] if recorded else [None, None]
    assert [(part.name, part.calls, part.different_shapes) for part in parts(alone, "operator")] == [
        ("mm", 3, sizes[0]),
        ("relu", 1, sizes[1]),
    ]
    estimate = estimated(Case(model="m", batch=2, dtype="bf16"), small, large, large, relu)
    (item,) = join(read + estimate)
    found = parts(item, "operator")
    assert [(part.name, part.calls, part.different_shapes) for part in found] == [("mm", 3, 2), ("relu", 1, 1)]
    assert [part.seconds for part in found] == pytest.approx([12e-6, 2e-6])
    table = json.loads(rl.table(read + estimate, by="operator", format="json"))
    assert [(row["operator"], row["different_shapes"], row["calls"]) for row in table] == [("mm", 2, 3), ("relu", 1, 1)]
    assert table[0]["flops"] == 3 * 1e9
    assert (" shapes " in rl.table(read, by="operator")) == recorded


def test_a_join_loses_no_time_of_calls_that_cannot_be_told_apart(tmp_path: Path) -> None:
    # Two casts of one size differ in what they return: 12 + 8 us of both, beside 20 of the product.
    case = Case(model="m", batch=8, dtype="bf16")
    estimate = estimated(case, ("mm", [(8, 64), (64, 16)]), ("_to_copy", [(8, 16)]), ("_to_copy", [(8, 16)]))
    casts = [replace(r, path="", call=replace(r.call, writes=n)) for n, r in enumerate(estimate) if r.call]
    calls = [("mm", [[8, 64], [64, 16]], 20.0), ("_to_copy", [[8, 16]], 12.0), ("_to_copy", [[8, 16]], 8.0)]
    observed = rl.read(trace(tmp_path, *calls), case={"model": "m", "batch": 8, "dtype": "bf16"})
    (item,) = join(observed + RecordSet(casts))
    times = [(part.name, part.calls, bool(part.records), part.seconds) for part in parts(item, "op")]
    shared = ("_to_copy", 2, False, pytest.approx(20e-6))
    assert times == [("mm", 1, True, pytest.approx(20e-6)), *2 * [("_to_copy", 1, True, None)], shared]


def test_a_join_loses_no_time_of_equal_names_without_sizes(tmp_path: Path) -> None:
    # Two products of one name, whose sizes nobody recorded, took 5 + 7 us together.
    case = Case(model="m", batch=8, dtype="bf16")
    calls: list[tuple[str, list[Any], float]] = [("mm", [], 5.0), ("mm", [], 7.0)]
    observed = rl.read(trace(tmp_path, *calls, recorded=False), case={"model": "m", "batch": 8, "dtype": "bf16"})
    (item,) = join(observed + estimated(case, ("mm", [(8, 64), (64, 16)]), ("mm", [(8, 16), (16, 4)])))
    assert [(part.calls, part.seconds) for part in parts(item, "op")] == [
        (1, None),
        (1, None),
        (2, pytest.approx(12e-6)),
    ]


def test_recorded_sizes_survive_a_file(tmp_path: Path) -> None:
    read = rl.read(trace(tmp_path, *IMAGES))
    read.save(tmp_path / "kept.jsonl")
    kept = rl.read(tmp_path / "kept.jsonl")
    assert [r.shapes for r in kept if r.scope == "op"] == [
        ((8, 3, 160, 160), (64, 3, 7, 7)),
        ((1000,), (8, 64), (64, 1000)),
    ]


def test_sizes_that_differ_from_step_to_step_are_none_of_all(tmp_path: Path) -> None:
    path = trace(tmp_path, ("mm", [[2, 64], [64, 64]], 3.0), ("mm", [[4, 64], [64, 64]], 4.0))
    whole = json.loads(path.read_text())
    for n, start in enumerate((10.0, 20.0)):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 9, "tid": 1}
        whole["traceEvents"].append({**mark, "ts": start - 1, "dur": 8.0, "args": {}})
    path.write_text(json.dumps(whole))
    (operation,) = (r for r in rl.read(path) if r.scope == "op")
    assert (operation.shapes, operation.timing and len(operation.timing.samples)) == (None, 2)


def test_a_device_of_a_file_by_hand_is_known_as_people_call_it(tmp_path: Path) -> None:
    """`t4` is tesla-t4, and a name that the catalogue lacks stays what it is."""
    lines = [
        {"type": "header", "format": 1},
        {"type": "case", "number": 0, "model": "m", "device": "t4", "batch": 1},
        {"type": "case", "number": 1, "model": "m", "device": "my-board", "batch": 1},
        *(
            {"type": "record", "case": n, "source": "estimate", "scope": "op", "name": "mm", "phase": "forward"}
            | {"work": {"flops": {"matmul.fp32": 8.1e9}, "bytes": {"dram": 1e3}}}
            for n in (0, 1)
        ),
    ]
    path = tmp_path / "hand.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    read = rl.read(path)
    assert [case.device for case in read.cases] == ["tesla-t4", "my-board"]
    assert read.where(device="tesla-t4").total().seconds == pytest.approx(1e-3)  # 8.1 GFLOP at 8.1 TFLOP/s
    assert "t4 of the file is taken for tesla-t4" in read.notes
    assert read.where(device="my-board").total().seconds is None


def test_kernels_that_no_operation_claims_have_short_names_and_no_module_is_made_up(tmp_path: Path) -> None:
    path = trace(tmp_path, ("mm", [[2, 64], [64, 64]], 3.0))
    whole = json.loads(path.read_text())
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    lone = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 5000.0, "dur": 9.0}
    memset = {**lone, "cat": "gpu_memset", "name": "Memset (Device)", "ts": 6000.0, "dur": 1.0}
    whole["traceEvents"] += [lone | {"args": {"device": 0, "stream": 7}}, memset | {"args": {"device": 0, "stream": 7}}]
    path.write_text(json.dumps(whole))
    shown = rl.table(rl.read(path), by="op", width=100)
    assert "vectorized_elementwise_kernel<" in shown
    assert "at::native" not in shown
    assert "Memset (Device)" in shown
    assert "module" not in shown
    assert name in rl.table(rl.read(path), by="op", format="csv")


def test_counters_without_an_estimate_of_their_step_say_what_to_give() -> None:
    of = Case(model="report", dtype="as-is")
    work = Work(flops={"matmul.bf16": 1e9}, bytes={"dram": 1e6}, origin="executed")
    counted = RecordSet([Record(case=of, source="counters", scope="kernel", name="k", work=work)])
    estimate = estimated(Case(model="m", batch=8, dtype="bf16"), *images(8, 224))
    (item,) = (item for item in join(counted + estimate) if item.time is not None)
    assert (item.apart or "").endswith("give --model m --batch 8 --dtype bf16 if it ran so")
    told = replace(counted.records[0], case=Case(model="m", batch=8, dtype="bf16"))
    assert [item.apart for item in join(RecordSet([told]) + estimate)] == [None, None]


def test_estimates_that_count_one_step_differently_are_told_apart(tmp_path: Path) -> None:
    cases = [
        Case(model="m", batch=8, dtype="bf16", device="l4", options=o)
        for o in ((("causal", True),), (("fusion", "pointwise"),))
    ]
    both = RecordSet([record for case in cases for record in estimated(case, *images(8, 160))])
    read = rl.read(trace(tmp_path, *IMAGES), case={"model": "m", "batch": 8, "dtype": "bf16"}, device="l4")
    (why,) = (item.apart for item in join(read + both) if item.time is not None)
    assert why is not None
    assert "2 are of this step, and count it differently: " in why
