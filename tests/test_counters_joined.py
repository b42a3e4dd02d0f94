"""Counted kernels beside the same kernels of a plain run, and beside what the algorithm needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import rooflens as rl
from rooflens.compare.executed_work import executed
from rooflens.errors import InvalidValue
from rooflens.records import Case, Phase, Record, Timing, Work
from rooflens.report.executed_work import below, by_family
from rooflens.report.part_tables import part_rows
from rooflens.results import UNATTRIBUTED, Coverage, RecordSet, join
from rooflens.running.attributing import REPLAYED, attributed
from rooflens.sources.profile import TimeShare
from rooflens.sources.profile.events import DeviceActivity
from rooflens.sources.profile.places import EventPlace

OWN = Path(__file__).parent / "data" / "ncu"
CASE = Case(model="net", device="h200-sxm-141gb", batch=2, dtype="bf16")


def counted(name: str, flops: float = 100, dram: float = 10) -> Record:
    return Record(
        case=CASE,
        source="counters",
        scope="kernel",
        path=UNATTRIBUTED,
        kind="other",
        name=name,
        work=Work(flops={"matmul.bf16": flops}, bytes={"dram": dram, "l2": 2 * dram}, origin="executed"),
        timing=Timing(samples=(9.0,), origin="ncu"),
    )


def launched(
    name: str, number: int, operation: str | None = "addmm", path: str | None = "fc", kind: str = "kernel"
) -> TimeShare:
    activity = DeviceActivity(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        start=float(-number),  # streams may run in another order than the host launched
        seconds=float(number),
        correlation=number,
    )
    place = EventPlace(path=path, phase="forward")
    return TimeShare(seconds=float(number), place=place, operation=operation, call=number, activity=activity)


def test_a_kernel_takes_time_and_place_of_the_same_launch() -> None:
    shares = [launched("void at::native::relu<float>(int)", 2, "relu", "act"), launched("void gemm<1>(T)", 1)]
    first, second = attributed([counted("void gemm<(int)1>(T1)"), counted("void at::relu<float>(int)")], shares)
    assert (first.operation, first.kind, first.path, first.phase) == ("addmm", "matmul", "fc", "forward")
    assert (second.operation, second.kind, second.path) == ("relu", "elementwise", "act")
    assert first.timing == Timing(samples=(1.0,), origin="profiler")
    assert second.timing == Timing(samples=(2.0,), origin="profiler")


def test_kernels_of_one_run_only_stay_and_say_so() -> None:
    """The runs differ in the middle: a b x c against a y b c. What is common is joined, in order."""
    shares = [launched(name, n, path=name) for n, name in enumerate("aybc", start=1)]
    found = attributed([counted(name) for name in "abxc"], shares)
    assert [record.path for record in found] == ["a", "b", UNATTRIBUTED, "c"]
    assert [REPLAYED in record.notes for record in found] == [False, False, True, False]
    assert found[2].timing == Timing(samples=(9.0,), origin="ncu")


def test_copies_have_a_time_and_no_counters() -> None:
    shares = [launched("gemm", 1), launched("Memcpy HtoD", 2, "copy_", kind="memcpy")]
    _, copy = attributed([counted("gemm")], shares)
    assert copy.work is None
    assert copy.timing == Timing(samples=(2.0,), origin="profiler")
    assert copy.operation == "copy_"


def estimate(name: str, path: str, flops: float, dram: float, kind: str, phase: Phase = "forward") -> Record:
    work = Work(flops={"matmul.bf16": flops}, bytes={"dram": dram})
    return Record(case=CASE, source="estimate", scope="op", name=name, path=path, kind=kind, phase=phase, work=work)


def both(shares: list[TimeShare], names: list[str], estimates: list[Record]) -> RecordSet:
    kernels = attributed([counted(name, flops=100 * n) for n, name in enumerate(names, start=1)], shares)
    return RecordSet([*estimates, *kernels], devices={"h200-sxm-141gb": rl.device("h200-sxm-141gb")})


def test_executed_over_algorithmic() -> None:
    """Two kernels of 100 and 200 FLOP do one product of 150: 2.0. They move 20 bytes where 40 are compulsory: 0.5."""
    shares = [launched("split", 1), launched("gemm", 2), launched("relu", 3, "relu", "act")]
    records = both(
        shares,
        ["split", "gemm", "relu"],
        [
            estimate("addmm", "fc", 150, 40, "matmul"),
            estimate("relu", "act", 0, 20, "elementwise"),
            estimate("dropout", "drop", 1, 1, "elementwise"),
        ],
    )
    matmul, elementwise = executed(records, "family")
    assert (matmul.key, matmul.kernels, matmul.seconds) == ("matmul", 2, 3.0)
    assert matmul.flops_ratio == 2.0
    assert matmul.bytes_ratio == 0.5
    assert elementwise.flops_ratio == 300
    assert elementwise.bytes_ratio == pytest.approx(10 / 21)
    modules = {item.key: item for item in executed(records, "module")}
    assert modules["drop"].kernels == 0  # nothing was launched for it
    assert modules["drop"].flops_ratio is None
    (whole,) = below(executed(records, "module"), 0)
    assert whole.kernels == 3
    assert whole.seconds == 6.0
    assert whole.flops_ratio == 600 / 151


def test_kernels_without_a_phase_are_of_the_only_one_that_was_estimated() -> None:
    """As a file with ranges of modules has them: 100 FLOP where 50 are needed, 10 bytes where 40 are compulsory."""
    ours = replace(counted("gemm"), path="fc")
    found = RecordSet([estimate("addmm", "fc", 50, 40, "matmul"), ours])
    (item,) = executed(found, "module")
    assert (item.phase, item.key, item.flops_ratio, item.bytes_ratio) == ("forward", "fc", 2.0, 0.25)
    assert "Executed and algorithmic work by module" in rl.table(found)
    backward = replace(estimate("addmm", "fc", 50, 40, "matmul"), phase="backward")
    several = executed(RecordSet([*found, backward]), "module")
    assert {item.phase: item.flops_ratio for item in several} == {"forward": None, "backward": None, None: None}


def test_flops_that_were_not_counted_give_no_ratio() -> None:
    records = both([launched("gemm", 1)], ["gemm"], [estimate("addmm", "fc", 100, 40, "matmul")])
    work = Work(flops={"vector.fp32": 1}, bytes={"dram": 10}, origin="executed", missing=frozenset({"gemm"}))
    lacking = RecordSet(
        [
            r if r.source == "estimate" else Record(**{f: getattr(r, f) for f in r.__slots__} | {"work": work})
            for r in records
        ],
        devices=records.devices,
    )
    (item,) = executed(lacking, "family")
    assert item.flops_ratio is None
    assert item.bytes_ratio == 0.25


def test_flops_without_a_formula_give_no_ratio() -> None:
    """100 FLOP were executed; of the 40 that are estimated nobody knows whether they are all."""
    known = estimate("addmm", "fc", 40, 40, "matmul")
    assert known.work is not None
    lower = replace(known, work=replace(known.work, missing=frozenset({"mylib::gemm"})))
    (item,) = executed(both([launched("gemm", 1)], ["gemm"], [lower]), "family")
    assert (item.flops_ratio, item.bytes_ratio) == (None, 0.25)
    (row,) = by_family([item], known.case, Coverage(operations=1, counted=1, uncounted=(), bytes_share=1)).rows
    assert [(entry.value, entry.sign) for entry in row if entry.sign] == [(40, ">=")]


def test_a_call_that_does_all_that_a_module_does_is_held_against_all_of_it() -> None:
    """Multi-head attention as one call: its projections are products in the estimate, and no kernel of theirs runs."""
    shares = [launched("proj", 1, "_native_multi_head_attention", "mha"), launched("gemm", 2)]
    records = both(
        shares,
        ["proj", "gemm"],
        [
            estimate("mm", "mha", 40, 10, "matmul"),
            estimate("attention", "mha", 10, 10, "attention"),
            estimate("addmm", "fc", 100, 10, "matmul"),
        ],
    )
    attention, matmul = executed(records, "family")
    assert attention.key == "attention"
    assert attention.flops_ratio == 100 / 50
    assert matmul.flops_ratio == 200 / 100


def test_without_an_estimate_there_is_nothing_to_compare() -> None:
    assert executed(RecordSet([counted("gemm")]), "family") == ()


def test_the_tables_show_the_ratios() -> None:
    records = both([launched("gemm", 1)], ["gemm"], [estimate("addmm", "fc", 80, 40, "matmul")])
    text = rl.table(records, width=200)
    assert "Executed and algorithmic work by family" in text
    row = next(line for line in text.splitlines() if line.startswith("matmul") and "1.250" in line)
    assert "0.25" in row
    assert "counted 1 of 1 kernels" in text


def test_a_file_whose_case_is_named_meets_its_estimate(tmp_path: Path) -> None:
    """The kernels of ResNet-18 at batch 32 in tf32, without ranges: 118,078,046,208 tensor operations and
    1,220,434,112 FLOP of the lanes, as the file's README adds them up.
    """
    rl.estimate("resnet18", batch=32, dtype="tf32").save(tmp_path / "est.jsonl")
    case = {"model": "resnet18", "batch": 32, "dtype": "tf32"}
    found = rl.read(OWN / "raw_resnet18_b32_tf32.csv", tmp_path / "est.jsonl", case=case)
    items = executed(found, "family")
    together = sum(item.executed.flops or 0 for item in items)
    assert together == pytest.approx(118_078_046_208 + 1_220_434_112, rel=1e-3)
    row = [line for line in rl.table(found, width=200).splitlines() if line.startswith("total")][-1]
    algorithmic = found.where(source="estimate").total().flops
    assert algorithmic is not None
    assert f"{together / algorithmic:.3f}" in row
    unused = "the files tell their own cases: what you say of the case is not used"
    assert unused in rl.read(tmp_path / "est.jsonl", case=case).notes
    assert unused not in found.notes
    assert unused not in rl.read(tmp_path / "est.jsonl", case={"optimizer": "sgd"}).notes  # as it is by default
    with pytest.raises(InvalidValue, match="'card'"):
        rl.read(OWN / "raw_resnet18_b32_tf32.csv", case={"card": "h200"})


def test_copies_are_no_launches_whose_counters_are_missing() -> None:
    shares = [launched("gemm", 1), launched("Memcpy HtoD", 2, "copy_", kind="memcpy")]
    records = both(shares, ["gemm"], [estimate("addmm", "fc", 80, 40, "matmul")])
    codes = {finding.code for finding in rl.check(records)}
    assert "metric-incomplete" not in codes
    # They take of the step's time all the same: 1 and 2 of 3 s.
    (item,) = join(records.where(source="counters"))
    shares_of = {row.part.name: (row.seconds, row.of_seconds) for row in part_rows(item, "kernel")}
    assert shares_of == {"gemm": (1.0, 3.0), "Memcpy HtoD": (2.0, 3.0)}


def test_a_picture_names_the_pieces_whose_flop_are_a_lower_bound() -> None:
    some = Work(flops={"matmul.bf16": 5.0}, bytes={"dram": 1.0}, origin="executed", missing=frozenset({"gemm"}))
    found = RecordSet([replace(counted("gemm"), work=some), counted("relu")], devices={})
    note = "At least: not all FLOP are known of kernel 1; whole step. Their marks lie further up and to the right."
    assert note in rl.roofline(found, by="kernel").notes
    assert not any("At least" in its for its in rl.roofline(RecordSet([counted("relu")], devices={})).notes)
