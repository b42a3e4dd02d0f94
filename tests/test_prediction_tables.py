"""Bands that hold 8 of 10, and the models that they are held against."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.prediction.tables import Judged, bands_of, errors, held

from rooflens.predict.bands import band, kinds

ROW = Judged(
    source="own", model="a", device="round", level="datasheet", mode="inference", regime="graph", measured=1.0,
    predicted=1.0, bound=0.5, bands=("graph, inference", "graph"),
)  # fmt: skip


def rows(count: int, model: str = "a") -> list[Judged]:
    """Rows that took 1, 2, 3 ... times what was predicted."""
    return [replace(ROW, measured=float(n), model=model) for n in range(1, count + 1)]


def test_a_band_leaves_out_a_tenth_of_further_rows_on_either_side() -> None:
    # Of 19 values, a twentieth lies on average below the first: (n + 1) / 10 = 2, so the second and the eighteenth.
    assert bands_of(rows(19))["datasheet", "graph"] == (0.99, 18.0)  # 2.0 would not hold the prediction itself
    assert bands_of(rows(19))["datasheet", "graph, inference"] == (0.99, 18.0)


def test_few_rows_have_the_band_of_a_wider_group_and_all_of_it() -> None:
    few = bands_of(rows(5))
    assert ("datasheet", "graph, inference") not in few
    assert few["datasheet", "graph"] == (0.99, 5.0)


def test_rows_are_held_against_the_bands_of_other_models() -> None:
    narrow, wide = ({("datasheet", "graph"): pair} for pair in ((0.9, 1.1), (0.5, 3.0)))
    assert [held(row, narrow) for row in rows(2)] == [True, False]
    found = errors(rows(4, "alexnet") + rows(4, "mobilenet_v2"), (narrow, wide))
    halves = {row.half for name in ("alexnet", "mobilenet_v2") for row in rows(1, name)}
    assert halves == {0, 1}
    assert found["coverage"] == 100 * (3 + 1) / 8  # one half against 0.5 to 3, the other against 0.9 to 1.1


def test_a_step_has_the_most_fitting_band() -> None:
    assert kinds("graph", "decode", 5e-6) == ("graph, decode, short kernels", "graph, decode", "graph")
    assert kinds("graph", "train", 5e-5)[0] == "graph, train, long kernels"
    low, high = band({}, "graph", "datasheet", "no such mode", 1.0)
    assert low < 1 < high
