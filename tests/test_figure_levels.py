"""The hierarchical roofline: work at every memory level whose bytes are known, positions by hand."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.figure_samples import device, measured, operation, records
from tests.level_samples import CASE, WHERE, cached, crowd, kernel

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue
from rooflens.records import Case, Device, Record
from rooflens.report.figures.case_pieces import FEW_LAUNCHES
from rooflens.report.figures.labels import legend
from rooflens.report.figures.memory_levels import definitions
from rooflens.report.figures.palette import LEVEL_SHAPES, ceiling_dash, group_colours
from rooflens.report.figures.roofline import ABOVE, roofline_figure
from rooflens.report.figures.roofline_data import Mark, Tie
from rooflens.report.figures.saving import Figure
from rooflens.sources.counters.metrics import traffic

OWN = Path(__file__).parent / "data" / "ncu"
NERSC = Path(__file__).parent / "cases" / "90_roofline_hierarchical_nersc.py"
TOY = cached()


def drawn(*items: Record, devices: Sequence[Device] = (TOY,), **given: object) -> Figure:
    return roofline_figure(records(items, devices), **given)  # type: ignore[arg-type]


def parts(figure: Figure) -> list[Mark]:
    return [mark for mark in figure.marks if not mark.whole]


def at(figure: Figure, label: str) -> dict[str, Mark]:
    return {mark.level: mark for mark in figure.marks if mark.label == label}


class TestMarks:
    def test_one_performance_and_an_intensity_for_each_level(self) -> None:
        # 1 GFLOP in 1 ms; 400 MB, 100 MB and 10 MB.
        figure = drawn(kernel())
        assert figure.levels == WHERE
        assert figure.hierarchical
        marks = at(figure, "1")
        assert {level: mark.x for level, mark in marks.items()} == pytest.approx({"l1": 2.5, "l2": 10.0, "dram": 100.0})
        assert [mark.y for mark in marks.values()] == pytest.approx([1e12] * 3)
        assert figure.ties[0] == Tie(start=(2.5, 1e12), end=(100.0, 1e12))
        assert figure.x.label == "arithmetic intensity (FLOP per byte of the named level)"

    def test_levels_differ_by_colour_and_shape_and_dash(self) -> None:
        figure = drawn(kernel())
        assert figure.groups == WHERE
        assert {mark.group for mark in figure.marks} == set(WHERE)
        assert len(set(group_colours(figure.groups).values())) == 3
        assert len({LEVEL_SHAPES[level] for level in WHERE}) == 3
        assert len({ceiling_dash(0, 1, level, hierarchical=True) for level in WHERE}) == 3

    def test_the_whole_is_the_sum_over_the_sum(self) -> None:
        # 1 and 3 GFLOP, each with 10 MB from memory and 1 ms: not the mean of 100 and 300, and 4 GFLOP in 2 ms.
        (whole,) = (m for m in drawn(kernel(), kernel("other", flops=3e9)).marks if m.whole and m.level == "dram")
        assert (whole.x, whole.y) == pytest.approx((200.0, 2e12))

    @pytest.mark.parametrize("by", ["module", "model", "phase", "family", "op"])
    def test_other_pieces_than_kernels_have_levels_too(self, by: str) -> None:
        figure = drawn(kernel(path="a"), kernel(path="b", flops=3e9), by=by)
        assert {mark.level for mark in figure.marks} == set(WHERE)
        assert len(figure.ties) * 3 == len(figure.marks)
        assert figure.listing == ()

    def test_modules_have_names(self) -> None:
        figure = drawn(kernel(path="a"), kernel(path="a", flops=3e9), kernel(path="b"), by="module")
        assert {level: mark.x for level, mark in at(figure, "a").items()} == pytest.approx(
            {"l1": 4e9 / 8e8, "l2": 4e9 / 2e8, "dram": 4e9 / 2e7}
        )
        assert set(at(figure, "b")) == set(WHERE)

    def test_families_in_modules_have_the_colours_of_families(self) -> None:
        norms = [kernel(path=path, kind="normalization", flops=1e8) for path in "ab"]
        items = [kernel(path="a", kind="convolution"), *norms]
        figure = drawn(*items, kernel(path="a", kind="copy", flops={}), by="module-family")
        convolution = {mark.level: mark.x for mark in figure.marks if (mark.label, mark.group) == ("a", "convolution")}
        assert convolution["l2"] == pytest.approx(10.0)  # 1 GFLOP and 100 MB
        assert sorted(mark.x for mark in at(figure, "b").values()) == pytest.approx([0.25, 1.0, 10.0])
        assert figure.groups == ("normalization", "convolution", "copy", "whole model")  # by their shares
        assert (figure.levels_coloured, figure.rug[0].group) == (False, "copy")
        told = {row.text.text: row.symbol for row in legend(figure, group_colours(figure.groups))}
        assert {level: told[f"at {level}"] for level in WHERE} == LEVEL_SHAPES
        assert len({ceiling_dash(0, 1, level, hierarchical=True) for level in WHERE}) == 3

    def test_what_was_counted_at_some_levels_is_drawn_there(self) -> None:
        figure = drawn(kernel(), kernel("some", moved={"l2": 1e8, "dram": 1e7}, seconds=1e-4))
        assert set(at(figure, "2")) == {"l2", "dram"}
        missing = [(item.label, item.level, item.reason) for item in figure.unplaced]
        assert missing == [
            ("kernel 2", "l1", "its l1 bytes are not known"),
            ("whole step", "l1", "its l1 bytes are not known"),
        ]

    def test_no_byte_is_no_unknown_byte(self) -> None:
        figure = drawn(kernel(moved={"l2": 1e8, "dram": 0.0}))
        assert set(at(figure, "1")) == {"l2"}
        assert figure.unplaced[0].reason == "no byte passed dram: the intensity has no end"

    def test_launches_without_flop_are_on_the_rug(self) -> None:
        figure = drawn(kernel(), kernel("copy", flops={}, seconds=3e-3))
        (mark,) = figure.rug
        assert mark.share == pytest.approx(0.75)
        assert mark.group not in figure.groups

    def test_a_kernel_without_time_is_named(self) -> None:
        figure = drawn(kernel(), kernel("untimed", seconds=None))
        assert ("untimed", "its time was not counted") in [(item.label, item.reason) for item in figure.unplaced]
        assert set(at(figure, "1")) == set(WHERE)


class TestWhichLevels:
    def test_an_estimate_knows_dram_only(self) -> None:
        figure = drawn(operation(CASE, "a", "matmul", matmul=1e9), devices=[device()])
        assert figure.levels == ("dram",)
        assert figure.ties == ()

    def test_beside_counters_an_estimate_stands_at_dram(self) -> None:
        estimate = operation(replace(CASE, model="net"), "a", "convolution", vector=1e9, dram=1e7)
        figure = drawn(estimate, kernel())
        assert figure.levels == WHERE
        assert [mark.level for mark in figure.marks if mark.source == "estimate"] == ["dram"]
        assert figure.unplaced == ()

    def test_an_estimate_and_a_measurement_are_linked_on_such_a_figure(self) -> None:
        case = replace(CASE, model="net")
        estimate = operation(case, "a", "convolution", vector=1e9, dram=1e7)
        (link,) = drawn(estimate, measured(case, 1e-3), kernel()).links
        assert link.start[0] == pytest.approx(100.0)
        assert link.end == pytest.approx((100.0, 1e12))

    def test_the_estimate_of_what_was_counted_is_drawn_at_dram_only(self) -> None:
        estimate = operation(CASE, "a", "convolution", vector=1e9, dram=1e7)
        beside = drawn(estimate, kernel(), by="module")
        assert {mark.source for mark in beside.marks} == {"counters"}
        assert "level='dram' (--level) shows both" in beside.notes[-1]
        assert {mark.source for mark in drawn(estimate, kernel(), level="dram").marks} == {"estimate", "counters"}

    def test_those_that_are_asked_for_nearest_first(self) -> None:
        assert drawn(kernel(), level=["dram", "l1"]).levels == ("l1", "dram")
        figure = drawn(kernel(), level="l2")
        assert (figure.levels, figure.ties, figure.groups[0]) == (("l2",), (), "other")
        assert figure.x.label == "arithmetic intensity (FLOP per l2 byte)"

    def test_counters_without_dram_show_what_they_have(self) -> None:
        assert drawn(kernel(moved={"l2": 1e8})).levels == ("l2",)

    @pytest.mark.parametrize("level", ["l3", ["dram", "hbm"], []])
    def test_an_unknown_level_is_an_error(self, level: object) -> None:
        with pytest.raises(InvalidValue, match="known: dram, l2, l1"):
            drawn(kernel(), level=level)

    def test_without_records_those_of_the_device(self) -> None:
        assert drawn(devices=[TOY]).levels == WHERE
        assert drawn(devices=[device()]).levels == ("dram",)

    def test_many_devices_have_one_diagonal_each(self) -> None:
        many = [replace(TOY, name=f"d{i}", title=f"D {i}") for i in range(4)]
        figure = roofline_figure(records([]), devices=many)
        assert figure.levels == ("dram",)
        assert sum(line.kind == "memory" for line in figure.ceilings) == 4


class TestRoofs:
    def test_a_diagonal_for_each_level_up_to_the_flat(self) -> None:
        figure = drawn(kernel())
        ends = {line.resource: line.end for line in figure.ceilings if line.kind == "memory"}
        # 10 TFLOP/s over 16, 4 and 1 TB/s.
        assert ends["l1"] == pytest.approx((0.625, 1e13))
        assert ends["l2"] == pytest.approx((2.5, 1e13))
        assert ends["dram"] == pytest.approx((10.0, 1e13))
        (flat,) = (line for line in figure.ceilings if line.kind == "compute")
        assert flat.start == pytest.approx((0.625, 1e13))
        assert {ridge.level: ridge.x for ridge in figure.ridges} == pytest.approx(
            {"l1": 0.625, "l2": 2.5, "dram": 10.0}
        )

    def test_a_mark_is_held_against_its_own_level(self) -> None:
        # 400 MB through L2 in 50 us are 8 TB/s of 4; 1 MB from memory are 0.02 of 1 TB/s; 2 of 10 TFLOP/s.
        fast = kernel(flops=1e8, moved={"l2": 4e8, "dram": 1e6}, seconds=5e-5)
        figure = drawn(fast)
        assert {level: mark.above_roof for level, mark in at(figure, "1").items()} == {"l2": True, "dram": False}
        assert ABOVE in figure.notes
        assert all(figure.x.low < mark.x < figure.x.high for mark in figure.marks)

    def test_a_level_without_roof_is_drawn_and_told(self) -> None:
        bare = device(compute={"vector.fp32": 1e13})
        figure = drawn(kernel(), devices=[bare])
        assert set(at(figure, "1")) == set(WHERE)
        assert [line.resource for line in figure.ceilings if line.kind == "memory"] == ["dram"]
        assert any(note.startswith("No roof of Toy 100 is known at l1 and l2:") for note in figure.notes)
        assert not any("No roof" in note for note in drawn(kernel()).notes)

    def test_lanes_of_another_precision_have_their_roof_where_they_do_most(self) -> None:
        rates = {"vector.fp32": 1e13, "vector.fp64": 5e12, "matmul.fp64": 2e13}
        double = kernel(flops={"vector.fp64": 1e9, "vector.fp32": 1e3})
        figure = drawn(double, devices=[cached(compute=rates)])
        assert [line.resource for line in figure.ceilings if line.kind == "compute"] == ["vector.fp32", "vector.fp64"]

    def test_ceilings_that_a_file_holds_are_drawn_by_their_name(self) -> None:
        counted = replace(TOY, name="toy-100-ncu", title="Toy 100, peaks in report.csv")
        found = records([kernel()], [TOY, counted])
        assert rl.roofline(found).devices == ("Toy 100",)
        assert rl.roofline(found, device="toy-100-ncu").devices == ("Toy 100", "Toy 100, peaks in report.csv")


class TestKernels:
    def test_few_launches_are_shown_one_by_one(self) -> None:
        figure = drawn(kernel(), kernel(flops=3e9, seconds=2e-3))
        assert {mark.label for mark in parts(figure)} == {"1", "2"}
        assert figure.listing == (
            "1: 66.7 % of the time, gemm, launch 2 of 2",
            "2: 33.3 % of the time, gemm, launch 1 of 2",
        )
        assert "one mark per kernel launch, at each memory level" in figure.subtitle

    def test_many_launches_are_shown_by_name(self) -> None:
        many = [kernel(flops=1e9 if i % 2 else 3e9) for i in range(FEW_LAUNCHES)]
        figure = drawn(*many, kernel("other", seconds=1e-3))
        # 6 launches of 1 GFLOP and 6 of 3: 24 GFLOP, 120 MB from memory, 12 ms.
        mark = at(figure, "1")["dram"]
        assert (mark.x, mark.y) == pytest.approx((200.0, 2e12))
        assert figure.listing[0] == f"1: {100 * 12 / 13:.3g} % of the time, 12 launches, gemm"
        assert "one mark per kernel, its launches together" in figure.subtitle

    def test_those_that_take_most_time_are_drawn_and_the_others_counted(self) -> None:
        launches = [kernel(f"k{i}", seconds=1e-3 * (15 - i)) for i in range(15)]
        figure = drawn(*launches)
        assert len(parts(figure)) == 12 * 3
        # 3, 2 and 1 of 120 ms.
        left = "Drawn: 12 of 15 kernels, those that take most time, and 3 more (5 % of the time) with top=15 (--top)."
        assert left in figure.notes
        assert len(parts(drawn(*launches, top=15))) == 15 * 3
        assert [line.rpartition(" ")[2] for line in drawn(*launches, top=2).listing] == ["k0", "k1"]
        with pytest.raises(InvalidValue, match="at least 1"):
            drawn(*launches, top=0)

    def test_a_whole_is_never_left_out(self) -> None:
        assert {m.label for m in drawn(*crowd(), top=1).marks if m.whole} == {"whole step"}

    def test_kernels_of_several_cases_have_numbers_of_their_own(self) -> None:
        other = replace(CASE, model="before")
        figure = drawn(kernel(), kernel("b"), kernel("c", case=other), by="kernel")
        assert figure.listing == (
            "report fp32 inference on toy-100:",
            "1: 50 % of the time, gemm",
            "2: 50 % of the time, b",
            "before fp32 inference on toy-100:",
            "3: 100 % of the time, c",
        )
        assert {mark.label for mark in parts(figure)} == {"1", "2", "3"}

    def test_an_estimate_has_none(self) -> None:
        figure = drawn(operation(CASE, "a", "matmul", vector=1e9), by="kernel")
        assert figure.unplaced[0].reason.startswith("no kernel was counted")

    def test_one_level_has_numbers_too(self) -> None:
        figure = drawn(kernel(), kernel("other", flops=3e9), level="dram")
        assert [mark.label for mark in figure.marks] == ["1", "2", "whole step"]
        assert figure.group_title == "operation family"


class TestWhatTheBytesAre:
    def test_every_way_to_count_has_its_words(self) -> None:
        for way in traffic():
            notes = (way.note,) if way.note else ()
            (words,) = definitions([kernel(moved={way.level: 1.0}, notes=notes)], (way.level, "l1"))
            metric = next(iter(way.terms)).removesuffix(".sum").removesuffix("_read").removesuffix("_op")
            assert f"{way.level} bytes are " in words
            assert metric in words

    def test_the_nearest_level_comes_first_and_each_is_told_once(self) -> None:
        note = "l2 bytes are lts__t_bytes: all requests to L2"
        (words,) = definitions([kernel(notes=(note,)), kernel(notes=(note,))], WHERE)
        places = [words.index(f"{level} bytes are") for level in WHERE]
        assert places == sorted(places)
        assert words.count("lts__") == 1
        assert words.endswith("Nsight Compute's own charts define l1 and l2 in another way.")

    def test_a_mark_tells_what_is_known_of_the_bytes_of_its_level(self) -> None:
        all_requests = "l2 bytes are lts__t_bytes: all requests to L2"
        in_cache = "writes were still in L2 at the end of a kernel: dram bytes are less than it wrote"
        figure = drawn(kernel(notes=(all_requests, in_cache)))
        told = {level: set(mark.hover) & {all_requests, in_cache} for level, mark in at(figure, "1").items()}
        assert told == {"l1": set(), "l2": {all_requests}, "dram": {in_cache}}

    def test_other_tools_are_not_spoken_for(self) -> None:
        launch = kernel()
        assert launch.timing is not None
        assert list(definitions([replace(launch, timing=replace(launch.timing, origin="monotonic"))], WHERE)) == []

    def test_kernels_that_load_past_l1_have_no_mark_there(self) -> None:
        figure = roofline_figure(rl.read(OWN / "raw_resnet18_b32_tf32.csv"), top=99)
        names = {line.partition(":")[0]: line for line in figure.listing}
        levels = {label: set(at(figure, label)) for label in names}
        warp_groups = {label for label, line in names.items() if "sm90_xmma" in line}
        assert len(warp_groups) == 4
        assert {label for label, seen in levels.items() if seen == {"l2", "dram"}} == warp_groups
        assert all(seen == set(WHERE) for label, seen in levels.items() if label not in warp_groups)
        assert {m.level for m in figure.marks if m.whole} == {"l2", "dram"}
        why = {item.reason.partition(":")[0] for item in figure.unplaced if item.level == "l1"}
        assert why == {"l1 bytes miss what went past L1TEX's tags (loads by TMA of wgmma kernels)"}


def test_the_hierarchical_roofline_of_nersc() -> None:
    case = runpy.run_path(str(NERSC))
    data, expected = case["DATA"], case["EXPECT"]
    roof = {level: 1e9 * data["roofs"][name] for level, name in (("l1", "L1"), ("l2", "L2"), ("dram", "HBM"))}
    v100 = cached(roof["dram"], roof["l2"], roof["l1"], compute={"vector.fp64": 1e9 * data["fma"]})
    launches = [
        kernel(
            f"nw{i + 1}",
            flops={"vector.fp64": 1e9 * gflops},
            moved={
                level: 1e9 * gflops / data["ai"][name][i]
                for level, name in (("l1", "L1"), ("l2", "L2"), ("dram", "HBM"))
            },
            seconds=1.0,
        )
        for i, gflops in enumerate(data["gflops"])
    ]
    figure = drawn(*launches, devices=[v100])
    (ridge,) = (ridge for ridge in figure.ridges if ridge.level == "dram")
    assert ridge.x == pytest.approx(expected["ridge_hbm"], abs=1e-4)
    words = {"HBM": "dram", "FMA": "vector.fp64"}
    for i, (binding, percent) in enumerate(zip(expected["bound"], expected["pct_of_roof"], strict=True)):
        marks = [mark for mark in parts(figure) if mark.hover[0] == f"nw{i + 1}"]
        assert {mark.level: mark.x for mark in marks} == pytest.approx(
            {level: data["ai"][name][i] for level, name in (("l1", "L1"), ("l2", "L2"), ("dram", "HBM"))}
        )
        (said,) = (line for mark in marks if mark.level == "dram" for line in mark.hover if "% of the roof" in line)
        number, _, resource = said.partition(" % of the roof at dram ")
        assert float(number) == pytest.approx(percent, abs=0.006)
        assert resource == f"({words[binding]})"


def test_the_command_chooses_levels_and_how_much(tmp_path: Path) -> None:
    source, target = OWN / "raw_resnet18_b1_fp32.csv", tmp_path / "figure.html"
    words = ["plot", str(source), "--level", "l2", "--level", "dram", "--by", "kernel", "--top", "2", "-o", str(target)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0
    text = target.read_text()
    assert "Drawn: 2 of 6 kernels, those that take most time, and 4 more" in text
    assert "l2 bytes are lts__t_bytes" in text
    assert "l1 bytes are" not in text
    wrong = CliRunner().invoke(cli, ["plot", str(source), "--level", "l3", "-o", str(target)])
    assert wrong.exit_code == 2


def test_two_files_are_told_apart_by_their_names() -> None:
    other = Case(model="before", device="toy-100")
    figure = drawn(kernel(), kernel(case=other, flops=3e9))
    assert {mark.label for mark in figure.marks} == {"report", "before"}
    assert len(figure.ties) == 2
