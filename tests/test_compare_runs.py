"""Two runs of the same steps: partners, environments, verdicts, and what stays alone."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean, median
from typing import Any

import pytest
from tests.comparison_samples import STEP, at_clock, environment, noisy, side, timed

import rooflens as rl
from rooflens.compare import compare_runs
from rooflens.compare.runs import RunChange
from rooflens.compare.uncertainty import RatioChange
from rooflens.errors import Incomparable, InvalidValue
from rooflens.records import AS_IS, Case, Failure, Record, Timing
from rooflens.results import RecordSet

OTHER = replace(STEP, model="other")
TRAIN = replace(STEP, mode="train")


def test_a_slower_step_is_found_with_its_numbers() -> None:
    before, after = noisy(1), noisy(2, 1.03e-3)
    found = compare_runs(side(timed(before)), side(timed(after)))
    (row,) = found.changes
    assert (row.before, row.after, row.phase) == (STEP, STEP, None)
    assert (row.before_seconds, row.after_seconds) == (median(before), median(after))
    assert row.change.ratio == row.after_seconds / row.before_seconds
    assert row.direction == "slower"
    assert row.p == row.change.p, "one test needs no adjustment"
    assert found.slower_than(0.01) == (row,)
    assert found.slower_than(0.10) == ()
    assert found.differences == ()
    (back,) = compare_runs(side(timed(after)), side(timed(before))).changes
    assert back.direction == "faster"
    assert not back.slower_than(0)


def test_equal_steps_are_no_difference() -> None:
    found = compare_runs(side(timed(noisy(1))), side(timed(noisy(3))))
    assert [row.direction for row in found.changes] == ["no difference"]
    assert found.slower_than(0) == ()


def test_many_tests_at_once_are_adjusted() -> None:
    cases = [replace(STEP, batch=2 + n) for n in range(5)]
    before = side(*(timed(noisy(10 + n), case) for n, case in enumerate(cases)))
    after = side(*(timed(noisy(20 + n, 1.01e-3), case) for n, case in enumerate(cases)))
    rows = compare_runs(before, after).changes
    assert all(row.p is not None and row.change.p is not None and row.p >= row.change.p for row in rows)
    raw = sorted(row.change.p or 0 for row in rows)
    smallest = min(raw[n] * 5 / (n + 1) for n in range(5))  # Benjamini and Hochberg: p * tests / rank
    assert min(row.p or 0 for row in rows) == pytest.approx(smallest)


def test_several_runs_of_a_side_are_told_apart() -> None:
    before = side(*(timed(noisy(n, 1e-3 * (1 + 0.002 * n))) for n in range(3)))
    after = side(*(timed(noisy(10 + n, 1.05e-3 * (1 + 0.002 * n))) for n in range(3)))
    found = compare_runs(before, after)
    (row,) = found.changes
    assert (row.change.unit, row.change.values) == ("runs", (3, 3))
    assert row.before_seconds == pytest.approx(
        geometric_mean([median(r.timing.samples) for r in before if r.timing is not None])
    )
    assert row.direction == "slower"
    assert not any("one run a side" in note for note in found.notes)
    single = compare_runs(side(before.records[0]), side(after.records[0]))
    assert any("one run a side" in note for note in single.notes)


def test_phases_are_compared_beside_the_step_and_the_step_is_their_sum() -> None:
    before = side(timed((1.0,) * 9, TRAIN, "forward"), timed((2.0,) * 9, TRAIN, "backward"))
    after = side(timed((1.0,) * 9, TRAIN, "forward"), timed((4.0,) * 9, TRAIN, "backward"))
    found = compare_runs(before, after)
    assert [(row.phase, row.before_seconds, row.after_seconds) for row in found.changes] == [
        ("forward", 1, 1),
        ("backward", 2, 4),
        (None, 3, 5),
    ]
    assert [row.phase for row in found.steps] == [None]
    assert [row.phase for row in found.slower_than(0.5)] == [None], "the gate judges steps, not phases"


def test_cases_without_a_partner_are_listed_and_failures_among_them() -> None:
    failure = Failure(case=OTHER, source="measure", stage="forward", kind="out of memory", message="no room")
    before = side(timed(noisy(1)), timed(noisy(2), OTHER))
    new = replace(STEP, batch=4)
    after = RecordSet([timed(noisy(3)), timed(noisy(4), new)], failures=[failure], environment=environment())
    found = compare_runs(before, after)
    assert [row.before for row in found.changes] == [STEP]
    assert (found.only_before, found.only_after, found.failed) == ((OTHER,), (new,), (failure,))


def test_a_device_that_one_side_does_not_name_is_no_difference() -> None:
    nowhere = replace(STEP, device=None)
    found = compare_runs(side(timed(noisy(1), nowhere)), side(timed(noisy(2))))
    assert [(row.before, row.after) for row in found.changes] == [(nowhere, STEP)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", "bf16"), ("device", "another"), ("mode", "prefill"), ("options", (("compile", True), ("flush", True)))],
)
def test_cases_that_differ_are_compared_only_across_what_is_named(field: str, value: Any) -> None:
    other: Case = replace(STEP, **{field: value})
    before, after = side(timed(noisy(1))), side(timed(noisy(2), other))
    with pytest.raises(Incomparable, match=f"differ in {field}: compare across it .--across {field}"):
        compare_runs(before, after)
    (row,) = compare_runs(before, after, across=[field]).changes
    assert (row.before, row.after) == (STEP, other)


def test_across_devices_another_card_is_what_is_compared() -> None:
    other = replace(STEP, device="another")
    after = side(timed(noisy(2), other), where=environment({"card": "Toy 2"}))
    found = compare_runs(side(timed(noisy(1))), after, across=["device"])
    assert [(item.what, item.forbids) for item in found.differences] == [("card", False)]


def test_several_partners_are_an_error_that_names_them() -> None:
    both = side(timed(noisy(2), replace(STEP, dtype="bf16")), timed(noisy(3), replace(STEP, dtype="fp16")))
    with pytest.raises(InvalidValue, match=r"has no single partner.*bf16.*fp16"):
        compare_runs(side(timed(noisy(1))), both, across=["dtype"])
    with pytest.raises(InvalidValue, match=r"has no single partner.*bf16.*fp16"):
        compare_runs(both, side(timed(noisy(1))), across=["dtype"])


def test_an_equal_case_is_the_partner_before_any_other() -> None:
    both = side(timed(noisy(2)), timed(noisy(3), replace(STEP, dtype="fp16")))
    (row,) = compare_runs(side(timed(noisy(1))), both, across=["dtype"]).changes
    assert row.after == STEP


def test_one_option_may_differ_and_is_told() -> None:
    last, compiled = (replace(STEP, options=((name, True),)) for name in ("channels_last", "compile"))
    found = compare_runs(side(timed(noisy(1))), side(timed(noisy(2), last)))
    assert [(row.before, row.after) for row in found.changes] == [(STEP, last)]
    assert found.notes[0] == "the sides differ in channels_last, and are compared across it (--across channels_last)"
    named = compare_runs(side(timed(noisy(1))), side(timed(noisy(2), last)), across=["channels-last"])
    assert [row.after for row in named.changes] == [last]
    with pytest.raises(Incomparable, match="no case has a partner"):  # two options, and one may differ
        compare_runs(side(timed(noisy(1), compiled)), side(timed(noisy(2), last)), across=["compile"])


def test_how_many_values_are_shown() -> None:
    found = compare_runs(side(timed(noisy(1, samples=12))), side(timed(noisy(2, samples=9))))
    shown = rl.table(found, width=100)
    assert "12, 9" in shown
    assert "n: how many values of each side" in shown


def test_across_names_fields_of_a_case() -> None:
    with pytest.raises(InvalidValue, match="cannot compare across 'colour'; known: model, device, batch"):
        compare_runs(side(timed(noisy(1))), side(timed(noisy(2))), across=["colour"])


def test_sides_with_nothing_in_common_are_an_error_that_says_why() -> None:
    with pytest.raises(Incomparable, match="first side holds no measured time"):
        compare_runs(RecordSet(()), side(timed(noisy(1))))
    with pytest.raises(Incomparable, match="second side holds no measured time"):
        compare_runs(side(timed(noisy(1))), RecordSet(()))
    with pytest.raises(Incomparable, match=r"toynet.*against other.*compare the same models"):
        compare_runs(side(timed(noisy(1))), side(timed(noisy(1), OTHER)))


FORBIDDING = [
    ({"card": "Toy 2"}, {}, "cuda-events", "fp32"),
    ({"cpu": "Other CPU"}, {}, "monotonic", "fp32"),
    ({"threads": 4}, {}, "monotonic", "fp32"),
    ({}, {"products may use TF32": True}, "cuda-events", "default"),
    ({}, {"products may use TF32": True}, "cuda-events", AS_IS),
]


@pytest.mark.parametrize(("machine", "flags", "origin", "dtype"), FORBIDDING)
def test_what_decides_the_result_forbids_the_comparison(machine: Any, flags: Any, origin: Any, dtype: str) -> None:
    case = replace(STEP, dtype=dtype)
    before = side(timed(noisy(1), case, origin=origin))
    after = side(timed(noisy(2), case, origin=origin), where=environment(machine, flags))
    (what,) = {**machine, **flags}
    with pytest.raises(Incomparable, match=f"different experiments: {what}: .* -> .*force"):
        compare_runs(before, after)
    forced = compare_runs(before, after, force=True)
    assert [(item.what, item.forbids) for item in forced.differences] == [(what, True)]


TOLD = [
    ({"driver": "590"}, {}, {}, "cuda-events", "driver"),
    ({}, {}, {"torch": "2.12.0"}, "cuda-events", "torch"),
    ({"power limit": 350.0}, {}, {}, "cuda-events", "power limit"),
    ({"cpu": "Other CPU"}, {}, {}, "cuda-events", "cpu"),  # the card does the work
    ({"card": "Toy 2"}, {}, {}, "monotonic", "card"),  # the processor does
    ({}, {"cudnn benchmark": True}, {}, "cuda-events", "cudnn benchmark"),
]


@pytest.mark.parametrize(("machine", "flags", "versions", "origin", "what"), TOLD)
def test_other_differences_are_told(machine: Any, flags: Any, versions: Any, origin: Any, what: str) -> None:
    before = side(timed(noisy(1), origin=origin))
    after = side(timed(noisy(2), origin=origin), where=environment(machine, flags, versions))
    found = compare_runs(before, after)
    assert [(item.what, item.forbids) for item in found.differences] == [(what, False)]


def test_tf32_switches_do_not_matter_where_the_dtype_sets_them() -> None:
    after = side(timed(noisy(2)), where=environment(flags={"products may use TF32": True}))
    assert compare_runs(side(timed(noisy(1))), after).differences == ()


def test_different_clocks_behind_the_times_forbid_the_comparison() -> None:
    with pytest.raises(Incomparable, match="timed by: cuda-events -> monotonic"):
        compare_runs(side(timed(noisy(1))), side(timed(noisy(2), origin="monotonic")))


def test_another_clock_of_the_card_is_told() -> None:
    before = side(timed(noisy(1)), at_clock(1980e6))
    found = compare_runs(before, side(timed(noisy(2)), at_clock(1410e6)))
    assert [(str(item), item.forbids) for item in found.differences] == [
        ("clock, Hz: 1980000000 -> 1410000000 (in 1 cases, the most here)", False)
    ]
    assert compare_runs(before, side(timed(noisy(2)), at_clock(1950e6))).differences == ()


def test_an_unknown_environment_is_told() -> None:
    found = compare_runs(RecordSet([timed(noisy(1))]), side(timed(noisy(2))))
    assert "the first side tells nothing of its environment" in found.notes[0]


def test_a_drifting_side_is_told() -> None:
    drifting = tuple(1e-3 * (1 + n / 100) for n in range(60))
    found = compare_runs(side(timed(noisy(1))), side(timed(drifting)))
    assert any(note.startswith("second side: not steady, so that the median depends") for note in found.notes)


def test_times_of_pieces_have_a_ratio_and_no_test() -> None:
    def pieces(*seconds: float) -> RecordSet:
        return side(
            *(
                Record(
                    case=STEP,
                    source="profile",
                    scope="op",
                    path=f"layer{n}",
                    phase="forward",
                    timing=Timing(samples=(time,), origin="profiler"),
                )
                for n, time in enumerate(seconds)
            )
        )

    found = compare_runs(pieces(1, 2), pieces(1, 5))
    (row,) = found.changes
    assert (row.before_seconds, row.after_seconds, row.change.ratio, row.p) == (3, 6, 2, None)
    assert row.direction == "unknown"
    assert any("timed in pieces" in note for note in found.notes)
    assert row.change.values is None
    assert "how many values" not in str(rl.table(found))


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.76, 47.7), "not decided"),
        ((0.99, 1.06), "not decided"),  # 6 % slower may be
        ((0.97, 1.04), "no difference"),
        ((0.5, 1.001), "not decided"),  # or twice as fast
    ],
)
def test_no_difference_is_said_where_none_that_matters_may_be(interval: tuple[float, float], verdict: str) -> None:
    case = Case(model="m")
    change = RatioChange(ratio=1.0, interval=interval, p=0.4, values=(9, 9))
    row = RunChange(before=case, after=case, phase=None, before_seconds=1.0, after_seconds=1.0, change=change)
    assert row.direction == verdict
