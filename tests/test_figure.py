"""The roofline figure as data: every position here is worked out by hand."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.figure_samples import chain, device, measured, operation, records

import rooflens as rl
from rooflens.costs.registry import families
from rooflens.errors import InvalidValue
from rooflens.records import Bound, Case, Device, Floor, Record, Timing, Work
from rooflens.report.figures.palette import MOST_GROUPS, OTHER, group_colours
from rooflens.report.figures.roofline import ABOVE, roofline_figure
from rooflens.report.figures.roofline_data import Mark
from rooflens.report.figures.saving import Figure

TOY = device()  # 1 TB/s, 100 TFLOP/s of products, 10 TFLOP/s on the general lanes
ON_TOY = Case(model="net", device="toy-100", batch=4)
ANYWHERE = replace(ON_TOY, device=None)
VECTOR = {"vector.fp32": 1e9}


def convolution(case: Case = ON_TOY) -> Record:
    """1 TFLOP and 1 GB: 10 ms on the tensor units, 1 ms of traffic."""
    return operation(case, "conv", "convolution", matmul=1e12, dram=1e9)


def relu(case: Case = ON_TOY) -> Record:
    """1 GFLOP and 10 GB: 0.1 ms on the general lanes, 10 ms of traffic."""
    return operation(case, "relu", "elementwise", vector=1e9, dram=1e10)


def clone(case: Case = ON_TOY) -> Record:
    """No FLOP and 5 GB: 5 ms."""
    return operation(case, "", "copy", dram=5e9, name="clone")


def named(figure: Figure, label: str) -> Mark:
    (found,) = [mark for mark in figure.marks if mark.label == label]
    return found


class TestMarks:
    def test_an_estimate_stands_at_its_work_over_its_bound(self) -> None:
        figure = roofline_figure(records([convolution(), relu()], [TOY]))
        conv, act = named(figure, "conv"), named(figure, "relu")
        assert (conv.x, conv.y) == pytest.approx((1e12 / 1e9, 1e12 / 10e-3))
        assert (act.x, act.y) == pytest.approx((1e9 / 1e10, 1e9 / 10e-3))
        assert (conv.group, act.group) == ("convolution", "elementwise")
        assert {mark.source for mark in figure.marks} == {"estimate"}

    def test_the_whole_stands_at_the_sum_of_its_parts(self) -> None:
        whole = named(roofline_figure(records([convolution(), relu()], [TOY])), "forward")
        assert whole.whole
        assert whole.x == pytest.approx(1.001e12 / 1.1e10)
        assert whole.y == pytest.approx(1.001e12 / 20e-3)

    @pytest.mark.parametrize(
        ("step", "drawn"),
        [
            (relu(), 0.1),
            # Half of the bytes are what every implementation needs; a causal kernel does half of the FLOP.
            (replace(relu(), floor=Floor(work=Work(flops=VECTOR, bytes={"dram": 5e9}), cause="loop")), 0.2),
            (replace(relu(), kernel_work=Work(flops={"vector.fp32": 5e8}, bytes={"dram": 1e10})), 0.05),
        ],
        ids=["plain", "floor", "causal"],
    )
    def test_a_mark_and_its_row_have_one_intensity(self, step: Record, drawn: float) -> None:
        found = records([step], [TOY])
        figure = roofline_figure(found, by="phase")
        assert [mark.x for mark in figure.marks] == pytest.approx([drawn])
        (row,) = csv.DictReader(StringIO(rl.table(found, format="csv")))
        assert float(row["bound_intensity"]) == pytest.approx(drawn)
        assert float(row["intensity"]) == pytest.approx(0.1)  # of the code as written
        shown = rl.table(found, by="phase", width=200)
        assert ("FLOP, DRAM and FLOP/B: of what the bound counts" in shown) == (drawn != 0.1)
        assert f" {drawn:.4f}"[:6] in shown
        assert any("of what the bound counts" in note for note in figure.notes) == (drawn != 0.1)

    def test_shares_are_of_the_time_of_the_case(self) -> None:
        figure = roofline_figure(records([convolution(), relu(), clone()], [TOY]))
        assert named(figure, "conv").share == pytest.approx(10 / 25)
        assert named(figure, "relu").share == pytest.approx(10 / 25)

    def test_repeated_calls_count_as_often_as_they_are_made(self) -> None:
        thrice = replace(convolution(), calls=3)
        figure = roofline_figure(records([thrice, relu()], [TOY]))
        assert named(figure, "conv").share == pytest.approx(30 / 40)
        assert named(figure, "conv").y == pytest.approx(1e14)

    def test_a_measurement_stands_at_the_estimated_work_over_the_measured_time(self) -> None:
        figure = roofline_figure(records([convolution(), relu(), measured(ON_TOY, 40e-3)], [TOY]))
        estimate, observed = (mark for mark in figure.marks if mark.whole)
        assert (estimate.source, observed.source) == ("estimate", "measure")
        assert observed.x == estimate.x
        assert observed.y == pytest.approx(1.001e12 / 40e-3)
        assert "efficiency 50 % of the bound" in observed.hover

    def test_an_estimate_and_a_measurement_of_the_same_are_linked(self) -> None:
        figure = roofline_figure(records([convolution(), measured(ON_TOY, 40e-3)], [TOY]))
        (link,) = figure.links
        assert link.start == pytest.approx((1e3, 1e14))
        assert link.end == pytest.approx((1e3, 1e12 / 40e-3))

    def test_a_measurement_joins_an_estimate_that_names_no_device(self) -> None:
        figure = roofline_figure(records([convolution(ANYWHERE), measured(ON_TOY, 40e-3)], [TOY]))
        assert len(figure.links) == 1

    def test_an_unknown_machine_is_never_compared_with_the_ceilings_of_another(self) -> None:
        elsewhere = replace(ON_TOY, device="my-laptop")
        figure = roofline_figure(records([convolution(ANYWHERE), measured(elsewhere, 1e-3)], [TOY]), devices=[TOY])
        (observed,) = [mark for mark in figure.marks if mark.source == "measure"]
        assert observed.device is None
        assert not observed.above_roof  # 1 ms would be ten times quicker than the bound on the toy
        assert figure.links == ()
        assert "Observed on my-laptop, whose ceilings are not known and not drawn." in figure.notes

    def test_a_causal_call_stands_where_its_kernel_does(self) -> None:
        # Counted in full (2 TFLOP), executed by half (1 TFLOP) in 10 ms: the point is on the roof, not twice above it.
        attention = replace(
            operation(ON_TOY, "attn", "attention", matmul=2e12, dram=1e9),
            kernel_work=Work(flops={"matmul.fp32": 1e12}, bytes={"dram": 1e9}),
        )
        mark = named(roofline_figure(records([attention], [TOY])), "attn")
        assert (mark.x, mark.y) == pytest.approx((1e3, 1e14))

    def test_an_estimate_for_any_device_stands_under_each(self) -> None:
        slow = device("toy-1", "Toy 1", dram=1e11, compute={"matmul.fp32": 1e12})
        figure = roofline_figure(records([convolution(ANYWHERE)]), devices=[TOY, slow])
        assert [mark.device for mark in figure.marks] == [0, 1]
        assert [mark.y for mark in figure.marks] == pytest.approx([1e14, 1e12])

    def test_a_device_given_twice_is_drawn_once(self) -> None:
        figure = roofline_figure(records([convolution(ANYWHERE)]), devices=[TOY, TOY])
        assert figure.devices == ("Toy 100",)
        assert sum(not mark.whole for mark in figure.marks) == 1


class TestOtherSources:
    def test_counters_stand_at_their_own_work(self) -> None:
        # Executed: 2 TFLOP and 4 GB in 40 ms, beside an estimate of 1 TFLOP and 1 GB.
        kernel = replace(
            convolution(),
            source="counters",
            scope="kernel",
            work=Work(flops={"matmul.fp32": 2e12}, bytes={"dram": 4e9}, origin="executed"),
            timing=Timing(samples=(40e-3,), origin="ncu"),
        )
        figure = roofline_figure(records([convolution(), kernel], [TOY]), by="phase")
        estimate, counted = figure.marks
        assert (estimate.source, counted.source) == ("estimate", "counters")
        assert (estimate.x, estimate.y) == pytest.approx((1e3, 1e14))
        assert (counted.x, counted.y) == pytest.approx((2e12 / 4e9, 2e12 / 40e-3))
        assert figure.links == ()  # other work is another point, not the same one

    def test_a_profile_gives_operations_their_times(self) -> None:
        seen = [
            replace(record, source="profile", work=None, timing=Timing(samples=(seconds,), origin="profiler"))
            for record, seconds in ((convolution(), 30e-3), (relu(), 10e-3))
        ]
        figure = roofline_figure(records([convolution(), relu(), *seen], [TOY]))
        profiled = {mark.label: mark for mark in figure.marks if mark.source == "profile"}
        assert profiled["conv"].y == pytest.approx(1e12 / 30e-3)
        assert profiled["conv"].share == pytest.approx(30 / 40)
        assert profiled["relu"].y == pytest.approx(1e9 / 10e-3)
        assert profiled["forward"].y == pytest.approx(1.001e12 / 40e-3)
        assert len(figure.links) == 3


class TestWhatAMarkIs:
    def test_one_case_is_shown_by_operation(self) -> None:
        figure = roofline_figure(records([convolution(), relu()], [TOY]))
        assert [mark.label for mark in figure.marks] == ["conv", "relu", "forward"]
        assert figure.group_title == "operation family"

    def test_one_case_on_several_devices_is_shown_by_phase(self) -> None:
        for devices in ([TOY, device("twin", "Twin")], [TOY]):
            figure = roofline_figure(records([convolution(ANYWHERE), relu(ANYWHERE)]), devices=devices)
            assert ("conv" in [mark.label for mark in figure.marks]) is (len(devices) == 1)

    def test_several_cases_are_shown_by_phase(self) -> None:
        train = replace(ON_TOY, mode="train")
        other = replace(train, model="other")
        backward = operation(train, "conv", "convolution", matmul=2e12, dram=1e9, phase="backward")
        figure = roofline_figure(records([convolution(train), backward, convolution(other)], [TOY]))
        assert [mark.label for mark in figure.marks] == ["net fwd", "net bwd", "other fwd"]
        assert [mark.share for mark in figure.marks] == pytest.approx([1 / 3, 2 / 3, 1.0])
        assert figure.groups == ("net", "other")
        assert figure.group_title == "model"

    def test_cases_are_named_by_what_differs(self) -> None:
        cases = [replace(ON_TOY, batch=batch) for batch in (1, 16)]
        figure = roofline_figure(records([convolution(case) for case in cases], [TOY]))
        assert [mark.label for mark in figure.marks] == ["batch 1", "batch 16"]
        assert figure.groups == ("batch 1", "batch 16")
        assert figure.group_title == "batch size"

    def test_whole_cases_sum_their_phases(self) -> None:
        train = replace(ON_TOY, mode="train")
        backward = operation(train, "conv", "convolution", matmul=2e12, dram=1e9, phase="backward")
        seen = [measured(train, 20e-3), measured(train, 40e-3, "backward")]
        figure = roofline_figure(records([convolution(train), backward, *seen], [TOY]), by="model")
        assert [mark.source for mark in figure.marks] == ["estimate", "measure"]
        assert [mark.y for mark in figure.marks] == pytest.approx([3e12 / 30e-3, 3e12 / 60e-3])

    def test_a_step_timed_as_one_is_a_mark_beside_its_phases(self) -> None:
        train = replace(ON_TOY, mode="train")
        backward = operation(train, "conv", "convolution", matmul=2e12, dram=1e9, phase="backward")
        figure = roofline_figure(
            records([convolution(train), backward, measured(train, 50e-3, None)], [TOY]), by="phase"
        )
        assert [mark.label for mark in figure.marks] == ["net fwd", "net bwd", "net step", "net step"]
        assert [mark.source for mark in figure.marks] == ["estimate", "estimate", "estimate", "measure"]
        assert [mark.y for mark in figure.marks] == pytest.approx([1e14, 1e14, 1e14, 3e12 / 50e-3])
        assert len(figure.links) == 1

    def test_a_step_of_one_phase_is_that_phase(self) -> None:
        figure = roofline_figure(records([convolution(), measured(ON_TOY, 50e-3, None)], [TOY]), by="phase")
        assert [(mark.label, mark.source) for mark in figure.marks] == [("net", "estimate"), ("net", "measure")]

    def test_families_and_modules(self) -> None:
        items = [convolution(), replace(relu(), path="conv"), replace(convolution(), path="fc")]
        by_family = roofline_figure(records(items, [TOY]), by="family")
        assert [mark.label for mark in by_family.marks if not mark.whole] == ["convolution", "elementwise"]
        by_module = roofline_figure(records(items, [TOY]), by="module")
        assert [(mark.label, mark.group) for mark in by_module.marks if not mark.whole] == [
            ("conv", "several families"),
            ("fc", "convolution"),
        ]

    def test_an_operator_is_one_mark_in_all_modules(self) -> None:
        items = [convolution(), replace(relu(), path="a"), replace(relu(), path="b")]
        marks = roofline_figure(records(items, [TOY]), by="operator").marks
        assert [mark.label for mark in marks if not mark.whole] == ["convolution", "elementwise"]

    @pytest.mark.parametrize("by", ["kernels", ""])
    def test_an_unknown_kind_of_mark_is_an_error(self, by: str) -> None:
        with pytest.raises(InvalidValue, match="known: model, phase, module, family, module-family, op"):
            roofline_figure(records([]), by=by)  # type: ignore[arg-type]

    def test_an_unknown_level_is_an_error(self) -> None:
        with pytest.raises(InvalidValue, match="unknown level 'l9'; known: dram"):
            roofline_figure(records([]), level="l9")


class TestAboveTheRoof:
    def test_quicker_than_the_bound_of_the_whole_work_is_flagged_and_shown(self) -> None:
        # Whole: tensor 10 ms, lanes 0.1 ms, traffic 11 ms. Measured 5 ms.
        figure = roofline_figure(records([convolution(), relu(), measured(ON_TOY, 5e-3)], [TOY]))
        (observed,) = [mark for mark in figure.marks if mark.source == "measure"]
        assert observed.above_roof
        assert observed.y == pytest.approx(1.001e12 / 5e-3)
        assert observed.y < figure.y.high
        assert ABOVE in figure.notes

    def test_overlap_between_parts_is_not_above_the_roof(self) -> None:
        # 15 ms beats the sum of the parts (20 ms), which caches can, but not the roofline of the whole (11 ms).
        figure = roofline_figure(records([convolution(), relu(), measured(ON_TOY, 15e-3)], [TOY]))
        assert not any(mark.above_roof for mark in figure.marks)
        assert ABOVE not in figure.notes


class TestRug:
    def test_what_does_no_flop_is_on_the_rug_by_its_share(self) -> None:
        figure = roofline_figure(records([convolution(), relu(), clone()], [TOY]))
        (mark,) = figure.rug
        assert (mark.label, mark.group) == ("clone", "copy")
        assert (mark.low, mark.high) == pytest.approx((0.0, 5 / 25))
        assert any("20 % of the time" in note for note in figure.notes)

    def test_the_largest_is_at_the_bottom(self) -> None:
        small = operation(ON_TOY, "pad", "copy", dram=1e9)
        figure = roofline_figure(records([convolution(), small, clone()], [TOY]))
        assert [mark.label for mark in figure.rug] == ["clone", "pad"]
        assert [edge for mark in figure.rug for edge in (mark.low, mark.high)] == pytest.approx(
            [0, 5 / 16, 5 / 16, 6 / 16]
        )

    def test_with_two_devices_each_has_half_of_the_height(self) -> None:
        twin = device("twin", "Twin")
        figure = roofline_figure(records([convolution(ANYWHERE), clone(ANYWHERE)]), by="op", devices=[TOY, twin])
        assert [mark.share for mark in figure.rug] == [pytest.approx(5 / 15)] * 2
        assert figure.rug[-1].high == pytest.approx(5 / 15)

    def test_unknown_flop_are_not_zero_flop(self) -> None:
        unknown = operation(ON_TOY, "odd", "other", dram=1e9)
        assert unknown.work is not None
        unknown = replace(unknown, work=replace(unknown.work, missing=frozenset({"odd_op"})))
        figure = roofline_figure(records([convolution(), unknown], [TOY]))
        assert figure.rug == ()
        assert [item.reason for item in figure.unplaced] == ["FLOP unknown: no formula for odd_op"]


class TestUnplaced:
    def test_a_time_without_work(self) -> None:
        figure = roofline_figure(records([measured(ON_TOY, 1e-3)], [TOY]))
        assert figure.marks == ()
        (item,) = figure.unplaced
        assert item.label == "net batch 4 fp32 inference on toy-100"
        assert "estimate the same case" in item.reason

    def test_an_estimate_without_a_device(self) -> None:
        figure = roofline_figure(records([convolution(ANYWHERE)]))
        assert figure.ceilings == ()
        assert [item.reason for item in figure.unplaced] == [
            "an estimate has no time without a device, and it names no device"
        ]
        assert "No device is known: no ceilings are drawn." in figure.notes

    def test_a_precision_that_the_device_lacks(self) -> None:
        figure = roofline_figure(records([operation(ON_TOY, "c", "matmul", matmul=1e9, precision="fp8")], [TOY]))
        assert figure.marks == ()
        assert "has no ceiling for 'matmul.fp8'" in figure.unplaced[0].reason

    def test_a_level_that_was_not_counted(self) -> None:
        figure = roofline_figure(records([convolution()], [TOY]), level="l2", by="phase")
        assert [item.reason for item in figure.unplaced] == ["its l2 bytes are not known"]


class TestCeilings:
    def test_those_that_the_work_uses(self) -> None:
        rates = {"matmul.fp32": 1e13, "matmul.bf16": 1e14, "matmul.int8": 2e14, "vector.fp32": 1e13}
        rich = device("rich", "Rich", compute=rates)
        case = replace(ON_TOY, device="rich")
        matrix = operation(case, "a", "matmul", matmul=1e9, precision="bf16")
        assert resources(roofline_figure(records([matrix], [rich]))) == ["dram", "matmul.bf16"]
        both = [matrix, relu(case)]
        assert resources(roofline_figure(records(both, [rich]))) == ["dram", "matmul.bf16", "vector.fp32"]

    def test_all_of_them_without_records(self) -> None:
        rates = {"matmul.fp32": 1e13, "vector.fp64": 1e12, "vector.fp32": 2e13, "special.fp32": 1e11}
        figure = roofline_figure(records([], [device(compute=rates)]))
        assert resources(figure) == ["dram", "vector.fp32", "matmul.fp32"]

    def test_one_per_device_where_there_are_many(self) -> None:
        many = [device(f"d{i}", f"D {i}", compute={"matmul.fp32": 1e13, "matmul.bf16": 1e14}) for i in range(4)]
        case = replace(ANYWHERE, dtype="bf16")
        matrix = operation(case, "a", "matmul", matmul=1e9, precision="bf16")
        used = roofline_figure(records([matrix]), devices=many)
        assert resources(used) == ["dram", "matmul.bf16"] * 4
        assert any("only one compute ceiling" in note for note in used.notes)
        assert resources(roofline_figure(records([]), devices=many)) == ["dram", "matmul.bf16"] * 4

    def test_no_mark_of_many_devices_stands_above_what_is_drawn_for_it(self) -> None:
        rates = {"matmul.fp32": 1e13, "matmul.bf16": 1e14, "vector.fp32": 1e13}
        many = [device(f"d{i}", f"D {i}", compute=rates) for i in range(3)]
        many.append(device("old", "Old", compute={"matmul.fp32": 2e12, "vector.fp32": 1e12}))
        # Most FLOP are in fp32, so that precision alone would be drawn: 1e13. Products in bf16 reach 1e14.
        items = [
            operation(replace(ON_TOY, device=card.name, dtype=dtype), "a", "matmul", matmul=n, precision=dtype)
            for card in many
            for dtype, n in (("fp32", 9e12), ("bf16", 1e12))
            if f"matmul.{dtype}" in {c.resource for c in card.ceilings}
        ]
        figure = roofline_figure(records(items, many), by="model")
        assert resources(figure) == ["dram", "matmul.bf16"] * 3 + ["dram", "matmul.fp32"]
        highest = {line.device: line.rate for line in figure.ceilings if line.kind == "compute"}
        assert len(figure.marks) == 7
        for mark in figure.marks:
            assert mark.device is not None
            assert mark.y <= highest[mark.device]

    def test_among_many_a_device_without_the_common_precision_draws_its_highest(self) -> None:
        many = [device(f"d{i}", f"D {i}", compute={"matmul.fp32": 1e13}) for i in range(3)]
        many.append(device("tpu", "T", compute={"matmul.bf16": 1e14, "matmul.int8": 2e14, "vector.fp32": 1e13}))
        figure = roofline_figure(records([]), devices=many)
        assert resources(figure) == ["dram", "matmul.fp32"] * 3 + ["dram", "matmul.int8"]

    def test_a_device_without_any_peak_draws_its_bandwidth(self) -> None:
        figure = roofline_figure(records([], [device(compute={})]))
        (line,) = figure.ceilings
        assert line.resource == "dram"
        assert line.end[1] / line.end[0] == pytest.approx(1e12)
        assert figure.ridges == ()

    def test_a_device_without_the_level_draws_its_peak_over_the_whole_width(self) -> None:
        figure = roofline_figure(records([], [device(dram=None, compute={"matmul.fp32": 1e14})]))
        (line,) = figure.ceilings
        assert (line.start, line.end) == ((figure.x.low, 1e14), (figure.x.high, 1e14))

    def test_a_ridge_is_peak_over_bandwidth(self) -> None:
        figure = roofline_figure(records([convolution(), relu()], [TOY]))
        assert [(ridge.resource, ridge.x, ridge.y) for ridge in figure.ridges] == [
            ("matmul.fp32", 100.0, 1e14),
            ("vector.fp32", 10.0, 1e13),
        ]

    def test_the_diagonal_ends_where_the_highest_flat_begins(self) -> None:
        figure = roofline_figure(records([convolution(), relu()], [TOY]))
        diagonal, highest, lower = figure.ceilings
        assert diagonal.end == pytest.approx((100.0, 1e14))
        assert highest.start == pytest.approx((100.0, 1e14))
        assert lower.start == pytest.approx((10.0, 1e13))

    def test_origins_and_doubts_are_kept(self) -> None:
        figure = roofline_figure(records([], [device(compute={"matmul.fp32": 1e14}, verified=False)]))
        assert [line.origin for line in figure.ceilings] == ["datasheet", "datasheet, unverified"]


def resources(figure: Figure) -> list[str]:
    return [line.resource for line in figure.ceilings]


class TestGroups:
    def test_families_by_their_share_of_the_time(self) -> None:
        figure = roofline_figure(records([clone(), convolution(), replace(relu(), calls=3)], [TOY]))
        assert figure.groups == ("elementwise", "convolution", "copy", "whole model")

    def test_what_finds_no_colour_is_other(self) -> None:
        items = [operation(ON_TOY, f"m{i}", f"family {i:02}", matmul=1e12 / (i + 1)) for i in range(MOST_GROUPS + 5)]
        figure = roofline_figure(records(items, [TOY]))
        assert len(figure.groups) == MOST_GROUPS + 1
        assert figure.groups[-2:] == (OTHER, "whole model")
        assert sum(mark.group == OTHER for mark in figure.marks) == 6

    def test_every_family_has_a_colour_of_its_own(self) -> None:
        # Drawn alone and drawn with all others, a family has the same colour, and no two share one.
        together = group_colours(list(families()))
        assert {family: group_colours([family])[family] for family in families()} == together
        assert len(set(together.values())) == len(together)


def test_the_words_say_what_is_shown() -> None:
    figure = roofline_figure(records([convolution()], [TOY]))
    assert figure.title == "net on the roofline of Toy 100"
    assert figure.subtitle == "batch 4, fp32, inference, one mark per operation"
    assert roofline_figure(records([convolution()], [TOY]), title="Mine").title == "Mine"


def test_nothing_at_all_is_still_a_figure() -> None:
    figure = roofline_figure(records([]))
    assert (figure.title, figure.marks, figure.ceilings) == ("Roofline", (), ())
    assert figure.x.low < figure.x.high
    assert figure.y.low < figure.y.high


def test_the_hover_text_tells_everything() -> None:
    mark = named(roofline_figure(records([convolution(), relu()], [TOY])), "conv")
    assert mark.hover == (
        "conv/convolution, forward",
        "bound (estimated), convolution",
        "on Toy 100",
        "time 10.00 ms, 50 % of its case",
        "work 1.000 TFLOP, dram 1.000 GB",
        "intensity 1000 FLOP/B",
        "performance 100.0 TFLOP/s",
        "bound by matmul.fp32",
    )


magnitudes = st.floats(min_value=1.0, max_value=1e18)
rates = st.floats(min_value=1e6, max_value=1e18)


@given(
    ops=st.lists(st.tuples(magnitudes, magnitudes), min_size=0, max_size=6),
    seconds=st.floats(min_value=1e-9, max_value=1e6),
    ceilings=st.lists(st.tuples(rates, st.one_of(st.none(), rates)), min_size=1, max_size=5),
)
def test_axes_hold_everything(
    ops: list[tuple[float, float]], seconds: float, ceilings: list[tuple[float, float | None]]
) -> None:
    devices = [
        device(f"d{i}", f"D {i}", dram=dram, compute={} if peak is None else {"matmul.fp32": peak})
        for i, (dram, peak) in enumerate(ceilings)
    ]
    work = [operation(ANYWHERE, f"m{i}", "matmul", matmul=flops, dram=nbytes) for i, (flops, nbytes) in enumerate(ops)]
    own = replace(ANYWHERE, device="d0")
    figure = roofline_figure(records([*work, measured(own, seconds)], devices), devices=devices, by="op")
    for mark in figure.marks:
        assert figure.x.low < mark.x < figure.x.high
        assert figure.y.low < mark.y < figure.y.high
    for ridge in figure.ridges:
        assert figure.x.low < ridge.x < figure.x.high
    assert {line.device for line in figure.ceilings} == set(range(len(devices)))
    for line in figure.ceilings:
        assert figure.x.low <= line.start[0] < line.end[0] <= figure.x.high * (1 + 1e-9)
        assert figure.y.low * (1 - 1e-9) <= line.start[1] <= line.end[1] <= figure.y.high * (1 + 1e-9)


def test_each_distinct_bound_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["rooflens.roofline.bound"]
    bound, computed = module.bound, list[Work]()

    def counted(work: Work, on: Device) -> Bound:
        computed.append(work)
        result: Bound = bound(work, on)
        return result

    monkeypatch.setattr(module, "bound", counted)
    items = chain(ON_TOY, 8)
    figure = roofline_figure(records([*items, measured(ON_TOY, 4e-3)], [TOY]))
    # Each operation once, and the sum of all under which the measured mark stands.
    assert len(figure.marks) > 20
    assert len(computed) == len({item.work for item in items}) + 1


def test_a_long_chain_has_a_mark_for_each_operation() -> None:
    # 8 blocks of three operations with FLOP, a pool and a classifier; every third block copies.
    figure = roofline_figure(records(chain(ON_TOY, 8), [TOY]))
    assert sum(not mark.whole for mark in figure.marks) == 8 * 3 + 2
    assert len(figure.rug) == 3
