"""By what a hypothesis is judged: measurements alone where there are any or one failed, else estimates alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.ranked_steps import TERA, a_card, relu_on, steps
from tests.test_study_claims import A100, BOTH, V100, estimated, faster, judged, measured, no_memory

from rooflens.records import Case, Device, Failure, Record, Work
from rooflens.results import RecordSet
from rooflens.study import Cell, Claim, Hypothesis, Side, judge

# Their bounds: 15.7 TFLOP/s of the V100 against 19.5 of the A100, so that the A100 is faster.
ESTIMATES = [estimated(model, device, 1e12) for model in "abc" for device in (V100, A100)]


def counted(model: str, device: str, **fields: Any) -> Record:
    """FLOP that counters saw."""
    case = Case(model=model, device=device, **{"batch": 1, **fields})
    work = Work(flops={"matmul.fp32": 1e12}, bytes={"dram": 1.0})
    return Record(case=case, source="counters", scope="kernel", name="k", phase="forward", work=work)


class TestOneOfTheMeasurementsFailed:
    def test_estimates_do_not_stand_for_it(self) -> None:
        verdict = judged(faster(), [*ESTIMATES, *BOTH, measured("c", A100, 1.0)], [no_memory("c", V100)])
        assert (verdict.outcome, verdict.basis) == ("not decidable", "measured")
        assert [(pair.left, pair.right) for pair in verdict.undecided] == [
            (f"c batch 1 fp32 inference on {A100}", f"c batch 1 fp32 inference on {V100}")
        ]
        assert verdict.sentence == (
            "Not decidable by measurements: 2 of 3 comparisons hold, left over right 0.5 to 0.75."
            f" Undecided: c batch 1 fp32 inference on {V100} failed: out of memory."
            " By estimates alone it would be supported: 3 of 3 comparisons hold."
        )

    def test_nor_where_it_is_the_only_one(self) -> None:
        verdict = judged(faster(), ESTIMATES, [no_memory("a", device) for device in (A100, V100)])
        assert (verdict.outcome, verdict.basis, len(verdict.pairs)) == ("not decidable", "measured", 1)
        assert f"Undecided: a batch 1 fp32 inference on {A100} failed: out of memory." in verdict.sentence

    def test_against_a_number(self) -> None:
        claim = Claim(quantity="time", left=Side(conditions={"device": A100}), relation="<", right=Side(value=10.0))
        verdict = judged(claim, [*ESTIMATES, measured("a", A100, 1.0)], [no_memory("b", A100)])
        assert [(pair.holds, pair.right_value) for pair in verdict.pairs] == [(True, 10.0), (None, 10.0)]
        assert (verdict.outcome, verdict.basis) == ("not decidable", "measured")

    def test_what_others_say_may_decide_all_the_same(self) -> None:
        records = [*ESTIMATES, *BOTH, measured("c", A100, 2.0), measured("c", V100, 1.0)]
        verdict = judged(faster(), records, [no_memory("d", V100), no_memory("d", A100)])
        assert (verdict.outcome, verdict.basis) == ("rejected", "measured")

    def test_two_that_failed_are_named_and_counted(self) -> None:
        records = [*BOTH, *(measured(model, A100, 1.0) for model in "cd")]
        verdict = judged(faster(), records, [no_memory("c", V100), no_memory("d", V100)])
        assert f"c batch 1 fp32 inference on {V100} failed: out of memory, and 1 more." in verdict.sentence

    def test_where_the_other_side_was_never_to_be_measured(self) -> None:
        # Only the A100 is at hand: what failed on it could not have been held against anything measured.
        verdict = judged(faster(), ESTIMATES, [no_memory("a", A100)])
        assert (verdict.outcome, verdict.basis, len(verdict.pairs)) == ("supported", "estimated", 3)

    def test_a_measurement_that_failed_tells_no_flop(self) -> None:
        # FLOP are counted and not measured, so its failure says nothing about them.
        claim = faster(quantity="flops", relation="=")
        verdict = judged(claim, ESTIMATES, [no_memory("a", V100), no_memory("a", A100)])
        assert (verdict.outcome, verdict.basis) == ("supported", "estimated")

    def test_counters_that_failed_take_no_time_away(self) -> None:
        no_rights = replace(no_memory("a", A100), source="counters", kind="error")
        assert judged(faster(), BOTH, [no_rights]).outcome == "supported"
        claim = Claim(quantity="time", left=Side(conditions={"device": A100}), relation="<", right=Side(value=10.0))
        assert judged(claim, BOTH, [no_rights]).outcome == "supported"

    def test_counters_that_failed_leave_counted_flop_open(self) -> None:
        claim = faster(quantity="flops", relation="=")
        records = [*ESTIMATES, counted("a", A100), counted("a", V100), counted("b", A100)]
        verdict = judged(claim, records, [replace(no_memory("b", V100), source="counters")])
        assert (verdict.outcome, verdict.basis, len(verdict.pairs)) == ("not decidable", "measured", 2)

    def test_a_step_that_trains_no_more_than_it_infers(self) -> None:
        claim = Claim(
            quantity="time",
            left=Side(conditions={"phase": "backward"}),
            relation=">",
            right=Side(conditions={"phase": "forward"}),
        )
        train = [measured("a", A100, t, phase=p, mode="train") for p, t in (("forward", 1.0), ("backward", 2.1))]
        assert judged(claim, train, [no_memory("b", A100)]).outcome == "supported"  # b has no backward
        failed = replace(no_memory("b", A100), case=Case(model="b", device=A100, batch=1, mode="train"))
        assert judged(claim, train, [failed]).outcome == "not decidable"


def test_what_is_too_close_to_tell_is_not_told_by_estimates() -> None:
    close = [measured("a", A100, 1.0, spread=0.1), measured("a", V100, 1.05, spread=0.1)]
    verdict = judged(faster(), [*ESTIMATES, *close])
    assert (verdict.outcome, verdict.basis) == ("not decidable", "measured")
    assert "The difference is within the uncertainty of the measurements." in verdict.sentence


class TestNothingIsMeasuredYet:
    LEFT = tuple(Cell(case=Case(model="a", device=device, batch=1), source="measure") for device in (A100, V100))

    def test_estimates_stand_for_it_and_it_is_said(self) -> None:
        verdict = judged(faster(), ESTIMATES, left=self.LEFT)
        assert (verdict.outcome, verdict.basis) == ("supported", "estimated")
        assert verdict.sentence.endswith(" Nothing of it is measured yet.")

    def test_once_something_is_measured_they_do_not(self) -> None:
        verdict = judged(faster(), [*ESTIMATES, measured("b", V100, 2.0), measured("b", A100, 1.0)], left=self.LEFT)
        assert (verdict.outcome, verdict.basis) == ("not decidable", "measured")
        assert f"Undecided: a batch 1 fp32 inference on {A100} is not run yet." in verdict.sentence

    def test_the_study_calls_the_machine_cuda(self) -> None:
        cell = Cell(case=Case(model="c", device="cuda"), source="measure")  # which leaves the batch to the model
        records = [*BOTH, measured("c", V100, 2.0)]
        names = {"cuda": frozenset({A100})}
        assert [pair.why for pair in judged(faster(), records, names=names, left=[cell]).undecided] == [
            f"c fp32 inference on {A100} is not run yet"
        ]
        assert judged(faster(), records, names={"cuda": frozenset({"tesla-t4"})}, left=[cell]).outcome == "supported"

    def test_another_option_is_another_case(self) -> None:
        compiled = Cell(case=Case(model="c", device=A100, batch=1, options=(("compile", True),)), source="measure")
        records = [*BOTH, measured("c", V100, 2.0)]
        assert judged(faster(), records, left=[compiled]).outcome == "supported"
        long = replace(compiled, case=replace(compiled.case, options=(("seq_len", 128),)))
        assert judged(faster(), records, left=[long]).outcome == "not decidable"  # the model may have chosen 128 itself


class TestOptionsThatACaseDoesNotName:
    """A case leaves out what holds anyway: sgd, no fusion, one GPU; conditions may name it."""

    @pytest.mark.parametrize(
        ("name", "given", "anyway", "mode"),
        [
            ("optimizer", "adam", "sgd", "train"), ("gpus", 2, 1, "train"), ("compile", True, False, "inference"),
            ("gpus", 2, False, "train"),
        ],
    )  # fmt: skip
    def test_in_a_claim(self, name: str, given: Any, anyway: Any, mode: str) -> None:
        other = measured("a", A100, 3.0, mode=mode, options=((name, given),))
        claim = Claim(
            quantity="time",
            left=Side(conditions={name: given}),
            relation=">",
            right=Side(conditions={name: anyway}, times=2.0),
        )
        (pair,) = judged(claim, [other, measured("a", A100, 1.0, mode=mode)]).pairs
        assert (pair.left_value, pair.right_value, pair.holds) == (3.0, 2.0, True)

    def test_fusion_is_of_estimates(self) -> None:
        fused = estimated("a", A100, 5e11, options=(("fusion", "pointwise"),))
        claim = Claim(
            quantity="flops",
            left=Side(conditions={"fusion": "pointwise"}),
            relation="<",
            right=Side(conditions={"fusion": "none"}),
        )
        (pair,) = judged(claim, [fused, estimated("a", A100, 1e12)]).pairs
        assert (pair.left_value, pair.right_value) == (5e11, 1e12)

    def test_what_infers_has_no_optimizer(self) -> None:
        claim = Claim(quantity="time", left=Side(conditions={"optimizer": "sgd"}), relation="<", right=Side(value=9.0))
        assert judged(claim, BOTH).pairs == ()
        assert len(judged(claim, [*BOTH, measured("a", A100, 1.0, mode="train")]).pairs) == 1

    def test_as_what_a_claim_is_made_for(self) -> None:
        records = [measured("a", A100, 1.0, mode="train"), measured("a", V100, 2.0, mode="train")]
        records += [replace(r, case=replace(r.case, options=(("optimizer", "adam"),))) for r in records]
        assert {pair.group for pair in judged(faster(every="optimizer"), records).pairs} == {"sgd", "adam"}


def test_a_number_on_the_left() -> None:
    # 2 s and 1 s of a, 4 s and 3 s of b: 2.5 s are more than each of a, and not of b.
    claim = Claim(quantity="time", left=Side(value=2.5), relation=">", right=Side(conditions={}), every="model")
    verdict = judged(claim, BOTH)
    assert [(pair.group, pair.left, pair.left_value, pair.holds) for pair in verdict.pairs] == [
        ("a", "", 2.5, True), ("a", "", 2.5, True), ("b", "", 2.5, False), ("b", "", 2.5, False),
    ]  # fmt: skip
    assert "Against it: 2.500 s, held against b batch 1 fp32 inference on" in verdict.sentence
    assert judged(replace(claim, amount="some"), BOTH).outcome == "supported"


@pytest.mark.parametrize(
    ("relation", "margin", "right", "holds"),
    [
        # The times of five models fall as their FLOP rise: a correlation of -1.
        ("<", 0.0, -0.9, True), ("<", 0.1, -0.95, False), ("<", 0.1, -0.9, True), ("<", 0.1, 0.0, True),
        (">", 0.0, -0.9, False), (">=", 0.2, -0.9, True), (">=", 0.1, -0.9, False),
        ("<=", 0.0, -1.0, True), ("=", 0.2, -0.9, True), ("=", 0.1, -0.9, False),
    ],
)  # fmt: skip
def test_a_margin_is_a_share_of_the_size_of_a_negative_number(
    relation: Any, margin: float, right: float, holds: bool
) -> None:
    # 10 % of 0.95 below -0.95 is -1.045, which -1 does not reach; 10 % of 0.9 below -0.9 is -0.99, which it does.
    records = [estimated(model, A100, n * 1e12) for n, model in enumerate("abcde", 1)]
    records += [measured(model, A100, 6.0 - n) for n, model in enumerate("abcde", 1)]
    claim = Claim(
        quantity="spearman",
        left=Side(conditions={"of": "flops"}),
        relation=relation,
        right=Side(value=right),
        margin=margin,
    )
    (pair,) = judged(claim, records).pairs
    assert (pair.left_value, pair.holds) == (-1.0, holds)


def test_a_model_that_failed_leaves_a_correlation_open() -> None:
    records = [estimated(model, A100, n * 1e12) for n, model in enumerate("abcde", 1)]
    records += [measured(model, A100, float(n)) for n, model in enumerate("abcde", 1)]
    claim = Claim(
        quantity="kendall",
        left=Side(conditions={"of": "flops"}),
        relation=">",
        right=Side(value=0.5),
        every="device",
        where={"device": A100},
    )
    assert judged(claim, records).outcome == "supported"
    verdict = judged(claim, records, [no_memory("f", A100)])
    assert (verdict.outcome, verdict.basis) == ("not decidable", "measured")
    assert f"f batch 1 fp32 inference on {A100} failed: out of memory" in verdict.sentence
    elsewhere = Failure(case=Case(model="f", device=V100), source="measure", stage="forward", kind="error", message="")
    assert judged(claim, records, [elsewhere]).outcome == "supported"


def test_without_a_case_there_is_no_basis() -> None:
    assert judged(faster(), []).basis is None


class TestExpectedTimesBeforeBounds:
    """0.8 GB at 0.8 of the bandwidth take 1 ms on a card of 1 TB/s."""

    def verdict(self, faster_than: float, quantity: str = "time", relation: Any = "<", **card: Any) -> Any:
        slow, fast = a_card("slow"), replace(a_card("fast", faster_than * TERA), **card)
        claim = Claim(
            quantity=quantity,
            left=Side(conditions={"device": "fast"}),
            relation=relation,
            right=Side(conditions={"device": "slow"}),
        )
        (found,) = judge([Hypothesis(text="fast is faster", claim=claim)], steps(relu_on(slow), relu_on(fast)))
        return found

    @pytest.mark.parametrize(("quantity", "relation"), [("time", "<"), ("throughput", ">")])
    def test_they_judge_where_every_step_has_one(self, quantity: str, relation: str) -> None:
        found = self.verdict(100, quantity, relation)
        assert (found.outcome, found.by_expected) == ("supported", True)
        assert found.sentence.startswith(
            "Supported by expected times and their bands, as no time was measured: 1 of 1 comparisons hold"
        )

    def test_bands_that_overlap_leave_it_open(self) -> None:
        found = self.verdict(1.01)  # whose bound is shorter by 1 %
        assert found.outcome == "not decidable"
        assert found.sentence.endswith("The bands of the expected times overlap.")

    def test_a_claim_on_the_expected_time_itself_goes_by_its_band(self) -> None:
        assert self.verdict(1.01, "predicted").outcome == "not decidable"
        found = self.verdict(100, "predicted")
        assert found.sentence.startswith("Supported by expected times and their bands: 1 of 1 comparisons hold")

    def test_held_against_a_number_too(self) -> None:  # which is 1 ms
        card = a_card("card")
        for limit, outcome in ((1.02e-3, "not decidable"), (1e-5, "rejected"), (1.0, "supported")):
            claim = Claim(quantity="predicted", left=Side(conditions={}), relation="<", right=Side(value=limit))
            (found,) = judge([Hypothesis(text="fast", claim=claim)], relu_on(card))
            assert found.outcome == outcome

    def test_beside_a_measured_time_it_is_a_number(self) -> None:
        card = a_card("card")
        claim = Claim(quantity="time", left=Side(conditions={}), relation=">", right=Side(quantity="predicted"))
        time = [measured("relu", "card", 1.05e-3, batch=100)]
        (found,) = judge([Hypothesis(text="slower", claim=claim)], relu_on(card) + RecordSet(time))
        assert (found.outcome, found.basis) == ("supported", "measured")

    def test_correlations_of_models(self) -> None:
        """Expected times grow with the bytes; a step of which no time can be expected leaves it to the bounds."""
        card, no_time = a_card("card"), replace(a_card("two"), count=2)
        claim = Claim(quantity="spearman", left=Side(conditions={"of": "bytes"}), relation=">", right=Side(value=0.9))

        def models(on: Device) -> RecordSet:
            sets = ((f"m{size}", relu_on(on, size)) for size in (10, 20, 40, 80, 160))
            records = (
                replace(record, case=replace(record.case, model=name, batch=1)) for name, its in sets for record in its
            )
            return RecordSet(records, devices={on.name: on})

        (found,) = judge([Hypothesis(text="", claim=claim)], models(card))
        assert found.sentence.startswith("Supported by expected times, as no time was measured: 1 of 1")
        both = steps(models(card), models(no_time))
        (found,) = judge([Hypothesis(text="", claim=claim)], both)
        assert found.sentence.startswith("Supported by bounds, as no time was measured: 2 of 2")

    def test_bounds_judge_where_one_step_has_none(self) -> None:
        found = self.verdict(100, count=2)  # no time can be expected of two cards
        assert (found.outcome, found.by_expected) == ("supported", False)
        assert found.sentence.startswith("Supported by bounds, as no time was measured")
