"""Estimate and profile side by side: every module has its measured time and its measured point."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from tests.table_samples import device, operation

import rooflens as rl
from rooflens.records import Case, Phase, Record, Scope, Timing, Work
from rooflens.report.figures.roofline import roofline_figure
from rooflens.report.module_tables import module_tree
from rooflens.report.overview import tables_of
from rooflens.report.summary import summary
from rooflens.report.table import Entry, Table
from rooflens.results import UNATTRIBUTED, RecordSet
from rooflens.results.evidence import join, piecewise

CASE = Case(model="net", device="toy", batch=2, mode="train")


def timed(
    path: str, seconds: float, phase: Phase | None, name: str = "mm", scope: Scope = "op", case: Case = CASE
) -> Record:
    timing = Timing(samples=(seconds,), origin="profiler")
    return Record(
        case=case, source="profile", scope=scope, path=path, kind="matmul", name=name, phase=phase, timing=timing
    )


def estimated(case: Case = CASE) -> RecordSet:
    """On 1 GFLOP/s and 1 GB/s: a.x 2 ms forward and 4 ms backward, a.y 1 ms (memory), b 3 ms, optimizer 1 ms."""

    def products(flops: float) -> Work:
        return Work(flops={"matmul.fp32": flops}, bytes={"dram": 1e5})

    moved = Work(bytes={"dram": 1e6})
    records = [
        operation(case, "a.x", "matmul", products(2e6), name="mm"),
        operation(case, "a.x", "matmul", products(4e6), phase="backward", name="mm"),
        operation(case, "a.y", "copy", moved, name="clone"),
        operation(case, "b", "matmul", products(3e6), name="mm"),
        operation(case, "(optimizer)", "copy", moved, phase="optimizer", name="copy_"),
    ]
    return RecordSet(records, devices={"toy": device()})


def profiled(case: Case = CASE) -> RecordSet:
    """Half of the bound's speed in a, three quarters in b, a kernel of nobody; note in a record of its own."""
    note = Record(case=case, source="profile", scope="model", notes=("profiled once",))
    records = [
        timed("a.x", 4e-3, "forward", case=case),
        timed("a.x", 8e-3, "backward", case=case),
        timed("a.y", 2e-3, "forward", name="clone", case=case),
        timed("b", 4e-3, "forward", case=case),
        timed("(optimizer)", 0.5e-3, "optimizer", name="copy_", case=case),
        timed(UNATTRIBUTED, 1.5e-3, None, name="odd_kernel", scope="kernel", case=case),
        note,
    ]
    return RecordSet(records, devices={"toy": device()})


def measured(case: Case = CASE) -> RecordSet:
    times: dict[Phase, float] = {"forward": 11e-3, "backward": 9e-3, "optimizer": 1e-3}
    return RecordSet(
        Record(
            case=case,
            source="measure",
            scope="model",
            phase=phase,
            timing=Timing(samples=(seconds,) * 8, origin="monotonic"),
        )
        for phase, seconds in times.items()
    )


def cells(table: Table, key: str) -> list[Entry]:
    place = [column.key for column in table.columns].index(key)
    return [row[place] for row in table.rows]


def values(table: Table, key: str) -> list[object]:
    return [cell.value for cell in cells(table, key)]


def test_each_module_has_its_bound_its_time_and_its_efficiency() -> None:
    table = module_tree(estimated(), times=profiled())
    assert values(table, "path") == ["", "a", "a.x", "a.y", "b", "(optimizer)", UNATTRIBUTED]
    assert values(table, "seconds")[:6] == pytest.approx([10e-3, 7e-3, 6e-3, 1e-3, 3e-3, 1e-3])
    assert values(table, "measured_seconds") == pytest.approx([18e-3, 14e-3, 12e-3, 2e-3, 4e-3, 0.5e-3, 1.5e-3])
    assert values(table, "own_measured_seconds")[:2] == [None, None]
    assert values(table, "efficiency")[:6] == pytest.approx([10 / 18, 0.5, 0.5, 0.5, 0.75, 2.0])
    # Time without work has no bound, and the optimizer was faster than its bound allows.
    assert (values(table, "seconds")[6], values(table, "efficiency")[6]) == (None, None)
    assert [cell.mark for cell in cells(table, "efficiency")] == ["", "", "", "", "", "!", ""]
    assert "profiled once" in table.notes
    assert any(note.startswith("! faster than the bound") for note in table.notes)


def test_a_phase_has_its_own_times() -> None:
    table = module_tree(estimated(), phase="backward", times=profiled())
    assert values(table, "path") == ["", "a", "a.x"]
    assert values(table, "measured_seconds") == pytest.approx([8e-3] * 3)


@pytest.mark.parametrize(("odd", "shown"), [(1.5e-3, "Operations"), (30e-3, "Kernels")])
def test_what_holds_more_of_the_time_is_shown_of_a_trace(odd: float, shown: str) -> None:
    """Its operations take 18.5 ms; a kernel that belongs to none takes less, or more."""
    times = profiled()
    more = timed(UNATTRIBUTED, odd - 1.5e-3, None, name="odd", scope="kernel") if odd > 1.5e-3 else None
    records = RecordSet((*times.records, *([more] if more else ())), devices={"toy": device()})
    assert [table.title.partition(":")[0] for table in tables_of(records)] == ["Summary", shown]


def test_without_a_profile_the_tree_has_no_columns_of_time() -> None:
    text = rl.table(estimated())
    assert "measured" not in text.split("Modules")[1]
    assert values(module_tree(estimated()), "measured_seconds") == [None] * 6


def test_tables_for_people_show_the_measured_time_of_modules() -> None:
    modules = rl.table(estimated(), profiled(), depth=2, width=200).split("Modules")[1]
    (line,) = [line for line in modules.splitlines() if line.strip().startswith("b ")]
    assert line.split()[-6:] == ["4.000", "ms", "20.0", "%", "75.0", "%"]
    assert UNATTRIBUTED in modules


def test_times_of_a_profiler_are_headed_so_beside_the_measured_step() -> None:
    text = rl.table(estimated(), measured(), profiled(), width=250)
    for title, header in (("Summary", "measured"), ("Operation families", "profiled"), ("Modules", "profiled")):
        headers = text.split(f"{title}: ")[1].split("\n--")[0].split()
        assert [word for word in headers if word in ("measured", "profiled")] == [header]


@pytest.mark.parametrize(
    ("clock", "header"), [("ncu", "profiled"), ("cuda-events", "measured"), ("monotonic", "measured")]
)
def test_only_times_of_a_profiler_are_headed_so(clock: Literal["ncu", "cuda-events", "monotonic"], header: str) -> None:
    records = profiled().with_records(
        replace(r, timing=r.timing and replace(r.timing, origin=clock)) for r in profiled()
    )
    by: Literal["op", "module", "family"]
    for by in ("op", "module", "family"):
        headers = rl.table(records, by=by, width=250).split("\n--")[0].split()
        assert ("profiled" in headers, "measured" in headers) == (header == "profiled", header == "measured")
        # Either name chooses the column, as its key does.
        for name in ("measured", "measured_seconds", header):
            assert header in rl.table(records, by=by, columns=[name], width=250).split()


def test_a_profile_alone_is_a_time_without_throughput() -> None:
    table = summary(estimated() + profiled())
    assert values(table, "phase") == ["forward", "backward", "optimizer", "step"]
    assert values(table, "measured_seconds") == pytest.approx([10e-3, 8e-3, 0.5e-3, 20e-3])
    assert values(table, "throughput") == [None] * 4
    assert set(values(table, "source")) == {"estimate + profile"}


def test_the_clock_times_the_whole_and_the_profile_the_pieces() -> None:
    together = estimated() + measured() + profiled()
    (item,) = join(together)
    assert item.sources == ("estimate", "measure", "profile")
    table = summary(together)
    assert values(table, "measured_seconds") == pytest.approx([11e-3, 9e-3, 1e-3, 21e-3])
    assert values(table, "throughput")[-1] == pytest.approx(2 / 21e-3)
    pieces = piecewise(together)
    assert pieces is not None
    assert pieces.sources == ("profile",)
    assert join(profiled() + estimated() + measured())[0].sources == item.sources


def test_a_measurement_and_its_profile_belong_together_without_an_estimate_too() -> None:
    (item,) = join(measured() + profiled())
    assert item.sources == ("measure", "profile")
    assert item.work is None


def test_profiles_of_other_cases_stay_with_their_own() -> None:
    other = Case(model="net", device="toy", batch=4, mode="train")
    together = estimated() + estimated(other) + measured() + profiled(other)
    assert [item.sources for item in join(together)] == [("estimate", "measure"), ("estimate", "profile")]


def test_a_figure_has_a_measured_point_for_each_module() -> None:
    figure = roofline_figure(estimated() + profiled(), by="module")
    points = {mark.label: mark.y for mark in figure.marks if mark.source == "profile" and not mark.whole}
    # a.x: 6 MFLOP in 12 ms; b: 3 MFLOP in 4 ms.
    assert points == pytest.approx({"a.x": 5e8, "b": 7.5e8})
    assert len([link for link in figure.links if link.group != "whole model"]) == 2
    shares = {mark.label: mark.share for mark in figure.marks if mark.source == "profile" and not mark.whole}
    # Of 20 ms seen piece by piece.
    assert shares == pytest.approx({"a.x": 0.6, "b": 0.2})


def test_a_figure_draws_no_point_twice() -> None:
    figure = roofline_figure(estimated() + measured() + profiled(), by="module")
    assert len(set(figure.marks)) == len(figure.marks)
    assert {mark.source for mark in figure.marks if mark.whole} == {"estimate", "measure"}
    assert {mark.source for mark in figure.marks if not mark.whole} == {"estimate", "profile"}


def test_operations_have_their_points_too() -> None:
    figure = roofline_figure(estimated() + profiled(), by="op")
    assert {mark.label for mark in figure.marks if mark.source == "profile" and not mark.whole} == {"a.x", "b fwd"}
