"""Bands that hold 8 of 10, and the models that they are held against."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.prediction.coverage import FOLDS, bands_of, fold_of, held, interval, of_folds, width
from benchmarks.prediction.tables import Judged, errors

from rooflens.predict.bands import band, kinds

ROW = Judged(
    source="own", model="a", device="round", level="datasheet", mode="inference", regime="graph", measured=1.0,
    predicted=1.0, bound=0.5, bands=("graph, inference", "graph"),
)  # fmt: skip
NAMES = {fold_of(replace(ROW, model=f"m{n}")): f"m{n}" for n in range(60)}
"""A model of each fold."""


def rows(ratios: list[float], model: str) -> list[Judged]:
    return [replace(ROW, measured=ratio, model=model) for ratio in ratios]


def test_an_interval_has_a_share_of_the_rows_or_a_stretched_range() -> None:
    ranked = [n / 10 for n in range(5, 16)]  # 0.5 to 1.5
    assert interval(ranked, 0.8) == pytest.approx((0.6, 1.4))
    assert interval(ranked, 1.0) == pytest.approx((0.5, 1.5))
    assert interval(ranked, 2.0) == pytest.approx((0.25, 2.25))  # the median is 1: squares
    assert interval([2.0, 3.0], 1.0) == (0.99, 3.0)  # the prediction itself lies in the band


def test_the_width_is_that_with_which_a_model_lies_in_what_others_tell() -> None:
    # Ten models alike: each of the ratios 0.5 ... 1.5 comes ten times, so 8 of 10 rows lie in 8 of 10 rows.
    alike = {fold: [n / 10 for n in range(5, 16)] for fold in range(10)}
    assert 0.7 <= width(alike) <= 0.85
    # Models that differ, and rows of one that do not: only a range beyond what the others tell holds the outer two.
    apart = {0: [0.8] * 3, 1: [1.0] * 3, 2: [1.0] * 3, 3: [1.0] * 3, 4: [1.25] * 3}
    assert width(apart) == 0.95 or width(apart) >= 1.0
    assert width({3: [1.0, 2.0]}) == 1.0, "one model tells of no other"


def test_few_models_have_the_band_of_all_that_wait_for_the_same() -> None:
    """A tenth model lies within nine others in 8 of 10 cases: each of the ten is as likely to be an outer one."""
    nine = [row for n in range(9) for row in rows([0.9, 1.1, 1.3], f"m{n}")]
    few = bands_of(nine)
    assert ("datasheet", "graph, inference") not in few
    assert few["datasheet", "graph"][1] >= 1.1
    assert ("datasheet", "graph, inference") in bands_of([*nine, *rows([1.0], "another")])


def test_the_band_of_an_answer_is_the_sum_of_those_of_its_parts() -> None:
    """The prompt takes 1 s (0.5 to 2 times that), all further tokens 10 s (0.9 to 1.2 times): 9.5 to 14 s."""
    bands = {("datasheet", "prefill"): (0.5, 2.0), ("datasheet", "decode"): (0.9, 1.2)}
    parts = ((1.0, ("prefill",)), (10.0, ("decode",)))
    folds = [bands] * FOLDS
    for measured, inside in ((9.4, False), (9.6, True), (13.9, True), (14.1, False)):
        answer = replace(ROW, predicted=11.0, measured=measured, mode="generate", parts=parts)
        assert held(answer, folds) is inside
    assert held(replace(ROW, parts=((1.0, ("nobody's",)),)), folds) is None


def test_rows_are_held_against_the_bands_of_other_models() -> None:
    """One model differs: its own rows never widen the band that it is counted with."""
    usual = [row for fold in range(1, 10) for row in rows([0.95, 1.0, 1.05], NAMES[fold])]
    odd = rows([3.0, 3.1, 3.2], NAMES[0])
    folds = of_folds([*usual, *odd])
    assert [held(row, folds) for row in odd] == [False] * 3
    assert folds[0]["datasheet", "graph"][1] < 1.2
    assert errors(odd, lambda row: held(row, folds))["coverage"] == 0
    assert errors(usual, lambda row: held(row, folds))["coverage"] > 60


def test_a_step_has_the_most_fitting_band() -> None:
    assert kinds("graph", "decode", 5e-6) == ("graph, decode, short kernels", "graph, decode", "graph")
    assert kinds("graph", "train", 5e-5)[0] == "graph, train, long kernels"
    low, high = band({}, "graph", "datasheet", "no such mode", 1.0)
    assert low < 1 < high
