"""How far an answer goes through the code, and that no bound is computed twice and no set joined twice."""

from __future__ import annotations

import functools
import sys

import pytest
from benchmarks.path_lengths import ANSWERS, Followed
from tests.table_samples import both

import rooflens as rl
from rooflens.records import Work
from rooflens.results import RecordSet, join
from rooflens.roofline import Bounds

EVERY_ANSWER = pytest.mark.parametrize("answer", ANSWERS)


@functools.cache
def followed(answer: str) -> Followed:
    return ANSWERS[answer]()


@EVERY_ANSWER
def test_a_bound_is_computed_once_for_each_work_and_device(answer: str) -> None:
    numbers = followed(answer).numbers
    assert numbers["bounds"] > 0
    assert numbers["bounds"] == numbers["distinct bounds"]


@EVERY_ANSWER
def test_evidence_is_joined_once(answer: str) -> None:
    assert followed(answer).joins == 1


@pytest.mark.parametrize(
    # The layer of expected times is not in it, as formulas of costs are not.
    ("answer", "functions", "files"),
    [("table", 211, 38), ("picture", 191, 38), ("report", 579, 111)],
)
def test_the_path_of_an_answer_stays_short(answer: str, functions: int, files: int) -> None:
    numbers = followed(answer).numbers
    assert numbers["functions"] <= functions
    assert numbers["files"] <= files


def test_a_set_is_joined_once_and_its_totals_are_summed_once() -> None:
    records = both()
    (item,) = join(records)
    assert join(records)[0] is item
    assert item.total("forward") is item.total()  # the only phase is the step
    assert item.measured() is item.measured()
    assert records.split()[0][2] is item.work
    assert records.split()[0][2].under(None, times={}) is records.split()[0][2].under(None)


def test_subsets_share_the_bounds_of_their_set(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated = both().where(source="estimate")
    seconds = estimated.total().seconds
    monkeypatch.setattr(sys.modules["rooflens.roofline.bound"], "bound", None)  # whoever computes one again fails
    assert estimated.where(batch=2).total().seconds == seconds
    assert sum(group.total.seconds or 0 for group in estimated.by("op")) == pytest.approx(seconds)


def test_equal_work_has_one_bound_and_other_work_another() -> None:
    bounds, device = Bounds(), both().devices["toy"]
    one = bounds.of(Work(flops={"matmul.fp32": 1e9}), device)
    assert bounds.of(Work(flops={"matmul.fp32": 1e9}), device) is one
    # 1 GFLOP/s for products: 2e9 FLOP take 2 s. Another device of the same rates is another device.
    assert bounds.of(Work(flops={"matmul.fp32": 2e9}), device).seconds == 2.0
    assert bounds.of(Work(flops={"matmul.fp32": 1e9}), both().devices["toy"]) == one


def test_a_set_that_changed_hands_is_joined_anew() -> None:
    (estimate,) = join(both().where(source="estimate"))
    (pair,) = join(both())
    assert estimate.time is None
    assert pair.time is not None
    assert [item.time is None for item in join(RecordSet(()))] == []


def test_a_table_asked_for_twice_is_the_same() -> None:
    records = both()
    assert rl.table(records, width=100) == rl.table(records, width=100)
