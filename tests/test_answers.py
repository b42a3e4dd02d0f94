"""Prefill and decode in the words in which people ask, and energy at the power limit: numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.table_samples import device, operation, times

from rooflens.records import Case, Device, Record, Timing, Work
from rooflens.records.device import Fact
from rooflens.records.kv_cache import CachePart, KvCache
from rooflens.report.case_json import promised_json
from rooflens.report.summary import summary
from rooflens.report.table import Entry, for_people
from rooflens.results import QUANTITIES, Evidence, RecordSet, join
from rooflens.results.answers import ANSWERS, COSTS
from rooflens.study import Claim, Hypothesis, Side, judge
from rooflens.units import parse

DECODE = Case(model="llm", device="toy", batch=4, mode="decode")
PREFILL = Case(model="llm", device="toy", batch=2, mode="prefill")
SAMPLES = (5e-3, 4e-3, 6e-3, 5e-3, 5e-3, 5e-3, 5e-3, 5e-3)
"""Median 5 ms; of eight samples the lowest and the highest are the 95 % interval: ranks 8/2 -+ 1.96 * sqrt(8)/2."""


def card(kind: str = "gpu", **facts: float) -> Device:
    """A device of 1 GB/s, and of 100 W where nothing else is said."""
    return replace(device(), kind=kind, facts={name: Fact(value=value) for name, value in facts.items()})


def step(case: Case, nbytes: float) -> Record:
    """Work whose bound at 1 GB/s is a nanosecond for each byte."""
    return operation(case, "", "matmul", Work(flops={"matmul.fp32": 1000}, bytes={"dram": nbytes}))


def cached(case: Case, tokens: int) -> Record:
    part = CachePart(name="keys", shape=(2, 1, tokens, 4), dtype="fp32", tensors=1, held=8, used=8, per_token=8)
    cache = KvCache(batch=2, tokens=tokens, parts=(part,))
    return Record(case=case, source="estimate", scope="model", kv_cache=cache)


def known(*records: Record, on: Device | None = None) -> Evidence:
    (evidence,) = join(RecordSet(records, devices={"toy": on or card(power=100)}))
    return evidence


def answers(evidence: Evidence, **time: Any) -> dict[str, float | None]:
    asked = [quantity for quantity in ANSWERS[evidence.case.mode] if quantity not in COSTS]
    return {quantity.name: quantity.read(evidence, **time).value for quantity in asked}


def test_decode_by_its_bound() -> None:
    # 2 MB at 1 GB/s: 2 ms for a token of each of 4 sequences. What they cost in energy a bound does not tell.
    assert answers(known(step(DECODE, 2e6))) == pytest.approx(
        {
            "time_per_output_token": 2e-3,
            "sequence_tokens_per_second": 500,
            "tokens_per_second": 2000,
            "energy_per_token": None,
        }
    )


def test_decode_measured_beside_its_estimate() -> None:
    both = known(step(DECODE, 2e6), times(DECODE, "forward", *SAMPLES))
    assert list(answers(both).values()) == pytest.approx([5e-3, 200, 800, 100 * 5e-3 / 4])
    assert list(answers(both, time="bound").values()) == pytest.approx([2e-3, 500, 2000, None])
    assert list(answers(known(step(DECODE, 2e6)), time="measured").values()) == [None] * 4
    # A time has the interval of the samples, a rate that of its inverse, an energy grows with the time.
    low, high = QUANTITIES["time"].read(both).interval or (0, 0)
    assert (low, high) == (4e-3, 6e-3)
    assert QUANTITIES["time_per_output_token"].read(both).interval == (low, high)
    assert QUANTITIES["tokens_per_second"].read(both).interval == pytest.approx((4 / high, 4 / low))
    assert QUANTITIES["energy_per_token"].read(both).interval == pytest.approx((100 * low / 4, 100 * high / 4))


@pytest.mark.parametrize(
    ("records", "tokens"),
    [
        ([step(PREFILL, 4e6), cached(PREFILL, 10)], 2 * 10),
        ([step(replace(PREFILL, options=(("seq_len", 8),)), 4e6)], 2 * 8),
        # Tokens of an image are in the cache too.
        ([step(case := replace(PREFILL, options=(("seq_len", 8),)), 4e6), cached(case, 9)], 2 * 9),
    ],
)
def test_prefill_counts_the_tokens_of_all_prompts(records: list[Record], tokens: int) -> None:
    found = answers(known(*records))
    assert list(found) == ["time_to_first_token", "prompt_tokens_per_second", "energy_per_token"]
    assert list(found.values()) == pytest.approx([4e-3, tokens / 4e-3, None])


def test_unknown_is_none() -> None:
    unasked = answers(known(step(PREFILL, 4e6)))  # nobody says how many tokens a prompt has
    assert list(unasked.values()) == [pytest.approx(4e-3), None, None]
    no_batch = answers(known(step(replace(DECODE, batch=None), 2e6)))
    assert list(no_batch.values()) == [pytest.approx(2e-3), pytest.approx(500), None, None]
    # What lies between the pieces of a profile takes time too.
    timing = Timing(samples=(1e-3,), origin="profiler")
    piece = replace(step(DECODE, 2e6), source="profile", work=None, timing=timing)
    assert list(answers(known(piece)).values()) == [None] * 4
    # A quantity of one mode is unknown in another.
    inference = known(step(replace(DECODE, mode="inference"), 2e6))
    assert [QUANTITIES[name].read(inference).value for name in answers(known(step(DECODE, 2e6)))] == [None] * 4


def test_energy_per_sample_of_other_modes() -> None:
    energy = QUANTITIES["energy_per_sample"]
    train = Case(model="net", device="toy", batch=10, mode="train")
    timed = times(train, None, 0.5, 0.5)
    assert energy.read(known(timed)).value == pytest.approx(100 * 0.5 / 10)
    assert energy.read(known(step(train, 1e9))).value is None  # of a bound, with no expected time
    assert energy.read(known(timed, on=card())).value is None  # no power limit
    assert energy.read(known(timed, on=card("cpu", power=100))).value is None  # a rating and no limit
    several = times(replace(train, options=(("gpus", 2),)), None, 0.5, 0.5)
    assert energy.read(known(several)).value is None  # the device is one of them
    assert energy.read(known(step(DECODE, 2e6))).value is None
    assert parse("5 J", "J") == 5


def entries(*records: Record) -> tuple[dict[str, Entry], list[str], tuple[str, ...]]:
    view = summary(RecordSet(records, devices={"toy": card(power=100)}))
    cells = {column.key: cell for column, cell in zip(view.columns, view.rows[0], strict=True)}
    return cells, [column.header for column in for_people(view).columns], view.notes


def test_tables_answer_in_tokens() -> None:
    cells, shown, notes = entries(step(DECODE, 2e6))
    assert {"per token", "tokens /s, one sequence", "tokens /s, all"} <= set(shown)
    assert "energy /token" not in shown  # of a bound it is neither the least nor the most
    assert not {"samples /s", "first token", "prompt tokens /s", "energy /sample"} & set(shown)
    signs = {name: cells[name].sign for name in answers(known(step(DECODE, 2e6)))}
    assert list(signs.values()) == [">=", "<=", "<=", ""]
    assert cells["throughput"].value == pytest.approx(2000)  # files keep it
    assert "<= tokens per second, >= times of a token, that the bound allows" in notes
    assert not any("energy" in note for note in notes)
    assert not any("samples" in note for note in notes)

    cells, shown, notes = entries(times(DECODE, "forward", *SAMPLES))
    assert [(cells[name].value, cells[name].sign) for name in signs] == [
        (5e-3, ""),
        (pytest.approx(200), ""),
        (pytest.approx(800), ""),
        (pytest.approx(0.125), "<="),
    ]
    assert "<= energy /token: the card at its power limit for all of the measured time" in notes


def test_modes_side_by_side_have_samples_where_samples_are_asked_for() -> None:
    _, shown, notes = entries(step(DECODE, 2e6), step(replace(DECODE, mode="inference"), 2e6), step(PREFILL, 4e6))
    assert {"samples /s", "per token", "first token"} <= set(shown)
    assert "<= samples per second that the bound allows" in notes
    view = summary(RecordSet([step(DECODE, 2e6), step(replace(DECODE, mode="train"), 2e6)], devices={"toy": card()}))
    place = [column.key for column in view.columns].index("throughput")
    assert [row[place].label for row in view.rows] == ["-", None]


def test_json_has_the_answers_of_the_mode() -> None:
    def of(*records: Record) -> Any:
        return promised_json(RecordSet(records, devices={"toy": card(power=100)}))[0]["answers"]

    no_price = {"cost_per_million_output_tokens": None}
    assert of(step(DECODE, 2e6)) == {"from": "bound"} | answers(known(step(DECODE, 2e6))) | no_price
    assert of(times(PREFILL, "forward", *SAMPLES)) == {
        "from": "measured",
        "time_to_first_token": 5e-3,
        "prompt_tokens_per_second": None,
        "energy_per_token": None,
        "cost_per_million_input_tokens": None,
    }
    assert of(step(replace(DECODE, mode="train"), 1e9)) == {
        "from": "bound",
        "throughput": pytest.approx(4),
        "tokens_per_second": None,
        "energy_per_sample": None,
        "cost_per_step": None,
        "cost_per_sample": None,
    }
    assert of(step(replace(DECODE, device=None), 2e6)) is None


@pytest.mark.parametrize("measured", [False, True])
def test_a_claim_about_tokens(measured: bool) -> None:
    cases = [replace(DECODE, batch=batch) for batch in (1, 4)]
    records = [
        times(case, "forward", *[nbytes * 1e-9] * 9) if measured else step(case, nbytes)
        for case, nbytes in zip(cases, (2e6, 4e6), strict=True)
    ]
    claim = Claim(
        quantity="tokens_per_second",
        left=Side(conditions={"batch": 4}),
        relation=">",
        right=Side(conditions={"batch": 1}),
        every="model",
    )
    found = RecordSet(records, devices={"toy": card()})
    (verdict,) = judge([Hypothesis(text="more sequences, more tokens", claim=claim)], found, None, ())
    assert (verdict.outcome, verdict.basis) == ("supported", "measured" if measured else "estimated")
    (pair,) = verdict.pairs
    assert pair.left_value == pytest.approx(4 / 4e-3)
    assert pair.right_value == pytest.approx(1 / 2e-3)
