"""Claims judged over records: supported, rejected or not decidable, with the numbers against them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from rooflens.devices import find
from rooflens.records import Case, Failure, Memory, Record, Timing, Work
from rooflens.results import RecordSet
from rooflens.study import Cell, Claim, Hypothesis, Side, Verdict, judge
from rooflens.study.matching import meets

V100, A100 = "tesla-v100-sxm2-16gb", "a100-sxm4-40gb"


def measured(
    model: str, device: str, seconds: float, *, spread: float = 0.0, phase: Any = "forward", **fields: Any
) -> Record:
    """A time with nine samples; its 95 % interval reaches `spread` to both sides.

    Ranks 9/2 -+ 1.96 * 3/2, rounded outwards, are the first and the last.
    """
    steps = (-1, -0.7, -0.5, -0.3, 0, 0.3, 0.5, 0.7, 1)
    samples = tuple(seconds + step * spread for step in steps)
    case = Case(model=model, device=device, **{"batch": 1, **fields})
    timing = Timing(samples=samples, origin="cuda-events")
    return Record(case=case, source="measure", scope="model", phase=phase, timing=timing)


def estimated(model: str, device: str, flops: float, **fields: Any) -> Record:
    """Work of fp32 products: its bound is the FLOP over the device's rate for them."""
    case = Case(model=model, device=device, **{"batch": 1, **fields})
    work = Work(flops={"matmul.fp32": flops}, bytes={"dram": 1.0})
    return Record(case=case, source="estimate", scope="op", kind="linear", name="mm", phase="forward", work=work)


def faster(**changes: Any) -> Claim:
    claim = Claim(
        quantity="time",
        left=Side(conditions={"device": A100}),
        relation="<",
        right=Side(conditions={"device": V100}),
        every="model",
    )
    return replace(claim, **changes)


def judged(
    claim: Claim,
    records: Iterable[Record],
    failures: Iterable[Failure] = (),
    names: Any = None,
    left: Iterable[Cell] = (),
) -> Verdict:
    found = RecordSet(records, devices={name: find(name) for name in (V100, A100)}, failures=failures)
    (verdict,) = judge([Hypothesis(text="A100 is faster", claim=claim)], found, names, left)
    return verdict


def no_memory(model: str, device: str) -> Failure:
    case = Case(model=model, device=device, batch=1)
    return Failure(case=case, source="measure", stage="forward", kind="out of memory", message="no")


BOTH = [measured("a", V100, 2.0), measured("a", A100, 1.0), measured("b", V100, 4.0), measured("b", A100, 3.0)]


def test_supported_with_its_numbers() -> None:
    verdict = judged(faster(), BOTH)
    assert (verdict.outcome, verdict.basis) == ("supported", "measured")
    assert [(pair.group, pair.left_value, pair.right_value, pair.ratio, pair.holds) for pair in verdict.pairs] == [
        ("a", 1.0, 2.0, 0.5, True),
        ("b", 3.0, 4.0, 0.75, True),
    ]
    assert verdict.sentence == "Supported by measurements: 2 of 2 comparisons hold, left over right 0.5 to 0.75."


def test_rejected_with_the_cells_against_it() -> None:
    verdict = judged(faster(), [*BOTH, measured("c", V100, 1.0), measured("c", A100, 1.5)])
    assert verdict.outcome == "rejected"
    (against,) = verdict.against
    assert (against.left, against.right) == (
        f"c batch 1 fp32 inference on {A100}",
        f"c batch 1 fp32 inference on {V100}",
    )
    assert verdict.sentence == (
        "Rejected by measurements: 2 of 3 comparisons hold, left over right 0.5 to 1.5. Against it:"
        f" {against.left} with 1.500 s, held against {against.right} with 1.000 s."
    )


@pytest.mark.parametrize(
    ("amount", "holding", "outcome"),
    [
        ("every", (True, True, True), "supported"),
        ("every", (True, True, False), "rejected"),
        ("every", (True, True, None), "not decidable"),
        ("every", (False, True, None), "rejected"),
        ("most", (True, True, False), "supported"),
        ("most", (True, False, False), "rejected"),
        ("most", (True, False), "rejected"),  # half is not most
        ("most", (True, True, None), "supported"),
        ("most", (True, False, None), "not decidable"),
        ("some", (False, False, True), "supported"),
        ("some", (False, None, None), "not decidable"),
        ("some", (False, False, False), "rejected"),
        ("every", (), "not decidable"),
    ],
)
def test_how_many_have_to_hold(amount: Any, holding: tuple[bool | None, ...], outcome: str) -> None:
    records, failures = [], []
    for number, holds in enumerate(holding):
        records.append(measured(f"m{number}", A100, 1.0))
        if holds is not None:
            records.append(measured(f"m{number}", V100, 2.0 if holds else 0.5))
        else:
            failures.append(no_memory(f"m{number}", V100))
    assert judged(faster(amount=amount), records, failures).outcome == outcome


def test_a_model_holds_if_all_of_its_cases_do() -> None:
    records = [measured("a", V100, 2.0, batch=8), measured("a", A100, 3.0, batch=8), *BOTH]
    assert judged(faster(amount="some"), records).outcome == "supported"  # b does
    assert judged(faster(amount="most"), records).outcome == "rejected"  # one of two
    assert judged(faster(amount="most", every="case"), records).outcome == "supported"  # two of three
    assert judged(faster(where={"batch": 1}), records).outcome == "supported"


@pytest.mark.parametrize(
    ("relation", "margin", "left", "holds"),
    [
        ("<", 0.0, 0.99, True), ("<", 0.0, 1.0, False), ("<", 0.1, 0.89, True), ("<", 0.1, 0.91, False),
        ("<=", 0.0, 1.0, True), ("<=", 0.1, 1.09, True), ("<=", 0.1, 1.11, False),
        (">", 0.0, 1.01, True), (">", 0.0, 1.0, False), (">", 0.1, 1.11, True), (">", 0.1, 1.09, False),
        (">=", 0.0, 1.0, True), (">=", 0.1, 0.91, True), (">=", 0.1, 0.89, False),
        ("=", 0.0, 1.0, True), ("=", 0.0, 1.01, False), ("=", 0.1, 1.09, True), ("=", 0.1, 0.91, True),
        ("=", 0.1, 1.11, False), ("=", 0.1, 0.89, False),
    ],
)  # fmt: skip
def test_relations_and_margins(relation: Any, margin: float, left: float, holds: bool) -> None:
    claim = faster(relation=relation, margin=margin)
    (pair,) = judged(claim, [measured("a", A100, left), measured("a", V100, 1.0)]).pairs
    assert pair.holds is holds


@pytest.mark.parametrize(
    ("relation", "margin", "left", "holds"),
    [
        ("<", 0.0, 0.79, True), ("<", 0.0, 0.85, None), ("<", 0.0, 1.0, None), ("<", 0.0, 1.21, False),
        (">", 0.0, 1.21, True), (">", 0.0, 1.1, None), (">", 0.0, 0.79, False),
        ("=", 0.0, 1.0, None), ("=", 0.5, 1.0, True), ("=", 0.1, 2.0, False),
    ],
)  # fmt: skip
def test_within_the_uncertainty_nothing_is_decided(
    relation: Any, margin: float, left: float, holds: bool | None
) -> None:
    # Both intervals reach 0.1 to both sides, so 0.2 tell them apart.
    records = [measured("a", A100, left, spread=0.1), measured("a", V100, 1.0, spread=0.1)]
    (pair,) = judged(faster(relation=relation, margin=margin), records).pairs
    assert pair.holds is holds
    assert pair.why == ("the difference is within the uncertainty of the measurements" if holds is None else "")


def test_what_failed_leaves_a_claim_undecided() -> None:
    verdict = judged(faster(), [*BOTH, measured("c", A100, 1.0)], [no_memory("c", V100)])
    assert verdict.outcome == "not decidable"
    why = f"c batch 1 fp32 inference on {V100} failed: out of memory"
    assert [pair.why for pair in verdict.undecided] == [why]
    assert verdict.sentence == (
        f"Not decidable by measurements: 2 of 3 comparisons hold, left over right 0.5 to 0.75. Undecided: {why}."
    )
    assert judged(faster(), BOTH, [no_memory("c", "tesla-t4")]).outcome == "supported"  # none of its business


def test_what_is_not_run_yet_leaves_a_claim_undecided() -> None:
    cell = Cell(case=Case(model="c", device=V100, batch=1), source="measure")
    records = [*BOTH, measured("c", A100, 1.0)]
    verdict = judged(faster(), records, left=[cell])
    assert [pair.why for pair in verdict.undecided] == [f"{cell.case.label()} is not run yet"]
    assert (verdict.outcome, verdict.basis) == ("not decidable", "measured")
    estimate = replace(cell, source="estimate")
    assert judged(faster(), records, left=[estimate]).outcome == "supported"
    assert judged(faster(), BOTH, left=[cell]).outcome == "supported"  # nothing that it would be held against


def test_what_the_study_leaves_out_is_not_compared() -> None:
    verdict = judged(faster(), [*BOTH, measured("c", A100, 1.0)])
    assert (verdict.outcome, len(verdict.pairs)) == ("supported", 2)


def test_no_case_at_all() -> None:
    verdict = judged(faster(), [measured("a", "tesla-t4", 1.0)])
    assert (verdict.outcome, verdict.pairs) == ("not decidable", ())
    assert verdict.sentence == "Not decidable: the records hold no case that it is about."


def test_estimates_stand_for_what_was_not_measured() -> None:
    # 15.7 and 19.5 TFLOP/s: the A100 takes 0.805 of the time.
    estimates = [estimated("a", V100, 1e12), estimated("a", A100, 1e12)]
    verdict = judged(faster(), estimates)
    assert (verdict.outcome, verdict.basis) == ("supported", "estimated")
    assert verdict.pairs[0].ratio == pytest.approx(15.7 / 19.5, rel=0.01)
    assert verdict.sentence.startswith("Supported by bounds, as no time was measured: 1 of 1")
    work = judged(faster(quantity="flops", relation="="), estimates)
    assert work.sentence.startswith("Supported by estimates: 1 of 1")
    one_measured = judged(faster(), [*estimates, measured("a", A100, 9.0)])
    assert (one_measured.outcome, one_measured.basis) == ("supported", "estimated")
    both_measured = judged(faster(), [*estimates, measured("a", A100, 9.0), measured("a", V100, 8.0)])
    assert (both_measured.outcome, both_measured.basis) == ("rejected", "measured")


def test_an_expected_time_is_not_the_bound() -> None:
    verdict = judged(faster(quantity="predicted"), [estimated("a", V100, 1e12), estimated("a", A100, 1e12)])
    assert (verdict.outcome, verdict.basis) == ("not decidable", "estimated")  # these operations name no call
    assert "its value is not known" in verdict.sentence


def test_a_measured_time_and_its_bound() -> None:
    claim = Claim(
        quantity="time", left=Side(conditions={}), relation="<", right=Side(quantity="bound", times=2.0), every="case"
    )
    rate = find(A100).require("matmul.fp32").rate
    records = [estimated("a", A100, rate), measured("a", A100, 1.5)]  # the bound is a second
    (pair,) = (verdict := judged(claim, records)).pairs
    assert (verdict.outcome, verdict.basis) == ("supported", "measured")
    assert pair.left_value == 1.5
    assert pair.right_value == pytest.approx(2.0)
    assert judged(replace(claim, right=replace(claim.right, times=1.4)), records).outcome == "rejected"


def test_sources_held_against_each_other() -> None:
    claim = Claim(
        quantity="time",
        left=Side(conditions={"source": "measure"}),
        relation="=",
        right=Side(conditions={"source": "estimate"}),
        margin=0.1,
    )
    rate = find(A100).require("matmul.fp32").rate
    records = [estimated("a", A100, rate), measured("a", A100, 1.05)]
    assert judged(claim, records).outcome == "supported"
    assert judged(replace(claim, margin=0.01), records).outcome == "rejected"


def test_a_number_on_the_right() -> None:
    claim = Claim(quantity="time", left=Side(conditions={"model": "a"}), relation="<=", right=Side(value=1.5))
    verdict = judged(claim, BOTH)
    assert [(pair.left_value, pair.right_value, pair.right) for pair in verdict.pairs] == [
        (2.0, 1.5, ""),
        (1.0, 1.5, ""),
    ]
    assert verdict.sentence.endswith(
        f"Against it: a batch 1 fp32 inference on {V100} with 2.000 s, held against 1.500 s."
    )


def test_phases() -> None:
    train = [measured("a", A100, t, phase=p, mode="train") for p, t in (("forward", 1.0), ("backward", 2.1))]
    claim = Claim(
        quantity="time",
        left=Side(conditions={"phase": "backward"}),
        relation="=",
        right=Side(conditions={"phase": "forward"}, times=2.0),
        margin=0.1,
    )
    (pair,) = (verdict := judged(claim, [*train, *BOTH])).pairs  # what has no backward is not asked
    assert (pair.left_value, pair.right_value, verdict.outcome) == (2.1, 2.0, "supported")
    assert pair.left == f"a batch 1 fp32 train on {A100}, backward"


def test_an_option_that_is_off() -> None:
    compiled = measured("a", A100, 0.5, options=(("compile", True),))
    claim = faster(left=Side(conditions={"compile": True}), right=Side(conditions={"compile": False}))
    assert [(pair.left_value, pair.right_value) for pair in judged(claim, [compiled, *BOTH]).pairs] == [(0.5, 1.0)]


def test_patterns() -> None:
    claim = faster(where={"model": "a*"})
    assert [pair.group for pair in judged(claim, BOTH).pairs] == ["a"]


def test_words_for_this_machine() -> None:
    claim = faster(left=Side(conditions={"device": "cuda"}))
    assert judged(claim, BOTH).outcome == "not decidable"
    assert judged(claim, BOTH, names={"cuda": frozenset({A100})}).outcome == "supported"


def test_memory_and_throughput() -> None:
    first, second = (
        replace(measured("a", device, seconds, batch=8), memory=Memory(peak=peak))
        for device, seconds, peak in ((A100, 2.0, 100), (V100, 4.0, 300))
    )
    memory = judged(faster(quantity="memory"), [first, second]).pairs[0]
    assert (memory.left_value, memory.right_value, memory.holds) == (100, 300, True)
    rate = judged(faster(quantity="throughput", relation=">"), [first, second]).pairs[0]
    assert (rate.left_value, rate.right_value, rate.holds) == (4.0, 2.0, True)


def test_a_throughput_is_told_in_samples_per_second() -> None:
    # 30,000 samples in 2 s, which is not more than 20,000 a second.
    claim = Claim(quantity="throughput", left=Side(), relation=">", right=Side(value=20_000))
    verdict = judged(claim, [measured("a", A100, 2.0, batch=30_000)])
    assert verdict.outcome == "rejected"
    assert "with 15.00 k samples/s" in verdict.sentence


def test_the_interval_of_a_throughput_is_that_of_its_time() -> None:
    # 8 samples in 1.8 to 2.2 s are 3.64 to 4.44 a second; against 4.4, 4.45 and 3.6 that decides differently.
    record = measured("a", A100, 2.0, spread=0.2, batch=8)
    claim = Claim(quantity="throughput", left=Side(), relation="<", right=Side(value=4.4))
    holds = [judged(replace(claim, right=Side(value=limit)), [record]).pairs[0].holds for limit in (4.4, 4.45, 3.6)]
    assert holds == [None, True, False]


def test_correlations() -> None:
    # Times in the order of the FLOP on the A100, in the opposite order on the V100.
    flops = {"a": 1e12, "b": 2e12, "c": 3e12, "d": 4e12, "e": 5e12}
    records = [estimated(model, device, n) for model, n in flops.items() for device in (A100, V100)]
    records += [measured(model, A100, n / 1e12) for model, n in flops.items()]
    records += [measured(model, V100, 9 - n / 1e12) for model, n in flops.items()]
    claim = Claim(
        quantity="spearman",
        left=Side(conditions={"of": "flops"}),
        relation=">",
        right=Side(value=0.9),
        every="device",
    )
    verdict = judged(claim, records)
    assert [(pair.group, pair.left_value) for pair in verdict.pairs] == [(A100, 1.0), (V100, -1.0)]
    assert verdict.outcome == "rejected"
    assert judged(replace(claim, where={"device": A100}), records).outcome == "supported"
    # Of four models the most extreme order has a p-value of 1/12.
    few = [record for record in records if record.case.model != "e"]
    verdict = judged(replace(claim, where={"device": A100}), few)
    assert verdict.outcome == "not decidable"
    assert "(4 models; " in verdict.sentence
    assert "so few models cannot be told from chance" in verdict.sentence


def test_the_ratio_that_is_shown_is_the_one_that_is_claimed() -> None:
    # 1 s of 2 s and 3 s of 4 s: half and three quarters, held against "less than 0.8 times", and "less than 0.6 times".
    claim = faster(right=Side(conditions={"device": V100}, times=0.8))
    supported = judged(claim, BOTH)
    assert [pair.right for pair in supported.pairs] == [
        f"0.8 times {model} batch 1 fp32 inference on {V100}" for model in "ab"
    ]
    assert supported.sentence == (
        "Supported by measurements: 2 of 2 comparisons hold, left over right 0.5 to 0.75 (claimed: below 0.8)."
    )
    rejected = judged(replace(claim, right=replace(claim.right, times=0.6)), BOTH)
    assert rejected.sentence.startswith(
        "Rejected by measurements: 1 of 2 comparisons hold, left over right 0.5 to 0.75 (claimed: below 0.6)."
    )


@pytest.mark.parametrize(
    ("relation", "left", "right", "margin", "words"),
    [
        ("<", 1.0, 1.0, 0.0, ""),
        ("<", 1.0, 0.5, 0.1, " (claimed: below 0.45)"),  # by a tenth of a half
        (">", 2.0, 1.0, 0.0, " (claimed: above 0.5)"),  # twice the left side is more than the right one
        ("<=", 1.0, 1.0, 0.05, " (claimed: at most 1.05)"),
        (">=", 1.0, 3.0, 0.0, " (claimed: at least 3)"),
        ("=", 1.0, 2.0, 0.1, " (claimed: 1.8 to 2.2)"),
        ("=", 1.0, 2.0, 0.0, " (claimed: 2)"),
    ],
)
def test_the_claimed_ratio_in_words(relation: Any, left: float, right: float, margin: float, words: str) -> None:
    claim = Claim(
        quantity="time",
        left=Side(conditions={"device": A100}, times=left),
        relation=relation,
        right=Side(conditions={"device": V100}, times=right),
        margin=margin,
    )
    assert f"left over right 0.5 to 0.75{words}." in judged(claim, BOTH).sentence


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        # Times of 1 to 4 s, held against a number: the number that is claimed is the one that is shown.
        (Claim(quantity="time", left=Side(), relation="<", right=Side(value=5.0)), "below 5.000 s"),
        (Claim(quantity="time", left=Side(), relation="<", right=Side(value=5.0), margin=0.1), "below 4.500 s"),
        (Claim(quantity="time", left=Side(times=2.0), relation=">=", right=Side(value=1.0)), "at least 500.0 ms"),
        (Claim(quantity="time", left=Side(value=5.0), relation=">", right=Side()), "below 5.000 s"),
        (Claim(quantity="time", left=Side(value=5.0), relation=">", right=Side(), margin=0.2), "below 4.167 s"),
        (Claim(quantity="time", left=Side(value=0.5), relation="<=", right=Side()), "at least 500.0 ms"),
        (Claim(quantity="time", left=Side(), relation="=", right=Side(value=2.0), margin=1.0), "0 s to 4.000 s"),
    ],
)
def test_values_stand_beside_a_number_that_is_claimed(claim: Claim, words: str) -> None:
    verdict = judged(claim, BOTH)
    assert verdict.sentence == (
        f"Supported by measurements: 4 of 4 comparisons hold, 1.000 s to 4.000 s (claimed: {words})."
    )


def test_a_verdict_repeats_the_doubts_of_the_times() -> None:
    # On one of four runs the processor was busy, and of another the samples were noisy: two of two comparisons.
    first, *others = BOTH
    busy = replace(first, notes=("the processor was busy: other processes used more than 10 % of its cores meanwhile",))
    noisy = replace(others[-1], notes=("noisy: the interval is wide", "memory: the peak since the program began"))
    verdict = judged(faster(), [busy, *others[:-1], noisy])
    assert [len(pair.doubts) for pair in verdict.pairs] == [1, 1]
    assert verdict.sentence == (
        "Supported by measurements: 2 of 2 comparisons hold, left over right 0.5 to 0.75. Doubtful by notes on the"
        " times: the processor was busy (in 1 of 2), noisy (in 1 of 2)."
    )
    flops = [replace(estimated("a", device, 1e12), notes=busy.notes) for device in (A100, V100)]
    assert "Doubtful" not in judged(faster(), flops).sentence, "an estimate takes no times"


def test_for_how_many_is_said_where_comparisons_do_not_tell() -> None:
    # Two batches of each of two models: b takes longer with 8 images, so that one of two models holds, in 3 of 4.
    others = [measured("a", V100, 9.0, batch=8), measured("a", A100, 8.0, batch=8)]
    others += [measured("b", V100, 9.0, batch=8), measured("b", A100, 10.0, batch=8)]
    counts = {"every": "1 of 2 by model", "most": "1 of 2 by model, more than half is claimed"}
    for amount, words in counts.items():
        verdict = judged(faster(every="model", amount=amount), [*BOTH, *others])
        assert verdict.outcome == "rejected", "half is neither every one nor most"
        assert f": 3 of 4 comparisons hold ({words}), left" in verdict.sentence
    some = judged(faster(every="model", amount="some"), [*BOTH, *others])
    assert some.outcome == "supported"
    assert "3 of 4 comparisons hold (1 of 2 by model, one is claimed)" in some.sentence


def test_words_alone_are_left_to_the_reader() -> None:
    (verdict,) = judge([Hypothesis(text="It feels fast")], RecordSet(BOTH))
    assert (verdict.outcome, verdict.basis) == ("not decidable", None)


def test_a_model_of_an_absolute_path_is_that_of_its_records() -> None:
    facts = {"model": "net.py:build", "device": "t4"}
    assert meets(facts, {"model": "/home/ann/net.py:build"}, {})
    assert not meets(facts, {"model": "/home/ann/other.py:build"}, {})
    assert meets(facts, {"model": "net*"}, {})
