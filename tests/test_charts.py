"""Charts: where values lie, ticks that can be read, colours that can be seen, and both backends."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.figure_samples import device, measured, operation, records
from tests.ranked_steps import a_card, relu_on, steps

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import InvalidValue
from rooflens.records import Case
from rooflens.report.charts import (
    Axis,
    Bar,
    BarPiece,
    Bars,
    Chart,
    Dot,
    HeatCell,
    HeatMap,
    Plot,
    Series,
    svg,
    with_matplotlib,
)
from rooflens.report.charts.bar_rows import bar_rows, in_lines
from rooflens.report.charts.chart import legend_names
from rooflens.report.charts.colours import diverging, ink_on, on_dark
from rooflens.report.charts.labels import chart_labels
from rooflens.report.figures.axes import place, tick_text, ticks
from rooflens.report.figures.label_places import Box
from rooflens.report.figures.palette import _DEVICES, _FAMILIES
from rooflens.report.study.cases import CaseLooks
from rooflens.results import RecordSet

AXIS = Axis(label="bytes", low=1.0, high=1e4, unit="B")
DOT = Dot(100.0, 0.1, ("first", 'a "b" <c>'), ((50.0, 0.1), (200.0, 0.1)))
PLOT = Plot(
    key="plot",
    title="A <plot> of $x_1$",
    x=AXIS,
    y=Axis(label="time", low=1e-3, high=1.0, unit="s"),
    series=(
        Series(name="line", colour="#332288", path=((1.0, 1e-3), (1e4, 1.0)), label="roof", tip=("a roof",)),
        Series(
            name="dots",
            colour="#117733",
            shape="diamond",
            dots=(Dot(100.0, 0.1, ("first", 'a "b" <c>'), ((50.0, 0.1), (200.0, 0.1))),),
        ),
    ),
)
BARS = Bars(
    key="bars",
    title="Bars",
    axis="share",
    unit="%",
    bars=(Bar("one", (BarPiece("a", 0.25, ("a",)), BarPiece("b", 0.75))), Bar("two", (BarPiece("b", 1.0),))),
    groups={"a": "#0072b2", "b": "#d55e00", "unused": "#009e73"},
)
HEAT = HeatMap(
    key="heat",
    title="Heat",
    columns=("DRAM bytes", "FLOP"),
    rows=(("row", (HeatCell(1.0, "1.00", ("told",)), HeatCell(None, "-"))),),
)
CHARTS = pytest.mark.parametrize("chart", [PLOT, BARS, HEAT], ids=lambda chart: chart.key)


def test_values_lie_between_the_ends() -> None:
    assert [place(AXIS, value) for value in (1.0, 100.0, 1e4)] == pytest.approx([0.0, 0.5, 1.0])
    linear = Axis(label="", low=0.0, high=8.0, scale="linear")
    assert place(linear, 2.0) == 0.25


@given(
    low=st.floats(1e-12, 1e12),
    decades=st.floats(0.1, 20),
    most=st.integers(2, 8),
)
def test_ticks_are_inside_and_few(low: float, decades: float, most: int) -> None:
    axis = Axis(label="", low=low, high=low * 10**decades)
    found = ticks(axis, most)
    assert len(found) <= most
    assert all(axis.low <= tick <= axis.high for tick in found)
    assert found == sorted(set(found))
    # Between any two powers of ten there is something to read a value by.
    assert found or decades < 1


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [("s", 1e-3, "1 ms"), ("FLOP/s", 2e13, "20 TFLOP/s"), ("", 500.0, "500"), ("", 2e6, "2 M"), ("%", 0.2, "20 %")],
)
def test_a_tick_reads_as_people_write(unit: str, value: float, text: str) -> None:
    assert tick_text(Axis(label="", low=value / 2, high=value * 2, unit=unit), value) == text


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return math.fsum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*_DEVICES, *_FAMILIES.values()])
def test_every_colour_is_seen_on_a_dark_page(colour: str) -> None:
    assert contrast(on_dark(colour), "#14181d") >= 3.0  # what WCAG asks of graphics


@pytest.mark.parametrize("value", [-1, -0.7, -0.3, 0, 0.2, 0.45, 0.6, 0.8, 1])
def test_numbers_of_a_heat_map_are_read_on_their_ground(value: float) -> None:
    ground = diverging(value)
    assert contrast(ground, ink_on(ground)) >= 4.5


@CHARTS
def test_a_page_gets_well_formed_svg_with_words_of_marks(chart: Chart) -> None:
    drawn = svg.draw(chart)
    root = ElementTree.fromstring(drawn)
    assert root.get("aria-label") == chart.title
    assert root.get("role") == "img"
    assert any(each.get("data-t") for each in root.iter())
    # Nothing lies outside of the view box.
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for each in root.iter("rect"):
        assert -0.1 <= float(each.get("x", 0)) <= width
        assert float(each.get("x", 0)) + float(each.get("width", 0)) <= width + 0.1
        assert float(each.get("y", 0)) + float(each.get("height", 0)) <= height + 0.1


def test_a_mark_keeps_its_words_as_they_are() -> None:
    (mark,) = (each for each in ElementTree.fromstring(svg.draw(PLOT)).iter("use"))
    assert mark.get("data-t") == 'first\na "b" <c>'
    assert mark.get("href") == "#diamond"


def test_bars_are_as_long_as_their_shares() -> None:
    pieces = list(ElementTree.fromstring(svg.draw(BARS)).iter("rect"))
    first, second, third = (float(each.get("width", 0)) for each in pieces)
    assert second == pytest.approx(3 * first, rel=0.01)
    assert third == pytest.approx(first + second, rel=0.01)
    assert [name for _, name in svg.legend(BARS)] == ["a", "b"]


@CHARTS
@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_files_are_drawn_and_equal_charts_give_equal_bytes(chart: Chart, suffix: str, begins: bytes) -> None:
    drawn = with_matplotlib.render(chart, suffix)
    assert drawn.startswith(begins)
    assert drawn == with_matplotlib.render(chart, suffix)


def test_dashes_and_labels_of_lines_are_drawn() -> None:
    drawn = svg.draw(PLOT)
    assert ">roof<" in drawn
    assert re.search(r'<path d="M[0-9.]+,[0-9.]+ [0-9.]+,[0-9.]+" class="l" stroke-width="3" opacity=".35"/>', drawn)


# Charts of records ---------------------------------------------------------------------------------------------------


def test_a_chart_of_records_saves_itself(tmp_path: Path) -> None:
    # Batches of 1 and 4 in 1 ms and 2 ms: 1,000 and 2,000 samples per second.
    cases = [Case(model="net", device="toy-100", batch=batch) for batch in (1, 4)]
    timed = records([measured(cases[0], 1e-3), measured(cases[1], 2e-3)], [device()])
    picture = rl.chart("throughput", timed)
    assert isinstance(picture.chart, Plot)
    assert [pytest.approx(point) for point in picture.chart.series[0].path] == [(1.0, 1000.0), (4.0, 2000.0)]
    drawn = picture.save(tmp_path / "throughput.svg").read_text()
    assert drawn.startswith("<?xml")
    assert picture._repr_png_().startswith(b"\x89PNG")
    page = picture.save(tmp_path / "throughput.html").read_text()
    assert page.count("<svg viewBox") > 0
    assert "default-src 'none'" in page
    with pytest.raises(InvalidValue, match=r"its suffix is '\.gif', known are \.png, \.svg, \.pdf, \.html"):
        picture.save(tmp_path / "throughput.gif")
    with pytest.raises(InvalidValue, match=r"'.*throughput.pdf' 5 mm wide: from 60 to 1000 mm fit"):
        picture.save(tmp_path / "throughput.pdf", width=5)
    # 85 mm are 85 / 25.4 x 72 = 240.9 points.
    assert b"/MediaBox [ 0 0 240.94" in picture.save(tmp_path / "throughput.pdf", width=85).read_bytes()


def test_a_chart_is_told_by_name_and_needs_its_records() -> None:
    with pytest.raises(InvalidValue, match=r"unknown chart 'pie' \(known: achieved, agreement, "):
        rl.chart("pie", RecordSet(()))
    timed = records([measured(Case(model="net", device="toy-100", batch=1), 1e-3)], [device()])
    for name, needs in (
        ("agreement", "a step with an estimate on a device and a measured time"),
        ("latency", "two steps with a time and FLOP"),
        ("throughput", "a model with times at two batches or more"),
    ):
        with pytest.raises(InvalidValue, match=f"the records hold nothing for the chart '{name}', which needs {needs}"):
            rl.chart(name, timed)


def test_the_agreement_of_bound_and_time() -> None:
    # 100 GFLOP at 100 TFLOP/s take 1 ms; 2 ms were measured.
    case = Case(model="net", device="toy-100", batch=1)
    picture = rl.chart(
        "agreement", records([operation(case, "fc", "matmul", matmul=1e11), measured(case, 2e-3)], [device()])
    )
    assert isinstance(picture.chart, Plot)
    dots = [dot for series in picture.chart.series for dot in series.dots]
    assert [(dot.x, dot.y) for dot in dots] == [pytest.approx((1e-3, 2e-3))]


def test_the_notes_of_a_chart_are_written_below_it() -> None:
    plain, noted = (
        with_matplotlib.render(replace(PLOT, notes=("a <note> of $x$",)), "svg", notes=n) for n in (False, True)
    )
    assert (b"a &lt;note&gt; of $x$" in plain, b"a &lt;note&gt; of $x$" in noted) == (False, True)


def test_a_chart_from_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "run.jsonl", tmp_path / "latency.svg"
    cases = [Case(model=name, device="toy-100", batch=1) for name in ("one", "two")]
    items = [operation(case, "fc", "matmul", matmul=1e11 * n) for n, case in enumerate(cases, 1)]
    records(items, [device()]).save(file)
    result = CliRunner().invoke(cli, ["plot", str(file), "--chart", "latency", "-o", str(out)])
    assert (result.exit_code, out.read_bytes()[:5]) == (0, b"<?xml")
    for option, value in (("--by", "op"), ("--depth", "0")):
        both = CliRunner().invoke(cli, ["plot", str(file), "--chart", "latency", option, value, "-o", str(out)])
        assert (both.exit_code, f"--chart goes without {option}" in both.output) == (2, True)


points = st.tuples(st.floats(min_value=-3, max_value=3), st.floats(min_value=-3, max_value=3))


@settings(deadline=None, max_examples=20)
@given(st.lists(points, min_size=1, max_size=25), st.booleans())
def test_no_name_of_a_mark_covers_a_name_or_a_mark_or_a_roof(places: list[tuple[float, float]], lines: bool) -> None:
    dots = [Dot(10**x, 10**y, label=f"network {n}") for n, (x, y) in enumerate(places)]
    roof = Series(name="", colour="#000000", path=((1e-4, 1e-4), (1.0, 1.0)), tip=("roof",), label="dram 1 TB/s")
    flat = replace(roof, path=((1.0, 1.0), (1e4, 1.0)), label="matmul 1 TFLOP/s")
    named = [
        Series(name="", colour="#000000", dots=(dot,), path=((1e-3, 1e-3), (dot.x, dot.y)) if lines else ())
        for dot in dots
    ]
    axis = Axis(label="", low=1e-4, high=1e4)
    width, height, size = 470.0, 300.0, 8.0
    plot = Plot(key="", title="", x=axis, y=axis, series=(roof, flat, *named))

    def at(x: float, y: float) -> tuple[float, float]:
        return width * place(axis, x), height * place(axis, y)

    labels = chart_labels(plot, width, height, size)
    boxes = [
        Box(label.left, label.middle - size / 2, label.left + 0.55 * size * len(label.text), label.middle + size / 2)
        for label in labels
    ]
    assert not any(a.meets(b) for a, b in itertools.combinations(boxes, 2))
    marks = [at(dot.x, dot.y) for dot in dots]
    assert not any(box.meets(Box(x - 3, y - 3, x + 3, y + 3)) for box in boxes for x, y in marks)
    if lines:  # names stand in a column, from which leaders lead to the ends, where that has room
        assert len(labels) >= len(dots) or max(x for x, _ in places) > 2
        return
    walls = [(*at(*series.path[0]), *at(*series.path[1])) for series in (roof, flat)]
    assert not any(box.crossed_by(wall) for box in boxes for wall in walls)


def test_looks_tell_devices_dtypes_and_batches_apart() -> None:
    cases = [
        Case(model="net", device=on, batch=batch, dtype=dtype)
        for on in ("quick", "slow")
        for dtype in ("fp32", "bf16")
        for batch in (1, 64)
    ]
    looks = CaseLooks.of(cases)
    seen = {
        (its.colour, its.shape, looks.dot(case, Dot(1.0, 1.0)).size) for case in cases if (its := looks.series(case))
    }
    assert len(seen) == len(cases)
    assert [series.name for series in looks.legend()] == ["fp32", "bf16"]
    assert list(looks.notes()) == ["size of a mark: batch 1 to 64"]
    # One device: its models have colours, and their names are written.
    models = [Case(model=f"net{letter}", device="quick", batch=8) for letter in "abc"]
    one = CaseLooks.of(models)
    assert len({one.series(case).colour for case in models}) == 3
    assert [one.dot(case, Dot(1.0, 1.0)).label for case in models] == ["neta", "netb", "netc"]


def test_throughput_without_a_time_is_the_expected_one_above_all_below_its_bound() -> None:
    card = a_card("card")
    plot = rl.chart("throughput", steps(relu_on(card, 100), relu_on(card, 400))).chart
    assert isinstance(plot, Plot)
    expected, bound = plot.series
    assert (expected.dash, bound.dash != ()) == ((), True)
    for dot, top in zip(expected.dots, bound.dots, strict=True):
        assert dot.bar is not None
        ((_, low), (_, high)) = dot.bar
        assert low < dot.y < high
        # 8 MB a sample at 0.8 of 1 TB/s: 10 us, where its bound is 8 us.
        assert dot.y == pytest.approx(100_000, rel=0.05)
        assert top.y == pytest.approx(125_000)
    assert (plot.y.label, plot.notes[0]) == ("samples per second", f"on {card.name}")
    assert [dot.label for dot in bound.dots] == ["", ""]


@pytest.mark.parametrize(
    ("mode", "options", "label", "factor"),
    [
        ("decode", (("seq_len", 100),), "tokens per second", 1),
        ("prefill", (("seq_len", 100),), "prompt tokens per second", 100),
        ("train", (("seq_len", 100),), "tokens per second", 100),
        ("inference", (), "samples per second", 1),
    ],
)
def test_throughput_of_language_models_counts_tokens(
    mode: str, options: tuple[tuple[str, int], ...], label: str, factor: int
) -> None:
    cases = [Case(model="m", batch=n, device="toy-100", mode=mode, options=options) for n in (1, 4)]
    plot = rl.chart("throughput", records([measured(case, 1e-3) for case in cases], [device()])).chart
    assert isinstance(plot, Plot)
    assert plot.y.label == label
    assert [dot.y for dot in plot.series[0].dots] == pytest.approx([1000 * factor, 4000 * factor])


@pytest.mark.parametrize("models", [2, 6])
def test_many_lines_are_told_apart_without_names(models: int) -> None:
    """Two models on two devices in two dtypes are 8 lines, which have names; six are 24, which have a legend."""
    names, cards, dtypes = [f"net{n}" for n in range(models)], ["toy-100", "toy-200"], ["fp32", "bf16"]
    cases = [
        Case(model=model, batch=batch, device=card, dtype=dtype)
        for model, card, dtype, batch in itertools.product(names, cards, dtypes, (1, 4))
    ]
    sets = records([measured(case, 1e-3 * n) for n, case in enumerate(cases, 1)], [device(card) for card in cards])
    plot = rl.chart("throughput", sets).chart
    assert isinstance(plot, Plot)
    lines = [series for series in plot.series if series.dots]
    assert len(lines) == 4 * models
    assert len({(line.colour, line.shape, line.dash) for line in lines}) == (4 if models == 2 else 24)
    assert {dot.label for line in lines for dot in line.dots} == ({"net0", "net1"} if models == 2 else {""})
    if models == 6:
        assert legend_names(plot) == [*dict.fromkeys(line.name for line in lines), *cards, *dtypes]
        assert plot.y.low > 10  # entries of the legend are no points


def test_lines_of_one_name_that_end_one_above_the_other_have_it_once() -> None:
    def line(name: str, y: float) -> Series:
        return Series(name="", colour="#000000", path=((1.0, y), (10.0, y)), dots=(Dot(10.0, y, label=name),))

    lines = tuple(line(name, y) for name, y in (("a", 1e-3), ("a", 1e-2), ("b", 1e-1), ("a", 1.0)))
    labels = chart_labels(replace(PLOT, series=lines), 400, 300, 8)
    assert sorted((label.text, len(label.leaders)) for label in labels) == [("a", 1), ("a", 2), ("b", 1)]
    # Of 40 names there is room for 20 or so: each of the two names is among them.
    many = tuple(line("b" if n == 39 else f"a{n % 2}", 10 ** (-3 + n / 13)) for n in range(40))
    shown = chart_labels(replace(PLOT, series=many), 400, 250, 8)
    assert {label.text for label in shown} == {"a0", "a1", "b"}
    assert len(shown) < 25


def test_a_device_looks_the_same_on_every_chart_of_a_report() -> None:
    order = ("quick", "slow", "third")
    for shown in (["slow", "quick"], ["third", "slow"]):
        cases = [Case(model="net", device=on) for on in shown]
        looks = CaseLooks.of(cases, order)
        for its in cases:
            series = looks.series(its)
            number = order.index(its.device or "")
            assert (series.colour, series.shape) == (_DEVICES[number], ("circle", "diamond", "square")[number])


class TestNamesOfBars:
    LONG = "timm:vit_base_patch16_224.augreg2_in21k_ft_in1k batch 256 bf16 on h100-sxm5-80gb"

    def test_long_names_stand_above_their_bars_whole(self) -> None:
        chart = replace(BARS, bars=(Bar(self.LONG, (BarPiece("a", 1.0),)), Bar("b", (BarPiece("b", 1.0),))))
        found = bar_rows(chart, 60, len, line=1, row=2)
        first, second = found.rows
        assert found.above
        # 56 of the 60 letters of a page: the name takes two lines, 0.6 and 1.6 below the top; its bar ends at 4.
        assert [text for text, _ in first.lines] == [self.LONG[:53], self.LONG[54:]]
        assert [middle for _, middle in first.lines] == [0.6, 1.6]
        assert (first.middle, second.lines, second.middle, found.height) == (3.0, (("b", 4.6),), 6.0, 7.0)
        assert not bar_rows(chart, 400, len, line=1, row=2).above
        for width in (None, 241.0):
            drawn = with_matplotlib.render(chart, "svg", width=width).decode() + svg.draw(chart)
            assert drawn.count("ft_in1k") >= 2

    def test_of_a_word_longer_than_the_page_both_ends_are_kept(self) -> None:
        assert in_lines("a_very_long_name_of_a_model_b16 batch 8", 20, len) == ("a_very_lo…model_b16", "batch 8")

    def test_amounts_stand_beside_the_bars_but_shares_do_not(self) -> None:
        timed = replace(BARS, unit="s", bars=(Bar("one", (BarPiece("a", 1e-3), BarPiece("b", 2.5e-4))),))
        assert [row.amount for row in bar_rows(timed, 60, len, line=1, row=2).rows] == ["1.25 ms"]
        assert "1.25 ms" in svg.draw(timed)
        assert {row.amount for row in bar_rows(BARS, 60, len, line=1, row=2).rows} == {""}

    def test_a_short_axis_has_two_ticks_at_least(self) -> None:
        # 26.3 s and room for two: a step of 26.3 rounds up to 50, which would leave the zero alone.
        assert ticks(Axis(label="t", low=0.0, high=26.3, unit="s", scale="linear"), 2) == [0.0, 20.0]

    def test_names_of_lines_that_have_no_room_beside_them_stand_around_their_ends_whole(self) -> None:
        name = "timm:vit_base_patch16_224"
        dots = (Dot(1.0, 1e-3), Dot(1e3, 0.5, label=name))
        chart = replace(PLOT, series=(Series(name="a", colour="#332288", path=((1.0, 1e-3), (1e3, 0.5)), dots=dots),))
        # The line ends at three quarters of the width: 83 of 400 points beside it are more than 8 sizes, 33 are less.
        assert [label.text for label in chart_labels(chart, 400, 300, 8, len)] == [name]
        several = replace(chart, series=chart.series * 4)
        cut = chart_labels(several, 400, 300, 8, lambda text: 5.0 * len(text))
        assert {(label.text, label.left > 300) for label in cut} == {
            ("timm:vi…h16_224", True)
        }  # 15 letters of 5 points
        (whole,) = chart_labels(chart, 400, 300, 8, lambda text: 5.0 * len(text))
        assert (whole.text, whole.left < 300) == (name, True)  # one of few stands around its end
        (around,) = chart_labels(chart, 200, 300, 8, lambda text: 5.0 * len(text))
        assert (around.text, around.left < 150) == (name, True)
