"""Two files of kernels: by name, then by order; nothing is lost."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflens as rl
from rooflens.compare import compare_kernels
from rooflens.compare.kernel_pairs import spelling
from rooflens.errors import AmbiguousResult, Incomparable, InvalidValue
from rooflens.records import LEVELS, Case, Record, Timing, Work
from rooflens.results import RecordSet

DATA = Path(__file__).parent / "data" / "ncu"
FILE = Case(model="report", dtype="as-is")


def launch(name: str, seconds: float | None = 1.0, case: Case = FILE, flops: float = 8) -> Record:
    return Record(
        case=case,
        source="counters",
        scope="kernel",
        name=name,
        timing=None if seconds is None else Timing(samples=(seconds,), origin="ncu"),
        work=Work(flops={"vector.fp32": flops}, bytes={"dram": 4}, origin="executed"),
    )


def launches(*pairs: tuple[str, float]) -> RecordSet:
    return RecordSet(launch(name, seconds) for name, seconds in pairs)


def test_the_nth_launch_of_a_name_meets_the_nth_of_that_name() -> None:
    found = compare_kernels(launches(("a", 1), ("b", 2), ("a", 3)), launches(("a", 10), ("a", 30), ("c", 5)))
    times = [
        (item.name, item.number, item.before and item.before.timing, item.after and item.after.timing)
        for item in found.launches
    ]
    assert [(name, number, one and one.median, other and other.median) for name, number, one, other in times] == [
        ("a", 1, 1, 10),
        ("b", 1, 2, None),
        ("a", 2, 3, 30),
        ("c", 1, None, 5),
    ]
    assert [(item.name, item.number) for item in found.only_before] == [("b", 1)]
    assert [(item.name, item.number) for item in found.only_after] == [("c", 1)]


def test_kernels_are_summed_by_name_the_largest_change_first() -> None:
    found = compare_kernels(launches(("a", 1), ("b", 2), ("a", 3)), launches(("a", 10), ("a", 30), ("c", 5)))
    assert [(kernel.name, kernel.gained, kernel.ratio) for kernel in found.kernels] == [
        ("a", 36, 10),
        ("c", 5, None),
        ("b", -2, None),
    ]
    first = found.kernels[0]
    assert (first.before.launches, first.before.seconds, first.before.flops, first.before.dram) == (2, 4, 16, 8)
    assert (found.total.before.seconds, found.total.after.seconds, found.total.ratio) == (6, 45, 7.5)


def test_an_unknown_time_makes_a_sum_unknown() -> None:
    found = compare_kernels(RecordSet([launch("a"), launch("a", None)]), launches(("a", 1)))
    assert (found.kernels[0].before.seconds, found.kernels[0].ratio) == (None, None)


def test_flop_that_were_not_all_counted_make_a_sum_unknown() -> None:
    lower = replace(launch("a"), work=Work(flops={"vector.fp32": 8}, origin="executed", missing=frozenset({"a"})))
    found = compare_kernels(RecordSet([launch("a"), lower]), launches(("a", 1)))
    assert (found.kernels[0].before.flops, found.kernels[0].after.flops, found.total.before.flops) == (None, 8, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void f<(int)128, (bool)0>(T1 *, const T2 &)", "void f<128,0>(T1*, const T2&)"),
        ("void at::native::<unnamed>::pool<c10::Half>(int)", "void at::<unnamed>::pool<c10::Half>(int)"),
        ("void (anonymous namespace)::g<(unsigned long)2>(T)", "void g<2>(T)"),
    ],
)
def test_the_same_kernel_in_two_spellings(one: str, other: str) -> None:
    assert spelling(one) == spelling(other)
    (found,) = compare_kernels(launches((one, 1)), launches((other, 2))).launches
    assert found.paired
    assert found.name == one


def test_other_arguments_are_another_kernel() -> None:
    assert spelling("f<float, 4>(int)") != spelling("f<float, 8>(int)")
    assert spelling("gemm_128x64") != spelling("gemm_64x64")


def test_two_pages_of_one_workload_meet_launch_by_launch() -> None:
    # Two runs of one workload, printed as two pages that spell names differently (README of the data): 42 launches
    # each, 289,632 ns and 288,960 ns, equal tensor totals.
    raw, long = rl.read(DATA / "raw_alexnet_b4_fp16_nvtx.csv"), rl.read(DATA / "long_alexnet_b4_fp16_nvtx.csv")
    found = compare_kernels(raw, long)
    assert len(found.launches) == 42
    assert all(item.paired for item in found.launches)
    assert found.total.before.seconds == pytest.approx(289_632e-9)
    assert found.total.after.seconds == pytest.approx(288_960e-9)
    assert found.total.before.flops == found.total.after.flops
    places = [(item.before.path, item.after.path) for item in found.launches if item.before and item.after]
    assert all(one == other for one, other in places), "each launch meets that of its own module"


def test_a_side_without_kernels_is_an_error() -> None:
    with pytest.raises(Incomparable, match="the second side holds no kernels"):
        compare_kernels(launches(("a", 1)), RecordSet(()))


def test_kernels_of_several_cases_are_not_mixed() -> None:
    other = replace(FILE, model="other")
    with pytest.raises(AmbiguousResult, match=r"the first side holds the kernels of 2 cases \(report.*other"):
        compare_kernels(RecordSet([launch("a"), launch("a", case=other)]), launches(("a", 1)))


def test_stated_work_is_no_launch() -> None:
    stated = replace(launch("a"), case=replace(FILE, options=(("work", "stated"),)), work=Work(origin="stated"))
    found = compare_kernels(RecordSet([launch("a"), stated]), launches(("a", 1)))
    assert len(found.launches) == 1


NAMES = st.lists(st.sampled_from(["a", "b", "c<1>", "c<2>"]), min_size=1, max_size=12)


@given(NAMES, NAMES)
def test_no_launch_is_lost_or_doubled(before: Sequence[str], after: Sequence[str]) -> None:
    one, other = (RecordSet(launch(name) for name in names) for names in (before, after))
    found = compare_kernels(one, other)
    assert [item.before for item in found.launches if item.before is not None] == list(one)
    assert Counter(item.name for item in found.launches if item.after is not None) == Counter(after)
    assert sum(item.paired for item in found.launches) == (Counter(before) & Counter(after)).total()


def counted(path: str, seconds: float, flops: float, moved: tuple[float, float, float], **more: object) -> Record:
    """A launch in a module; bytes of DRAM, L2 and L1."""
    work = Work(flops={"matmul.bf16": flops}, bytes=dict(zip(LEVELS, moved, strict=True)), origin="executed")
    record = replace(launch("gemm", seconds), path=path, work=work, phase="forward", kind="matmul")
    return replace(record, **more)  # type: ignore[arg-type]


def before_and_after() -> tuple[RecordSet, RecordSet]:
    """In fc 2 x 2 + 1 s become 4 s, 2 x 100 + 50 FLOP become 500; head is gone, and tail is new."""
    before = [
        counted("fc", 2, 100, (10, 20, 40), calls=2),
        counted("fc", 1, 50, (5, 10, 20)),
        counted("head", 1, 8, (1, 1, 1)),
    ]
    after = [counted("fc", 4, 500, (50, 25, 100)), counted("tail", 3, 8, (1, 1, 1), phase="backward")]
    return RecordSet(before), RecordSet(after)


def test_two_counted_steps_are_put_side_by_side_by_module() -> None:
    found = compare_kernels(*before_and_after(), by="module")
    tail, fc, head = found.kernels  # which changed by 3, -1 and -1 s
    assert (fc.name, fc.before.launches, fc.after.launches, fc.before.seconds, fc.after.seconds) == ("fc", 3, 1, 5, 4)
    assert (fc.ratio, fc.gained, fc.before.flops, fc.flops_ratio) == (0.8, -1, 250, 2.0)
    assert [fc.before.bytes[level] for level in LEVELS] == [25, 50, 100]
    assert [fc.bytes_ratio(level) for level in LEVELS] == [2.0, 0.5, 1.0]
    assert (tail.name, tail.ratio, tail.gained, tail.before.launches) == ("tail", None, 3, 0)
    assert (head.name, head.ratio, head.gained) == ("head", None, -1)
    assert (found.total.before.seconds, found.total.after.seconds, found.total.after.flops) == (6, 7, 508)


def test_what_only_sums_in_another_order_did_not_grow() -> None:
    """0.1 + 0.2 + 0.3 is 0.6000000000000001, 0.3 + 0.3 is 0.6."""
    found = compare_kernels(launches(("a", 0.1), ("b", 0.5)), launches(("a", 0.1), ("b", 0.5)), by="kernel")
    thirds = replace(found.total, before=replace(found.total.before, seconds=0.1 + 0.2 + 0.3))
    assert replace(thirds, after=replace(thirds.after, seconds=0.3 + 0.3)).gained == 0


def test_phases_and_families_are_put_side_by_side_too() -> None:
    forward, backward = sorted(
        compare_kernels(*before_and_after(), by="phase").kernels, key=lambda each: -len(each.name)
    )[::-1]
    assert (forward.name, forward.before.seconds, forward.after.seconds) == ("forward", 6, 4)
    assert (backward.name, backward.before.launches, backward.after.seconds) == ("backward", 0, 3)
    (products,) = compare_kernels(*before_and_after(), by="family").kernels
    assert (products.name, products.ratio) == ("matmul", 7 / 6)


def test_what_launches_do_not_tell_is_no_side_by_side() -> None:
    with pytest.raises(Incomparable, match="the first side does not tell the module of any of its kernels"):
        compare_kernels(launches(("a", 1)), before_and_after()[1], by="module")
    nowhere = RecordSet([counted("(unattributed)", 1, 1, (1, 1, 1))])
    with pytest.raises(Incomparable, match="the second side does not tell the module of any of its kernels"):
        compare_kernels(before_and_after()[0], nowhere, by="module")
    with pytest.raises(InvalidValue, match="not put together by 'op'; known: kernel, phase, module, family"):
        rl.compare(*before_and_after(), by="op", question="kernels")


def test_pieces_of_two_counted_steps_are_shown_with_every_level(tmp_path: Path) -> None:
    """Beside an estimate, as `rooflens counters` writes it, pieces are asked of the kernels too."""
    sides = before_and_after()
    case = Case(model="mine", batch=1)
    estimate = Record(case=case, source="estimate", scope="op", work=Work(flops={"matmul.bf16": 8}))
    files = [
        RecordSet([*(replace(r, case=case) for r in side), estimate]).save(tmp_path / f"{n}.jsonl")
        for n, side in enumerate(sides)
    ]
    assert type(rl.compare(*files)).__name__ == "RunComparison"
    shown = rl.table(rl.compare(*files, by="module"), width=80)
    assert re.search(r"fc +3 +1 +5.00 s +4.00 s +0.8 +-1.00 s", shown)
    assert re.search(r"fc +250 +500 +2.00 +25.0 B +50.0 B +2.00", shown)
    assert re.search(r"fc +50.0 B +25.0 B +0.5 +100 B +100 B +1.00", shown)
    assert "without a partner" not in shown
    lines = list(csv.DictReader(rl.table(rl.compare(*files, by="module"), format="csv").splitlines()))
    assert [(line["module"], line["l2_ratio"], line["seconds_before"]) for line in lines] == [
        ("tail", "", ""),
        ("fc", "0.5", "5"),
        ("head", "", "1"),
    ]


def test_the_name_of_a_kernel_without_the_bracket_that_a_tool_lost() -> None:
    assert (
        spelling("unnamed>::gemm(const float *)") == spelling("<unnamed>::gemm(const float *)") == "gemm(const float*)"
    )
