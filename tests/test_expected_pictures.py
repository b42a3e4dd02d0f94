"""The band of the expected time in pictures: where it stands, in all renderers, and what the legend says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.ranked_steps import TERA, a_card, relu_on, steps

import rooflens as rl
from rooflens.report.arranged import TableView
from rooflens.report.asked_tables import asked_tables
from rooflens.report.figures.page_layout import Plane, arrange
from rooflens.report.figures.roofline import roofline_figure
from rooflens.report.figures.roofline_data import stems
from rooflens.report.table_notes import BELOW_BOUND
from rooflens.results import RecordSet

SLOW, FAST = a_card("slow"), a_card("fast", 2 * TERA)


def both() -> RecordSet:
    return steps(relu_on(SLOW), relu_on(FAST))


def test_the_band_stands_at_the_work_over_the_expected_times() -> None:
    total = relu_on(SLOW).total()
    assert total.predicted_low is not None
    assert total.predicted_high is not None
    figure = roofline_figure(relu_on(SLOW), by="phase")
    (whisker,) = figure.whiskers
    # 100 samples of a million FLOP, 8 MB each: an eighth of a FLOP per byte; expected to take 1 ms.
    assert whisker.middle == pytest.approx((0.125, 1e8 / 1e-3))
    assert whisker.start == pytest.approx((0.125, 1e8 / total.predicted_high))
    assert whisker.end == pytest.approx((0.125, 1e8 / total.predicted_low))
    assert figure.y.low < whisker.start[1]
    (mark,) = figure.marks
    assert "expected 1.000 ms, 8 of 10 measured times in" in " ".join(mark.hover)


def test_where_no_time_is_expected_there_is_no_band() -> None:
    unknown = relu_on(SLOW).with_records(record for record in relu_on(SLOW) if record.scope == "model")
    assert roofline_figure(unknown).whiskers == ()
    assert {whisker.device for whisker in roofline_figure(both(), by="phase").whiskers} == {0, 1}


def test_every_renderer_draws_it_and_says_what_it_is(tmp_path: Path) -> None:
    words = "expected, 8 of 10 times within"
    for suffix in ("svg", "html"):
        path = tmp_path / f"band.{suffix}"
        rl.roofline(both(), by="phase").save(path)
        assert words in path.read_text(encoding="utf-8")
    rl.roofline(both(), by="phase").save(tmp_path / "band.png")
    assert (tmp_path / "band.png").stat().st_size > 1000


def test_a_chart_of_times_has_error_bars_where_they_are_expected() -> None:
    chart = rl.chart("latency", both()).chart
    dots = [dot for series in chart.series for dot in series.dots]  # type: ignore[union-attr]
    assert sorted(dot.y for dot in dots) == pytest.approx([0.5e-3, 1e-3])
    for dot in dots:
        assert dot.bar is not None
        (x0, low), (x1, high) = dot.bar
        assert x0 == x1 == dot.x
        assert low < dot.y < high
    assert any("8 of 10" in note for note in chart.notes)


def test_no_label_lies_on_a_band() -> None:
    for width in (None, 240.0):
        page = arrange(roofline_figure(both(), by="phase"), width=width)
        plane = Plane(page.figure, page.plane)
        assert len(page.figure.whiskers) == 2
        assert page.within
        for whisker in page.figure.whiskers:
            ends = (*plane.at(whisker.start), *plane.at(whisker.end))
            assert not any(text.box.crossed_by(ends) for text in page.within)


def test_an_expected_time_below_the_bound_is_marked_as_tables_mark_it(tmp_path: Path) -> None:
    # Streams that reach 160 % of the bandwidth: 0.5 ms are expected of a bound of 0.8 ms.
    quick = relu_on(a_card("quick", stream__share_wide=1.6))
    figure = roofline_figure(quick, by="phase")
    assert [whisker.below_bound for whisker in figure.whiskers] == [True]
    assert f"{BELOW_BOUND}." in figure.notes
    assert any(line.startswith("! expected 500.0 us") for line in figure.marks[0].hover)
    assert "! 500.0 us" in rl.table(quick, width=200)
    for suffix, sign in (("svg", "<!-- ! -->"), ("html", "\\u003cb\\u003e!")):
        path = tmp_path / f"quick.{suffix}"
        figure.save(path)
        assert sign in path.read_text(encoding="utf-8")
    data = rl.explore(quick).data
    assert data["marks"]["below_bound"] == [False, True]  # the bound, and the expected time
    assert data["marks"]["told"][1][0] == "! 500.0 us"
    usual = roofline_figure(relu_on(SLOW), by="phase")
    assert not usual.whiskers[0].below_bound
    assert f"{BELOW_BOUND}." not in usual.notes
    assert rl.explore(relu_on(SLOW)).data["marks"]["below_bound"] == [False, False]


def test_areas_and_shares_of_parts_are_of_the_expected_time() -> None:
    # Both have the bound of 800 MB at 1 TB/s; the second one's tensors are three times as large.
    card = a_card("toy")
    small, large = relu_on(card, 100), relu_on(card, 300)
    whole, first = small
    (second,) = (record for record in large if record.scope == "op")
    assert second.work is not None
    second = replace(second, case=first.case, kind="other", path="b", work=replace(second.work, bytes={"dram": 8e8}))
    both = RecordSet([whole, first, second], devices={card.name: card})
    (table,) = asked_tables(both, TableView(by="family"))
    shown = {column.key: column for column in table.columns}
    assert shown["expected_share"].show == shown["predicted_seconds"].show == "always"
    first_time, second_time = (both.sum([record], card).predicted_seconds or 0.0 for record in (first, second))
    assert second_time > 1.2 * first_time
    wanted = [second_time / (first_time + second_time), first_time / (first_time + second_time)]
    place = [column.key for column in table.columns].index("expected_share")
    assert [row[place].value for row in table.rows] == pytest.approx(wanted)
    shares = {mark.label: mark.share for mark in roofline_figure(both, by="family").marks if not mark.whole}
    assert sorted(shares.values(), reverse=True) == pytest.approx(wanted)


def test_a_band_is_joined_to_the_mark_of_its_bound() -> None:
    figure = roofline_figure(both(), by="phase")
    lines = list(stems(figure.whiskers))
    assert {line.start for line in lines} == {(mark.x, mark.y) for mark in figure.marks}
    assert all(line.end[1] < line.start[1] for line in lines)
    assert not list(stems([*figure.whiskers] * 16))  # too many to follow
