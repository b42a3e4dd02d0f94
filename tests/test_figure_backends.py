"""The drawn figure: no text covers another or a mark, none leaves the page, and the page needs no other file."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from tests.figure_samples import chain, device, measured, operation, records
from tests.level_samples import cached, crowd, kernel

from rooflens.devices import catalogue, find
from rooflens.errors import InvalidValue, OutputError
from rooflens.records import Case
from rooflens.report.charts import svg
from rooflens.report.figures.axes import Axis, ticks
from rooflens.report.figures.drawn_marks import drawn_marks
from rooflens.report.figures.label_places import Box, Spot
from rooflens.report.figures.labels import TextLine, shorten, wrap
from rooflens.report.figures.page_layout import PLANE_WIDTH, SCREEN, Plane, arrange
from rooflens.report.figures.plotly_labels import PX
from rooflens.report.figures.roofline import roofline_figure
from rooflens.report.figures.saving import Figure
from rooflens.report.figures.with_matplotlib import POINTS_PER_INCH, draw
from rooflens.report.figures.with_plotly import draw as draw_plotly
from rooflens.report.figures.with_plotly import zoomed_ticks
from rooflens.report.study.rooflines import as_plot

A100 = find("a100-sxm4-40gb")
TEN = [
    find(name)
    for name in (
        "geforce-256-sdr",
        "tesla-t4",
        "v100-sxm2-16gb",
        "a100-sxm4-40gb",
        "a100-pcie-40gb",
        "a100-sxm4-80gb",
        "h100-sxm5-80gb",
        "geforce-rtx-4090",
        "b200-sxm-180gb",
        "xeon-platinum-8380",
    )
]
CASE = Case(model="resnet18", device=A100.name, batch=256)
MODELS = (("resnet18", 1.0, 1.0), ("vgg16", 5.0, 2.0), ("mobilenet_v3_large", 0.1, 0.6))


def one_device() -> Figure:
    return roofline_figure(records([*chain(CASE, 8), measured(CASE, 4e-3)], [A100]))


def two_devices() -> Figure:
    devices, items = [A100, find("h100-sxm5-80gb")], []
    for model, scale, traffic in MODELS:
        for name in (d.name for d in devices):
            case = replace(CASE, model=model, device=name)
            items += [*chain(case, 6, scale=scale, traffic=traffic), measured(case, 4e-3 * scale)]
    return roofline_figure(records(items, devices))


def two_devices_by_operation() -> Figure:
    devices = [A100, find("h100-sxm5-80gb")]
    return roofline_figure(records(chain(replace(CASE, device=None), 8)), by="op", devices=devices)


def ten_devices() -> Figure:
    items = [
        record
        for model, scale, traffic in MODELS
        for record in chain(replace(CASE, model=model, device=None), 6, scale=scale, traffic=traffic)
    ]
    return roofline_figure(records(items), devices=TEN)


def ten_empty_devices() -> Figure:
    return roofline_figure(records([]), devices=TEN)


def the_whole_catalogue() -> Figure:
    return roofline_figure(records([]), devices=catalogue())


def every_ceiling_of_one() -> Figure:
    return roofline_figure(records([]), devices=[A100])


def no_peak() -> Figure:
    return roofline_figure(records([]), devices=[TEN[0]])


def nothing() -> Figure:
    return roofline_figure(records([]))


def training() -> Figure:
    case = replace(CASE, mode="train", dtype="bf16")
    items = chain(case, 8, precision="bf16")
    items += [
        replace(record, phase="backward", name=f"{record.name}_backward") for record in items if record.kind != "copy"
    ]
    items.append(operation(case, "", "elementwise", vector=1e8, dram=4e8, phase="optimizer", name="sgd"))
    times = [measured(case, 5e-3), measured(case, 9e-3, "backward"), measured(case, 1e-4, "optimizer")]
    return roofline_figure(records([*items, *times], [A100]))


def three_hundred_operations() -> Figure:
    names = ("convolution", "elementwise", "normalization", "copy", "pooling", "softmax")
    items = [
        operation(
            CASE,
            f"blocks.{i // 8}.unit{i}",
            names[i % 6],
            matmul=10.0 ** (6 + i % 7) if i % 6 == 0 else 0.0,
            vector=0.0 if i % 6 in (0, 3) else 10.0 ** (5 + i % 4) * (1 + i % 9),
            dram=10.0 ** (5 + i % 5) * (1 + i % 13),
        )
        for i in range(300)
    ]
    return roofline_figure(records(items, [A100]))


def huge_and_tiny() -> Figure:
    return roofline_figure(
        records(
            [
                operation(CASE, "tiny", "matmul", matmul=2.0, dram=1e15),
                operation(CASE, "huge", "matmul", matmul=1e24, dram=4.0),
                measured(CASE, 1e-3),
            ],
            [A100],
        )
    )


def long_names() -> Figure:
    path = "encoder.layers.encoder_layer_11.self_attention.out_proj.a_very_long_name_that_goes_on"
    items = [operation(CASE, f"{path}{i}", "matmul", matmul=1e11 * (i + 1), dram=1e9 / (i + 1)) for i in range(12)]
    long = replace(A100, title="An accelerator with a name that does not want to end " * 3)
    return roofline_figure(records(items, [long]), title="A title that is very long indeed " * 8)


def hostile_names() -> Figure:
    path = "<b>$x_1$</b><script>alert(1)</script>%{x}\n\x1b[31m&amp;"
    case = replace(CASE, model=path)
    items = [operation(case, path, path, matmul=1e11, dram=1e9), operation(case, path, "copy", dram=1e8)]
    return roofline_figure(
        records([*items, measured(replace(case, batch=1), 1.0)], [replace(A100, title=path)]), by="op"
    )


def several_levels() -> Figure:
    return roofline_figure(records(crowd(), [cached()]), top=19)


def several_levels_by_module() -> Figure:
    return roofline_figure(records(crowd(), [cached()]), by="module")


def several_levels_on_two_devices() -> Figure:
    devices = [cached(), replace(cached(8e11, 3e12, 1.2e13), name="toy-2", title="Toy 2")]
    items = [*crowd(12), *crowd(12, case=replace(crowd(1)[0].case, device="toy-2"))]
    return roofline_figure(records(items, devices), by="kernel")


def several_levels_at_one_spot() -> Figure:
    level = {"l1": 1e7, "l2": 1e7, "dram": 1e7}
    return roofline_figure(records([kernel(f"k{i}", moved=level) for i in range(9)], [cached()]))


SAMPLES: list[Callable[[], Figure]] = [
    one_device,
    two_devices,
    two_devices_by_operation,
    ten_devices,
    ten_empty_devices,
    the_whole_catalogue,
    every_ceiling_of_one,
    no_peak,
    nothing,
    training,
    three_hundred_operations,
    huge_and_tiny,
    long_names,
    hostile_names,
    several_levels,
    several_levels_by_module,
    several_levels_on_two_devices,
    several_levels_at_one_spot,
]
every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)


class TestMatplotlib:
    @every_sample
    def test_no_text_covers_another_or_a_mark_or_leaves_the_page(self, sample: Callable[[], Figure]) -> None:
        figure = sample()
        canvas = draw(arrange(figure))
        canvas.canvas.draw()
        scale = POINTS_PER_INCH / canvas.dpi
        texts = [
            (text.get_text(), Box(*(scale * edge for edge in text.get_window_extent().extents)))
            for text in canvas.findobj(mpl.text.Text)
            if isinstance(text, mpl.text.Text) and text.get_text() and text.get_visible()
        ]
        width, height = (POINTS_PER_INCH * inches for inches in canvas.get_size_inches())
        assert len(texts) > 8
        for text, box in texts:
            assert Spot(box, box.left).inside(Box(0, 0, width, height)), text
        for (one, a), (other, b) in itertools.combinations(texts, 2):
            assert not a.meets(b), (one, other)
        marks = list(mark_boxes(figure, arrange(figure).plane))
        for text, box in texts:
            assert not any(box.meets(mark) for mark in marks), text

    def test_the_measured_texts_are_those_that_the_test_sees(self) -> None:
        # Guards the test above: two texts at one place do meet.
        canvas = draw(arrange(one_device()))
        page = canvas.axes[1]
        boxes = [page.text(100, 100, "twice").get_window_extent() for _ in range(2)]
        assert boxes[0].overlaps(boxes[1])
        assert boxes[0].width > 10

    @pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
    def test_files(self, tmp_path: Path, suffix: str, magic: bytes) -> None:
        path = one_device().save(tmp_path / f"figure.{suffix.upper()}")
        assert path.read_bytes().startswith(magic)
        again = one_device().save(tmp_path / f"again.{suffix}")
        assert again.read_bytes() == path.read_bytes()

    def test_a_style_of_the_user_changes_nothing(self, tmp_path: Path) -> None:
        plain = one_device().save(tmp_path / "plain.svg").read_bytes()
        with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "text.color": "red", "savefig.bbox": "tight"}):
            assert one_device().save(tmp_path / "styled.svg").read_bytes() == plain

    def test_pyplot_is_not_touched(self, tmp_path: Path) -> None:
        import subprocess
        import sys

        code = (
            "import sys\nfrom rooflens.report.figures.roofline import roofline_figure\n"
            "from rooflens.devices import find\nfrom rooflens.results import RecordSet\ncard = find('t4')\n"
            f"roofline_figure(RecordSet([], devices={{card.name: card}})).save({str(tmp_path / 'a.png')!r})\n"
            "assert 'matplotlib.pyplot' not in sys.modules and 'plotly' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})

    def test_a_notebook_shows_the_picture(self) -> None:
        assert one_device()._repr_png_().startswith(b"\x89PNG")

    def test_every_line_of_the_figure_is_drawn(self) -> None:
        figure = two_devices()
        plane = draw(arrange(figure)).axes[0]
        drawn = [tuple(map(float, line.get_xdata())) for line in plane.lines]  # type: ignore[arg-type]
        wanted = [(line.start[0], line.end[0]) for line in figure.ceilings]
        wanted += [(link.start[0], link.end[0]) for link in figure.links]
        for ends in wanted:
            assert any(xs == pytest.approx(ends) for xs in drawn if len(xs) == 2)

    def test_a_mark_of_each_level_and_a_line_between_them(self) -> None:
        figure = several_levels()
        plane = draw(arrange(figure)).axes[0]
        drawn = {tuple(map(float, dots.get_offsets()[0])) for dots in plane.collections}  # type: ignore[index,arg-type]
        assert {(mark.x, mark.y) for mark in figure.marks} <= drawn
        lines = [tuple(map(float, line.get_xdata())) for line in plane.lines]  # type: ignore[arg-type]
        for tie in figure.ties:
            assert any(xs == pytest.approx((tie.start[0], tie.end[0])) for xs in lines if len(xs) == 2)

    def test_numbers_are_explained_below(self) -> None:
        sheet = arrange(several_levels())
        below = [words.text for placed in sheet.notes for words in placed.rows]
        within = {words.text for placed in sheet.within for words in placed.rows}
        numbers = [f"{n}" for n in range(1, 16)]
        assert all(any(line.startswith(f"{number}: ") for line in below) for number in numbers)
        assert within >= {*numbers, "whole step"}

    def test_area_is_share_of_time(self) -> None:
        figure = roofline_figure(
            records(
                [
                    operation(CASE, "large", "copy", vector=1e6, dram=9e9),
                    operation(CASE, "small", "copy", vector=1e6, dram=1e9),
                ],
                [A100],
            )
        )
        large, small = (drawn.diameter for drawn in arrange(figure).marks if not drawn.mark.whole)
        assert (large / small) ** 2 == pytest.approx(9.0)


class TestTicks:
    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [
            (0.05, 2e4, [0.1, 1, 10, 100, 1000, 10000]),
            (3.0, 60.0, [5, 10, 20, 50]),
            (1e-3, 1e14, [1e-3, 1, 1e3, 1e6, 1e9, 1e12]),
        ],
    )
    def test_powers_of_ten_not_too_many_and_not_too_few(self, low: float, high: float, expected: list[float]) -> None:
        assert ticks(Axis(label="", low=low, high=high)) == pytest.approx(expected)

    def test_every_renderer_writes_the_same(self) -> None:
        figure = one_device()
        plot = plotly_json(figure)["layout"]
        drawn = draw(arrange(figure)).axes[0]
        chart = svg.draw(as_plot("roofline", figure))
        assert plot["title"]["text"] == figure.y.label == "performance"
        assert plot["xaxis"]["title"]["text"] == drawn.get_xlabel() == figure.x.label
        shown = [label.get_text() for label in drawn.get_yticklabels()]
        assert plot["yaxis"]["ticktext"] == shown
        assert shown[0].endswith("FLOP/s")
        assert all(f">{text}<" in chart for text in (figure.y.label, figure.x.label))
        # A page of a report has less room, so fewer of the same ticks.
        assert any(f">{text}<" in chart for text in shown)

    def test_a_zoom_finds_its_ticks(self) -> None:
        page = arrange(one_device(), SCREEN)
        for name, axis in zoomed_ticks(page).items():
            finest = axis["choices"][0]
            low = getattr(page.figure, name[0]).low
            # 1, 2 and 5 of each decade, three decades beyond what is shown.
            assert len([tick for tick, _ in finest if 1e-3 * low <= tick <= low]) >= 8
            assert all(text for _, text in finest)


class TestSaving:
    def test_another_suffix_is_an_error_that_lists_the_known_ones(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidValue, match=r"suffix is '\.gif', known are \.png, \.svg, \.pdf, \.html"):
            one_device().save(tmp_path / "figure.gif")
        assert list(tmp_path.iterdir()) == []

    def test_a_place_that_cannot_be_written_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(OutputError, match="cannot write"):
            one_device().save(tmp_path / "file" / "figure.png")


class Page(HTMLParser):
    """What a page would load, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.policy = ""
        self.seen = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "data", "action")]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(given["content"])

    def handle_data(self, data: str) -> None:
        if "script" not in self.tags[-1:] and "style" not in self.tags[-1:]:
            self.seen += data


class TestHtml:
    def test_the_page_asks_nothing_of_any_host(self, tmp_path: Path) -> None:
        page = Page(two_devices().save(tmp_path / "figure.html").read_text())
        assert page.loads == []
        assert page.policy.split(";")[0] == "default-src 'none'"
        assert not re.search(r"https?:", page.policy)
        assert {"link", "iframe", "img"}.isdisjoint(page.tags)

    def test_equal_figures_give_equal_pages(self, tmp_path: Path) -> None:
        first, second = (two_devices().save(tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
        assert first == second

    def test_what_users_name_is_text(self, tmp_path: Path) -> None:
        text = hostile_names().save(tmp_path / "figure.html").read_text()
        assert "<script>alert(1)" not in text
        assert "\x1b" not in text
        assert Page(text).tags.count("script") == Page(two_devices().save(tmp_path / "b.html").read_text()).tags.count(
            "script"
        )
        assert "<b>$x_1$</b><script>alert(1)</script>" in Page(text).seen

    def test_what_users_name_is_no_markup_of_plotly(self) -> None:
        figure = hostile_names()
        plot = plotly_json(figure)
        texts = [note["text"] for note in plot["layout"]["annotations"]]
        texts += [text for trace in plot["data"] for text in listed(trace.get("hovertext")) + listed(trace.get("name"))]
        allowed = re.compile(r"</?b>|<br>|<span style=\"[^\"<>]*\">|</span>")
        assert any("&lt;script&gt;" in text for text in texts)
        assert all("<" not in allowed.sub("", text) for text in texts)

    def test_the_legend_switches_groups(self) -> None:
        figure = two_devices()
        data = plotly_json(figure)["data"]
        entries = [trace for trace in data if trace.get("showlegend") and trace.get("legend") is None]
        assert [trace["name"] for trace in entries] == list(figure.groups)
        marks = [trace for trace in data if trace.get("mode") == "markers" and len(trace["x"]) > 1]
        assert marks
        assert all(trace["legendgroup"] in figure.groups for trace in marks)

    def test_every_mark_has_its_hover_text(self) -> None:
        figure = one_device()
        seen = [
            text
            for trace in plotly_json(figure)["data"]
            if trace.get("legendgroup") and isinstance(trace.get("hovertext"), list)
            for text in trace["hovertext"]
        ]
        assert sorted(seen) == sorted("<br>".join(mark.hover) for mark in figure.marks)

    def test_rings_and_rug(self) -> None:
        above = measured(CASE, 1e-6)
        data = plotly_json(roofline_figure(records([*chain(CASE, 4), above], [A100])))["data"]
        rings = [
            trace for trace in data if trace.get("marker", {}).get("symbol") == "circle-open" and trace["x"] != [None]
        ]
        assert len(rings) == 1
        bars = [trace for trace in data if trace["type"] == "bar"]
        # The ground of the strip, and the copies of the blocks 0 and 3.
        assert len(bars) == 1 + 2
        assert bars[0]["y"] == [1]

    def test_levels_have_shapes_that_the_legend_shows(self) -> None:
        figure = several_levels()
        data = plotly_json(figure)["data"]
        entries = {trace["name"]: trace["marker"]["symbol"] for trace in data if trace.get("showlegend")}
        assert entries == {"l1": "triangle-down", "l2": "cross", "dram": "square"}
        for trace in data:
            if isinstance(trace.get("hovertext"), list) and trace["mode"] == "markers":
                assert trace["marker"]["symbol"] == entries[trace["legendgroup"]]
        (ties,) = (trace for trace in data if trace.get("mode") == "lines" and len(trace["x"]) == 3 * len(figure.ties))
        assert ties["x"][:2] == [figure.ties[0].start[0], figure.ties[0].end[0]]
        assert len([trace for trace in data if trace["type"] == "bar"]) == 1 + len(figure.rug)

    @every_sample
    def test_no_label_covers_another_at_any_width(self, sample: Callable[[], Figure]) -> None:
        figure = sample()
        sheet = arrange(figure, SCREEN)
        labels = (*sheet.within, *sheet.beside)
        plot = json.loads(draw_plotly(sheet).to_json())
        notes = [note for note in plot["layout"].get("annotations", []) if note["text"]]
        assert [lines_of(note["text"]) for note in notes] == [[w.text for w in label.rows] for label in labels]
        for stretch in (SCREEN[0], 1.0, 1.4, SCREEN[1]):
            frame = Box(0.0, 0.0, stretch * PLANE_WIDTH, sheet.plane.height)
            page = Box(-100.0, -20.0, frame.right + sheet.width, sheet.plane.height + 10.0)
            boxes = [note_box(note, label.rows, figure, frame) for note, label in zip(notes, labels, strict=True)]
            within = boxes[: len(sheet.within)]
            marks = list(mark_boxes(figure, frame))
            assert all(Spot(box, box.left).inside(page) for box in boxes)
            assert all(Spot(box, box.left).inside(frame) for box in within)
            assert not any(box.meets(mark) for box in within for mark in marks)
            for (one, a), (other, b) in itertools.combinations(zip(notes, boxes, strict=True), 2):
                assert not a.meets(b), (stretch, one["text"], other["text"])


class TestLabels:
    def test_ten_devices_are_all_named_with_both_rates_and_origins(self) -> None:
        sheet = arrange(ten_devices())
        texts = [[words.text for words in placed.rows] for placed in sheet.beside + sheet.within]
        assert ["Tesla T4", "matmul.fp32  8.100 TFLOP/s, derived", "dram  320.0 GB/s, datasheet"] in texts
        named = {line for lines in texts for line in lines}
        assert {d.title for d in TEN} <= named

    def test_equal_devices_share_a_label(self) -> None:
        texts = [[words.text for words in placed.rows] for placed in arrange(ten_devices()).beside]
        (shared,) = [lines for lines in texts if "A100-SXM4-40GB" in lines]
        assert shared[:2] == ["A100-SXM4-40GB", "A100-PCIE-40GB"]

    def test_equal_ceilings_share_a_label(self) -> None:
        toy = device(compute={"matmul.fp16": 1e14, "matmul.bf16": 1e14, "vector.fp32": 1e13})
        texts = [[w.text for w in placed.rows] for placed in arrange(roofline_figure(records([], [toy]))).beside]
        assert texts == [
            ["matmul.fp16,", "matmul.bf16  100.0 TFLOP/s", "datasheet"],
            ["vector.fp32  10.00 TFLOP/s", "datasheet"],
        ]

    def test_what_was_not_verified_is_marked(self) -> None:
        doubtful = device(compute={"matmul.fp32": 1e14}, verified=False)
        texts = [w.text for placed in arrange(roofline_figure(records([], [doubtful]))).beside for w in placed.rows]
        assert texts == ["matmul.fp32  100.0 TFLOP/s", "datasheet, unverified"]

    @pytest.mark.parametrize(("small", "named"), [(1, True), (12, False)])
    def test_the_largest_shares_are_named(self, small: int, named: bool) -> None:
        # Times of 100, 30 and 1: of many, what takes less than a seventh of the largest is left to the hover text.
        parts = [("first", 0.1, 1e11), ("second", 1.0, 3e10)]
        parts += [(f"third{n}", 10.0 * (1 + n), 1e9) for n in range(small)]
        items = [operation(CASE, name, "copy", vector=nbytes * flop, dram=nbytes) for name, flop, nbytes in parts]
        texts = [w.text for placed in arrange(roofline_figure(records(items, [A100]))).within for w in placed.rows]
        assert {"first", "second", "forward"} <= set(texts)
        assert any(text.startswith("third") for text in texts) == named

    def test_marks_at_one_spot_are_named_together(self) -> None:
        items = [operation(CASE, f"layers.{i}.mlp", "matmul", matmul=1e11, dram=1e9) for i in range(12)]
        texts = [w.text for placed in arrange(roofline_figure(records(items, [A100]))).within for w in placed.rows]
        assert "layers.0.mlp +11 alike" in texts
        assert not any(text.startswith("layers.1") for text in texts)

    def test_long_names_keep_their_end(self) -> None:
        assert shorten("encoder.layers.encoder_layer_11.mlp.0", 20) == "…oder_layer_11.mlp.0"
        assert shorten("encoder.layers.11.mlp", 8) == "…11.mlp"
        assert shorten("conv1", 8) == "conv1"

    def test_reasons_are_given_once(self) -> None:
        items = [measured(replace(CASE, batch=batch), 1.0) for batch in range(1, 8)]
        sheet = arrange(roofline_figure(records(items, [A100])))
        notes = " ".join(words.text for placed in sheet.notes for words in placed.rows)
        assert notes.count("A time without known work has no place") == 1
        assert "resnet18 batch 4 fp32" in notes
        assert "and 3 more" in notes

    def test_wrapped_lines_hold_every_word_and_no_line_is_too_wide(self) -> None:
        text = "every word of this sentence is kept"
        lines = wrap(text, 8.0, 80.0)
        assert " ".join(line.text for line in lines) == text
        assert len(lines) > 1
        assert all(line.width <= 80.0 for line in lines)
        (cut,) = wrap("w" * 100, 8.0, 80.0)
        assert cut.text.endswith("…")
        assert cut.width <= 80.0


def mark_boxes(figure: Figure, frame: Box) -> Iterator[Box]:
    plane = Plane(figure, frame)
    for drawn in drawn_marks(figure, dict.fromkeys((mark.group for mark in figure.marks), "")):
        x, y = plane.at((drawn.mark.x, drawn.mark.y))
        radius = drawn.diameter / 2
        yield Box(x - radius, y - radius, x + radius, y + radius)


def plotly_json(figure: Figure) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(draw_plotly(arrange(figure, SCREEN)).to_json())
    return found


def listed(value: object) -> list[str]:
    return [] if value is None else [str(v) for v in value] if isinstance(value, list) else [str(value)]


def lines_of(markup: str) -> list[str]:
    """The texts of a label, one per line, markup removed."""
    return ["".join(ElementTree.fromstring(f"<p>{line}</p>").itertext()) for line in markup.split("<br>")]


def note_box(note: dict[str, Any], words: tuple[TextLine, ...], figure: Figure, frame: Box) -> Box:
    """Where plotly puts the text of an annotation, in points, in a plane of the size of `frame`."""
    x = frame.right if note["xref"] == "paper" else Plane(figure, frame).at((10.0 ** note["x"], 1.0))[0]
    y = Plane(figure, frame).at((1.0, 10.0 ** note["y"]))[1]
    left, centre = x + note["xshift"] / PX, y + note["yshift"] / PX
    width, height = max(w.width for w in words), len(words) * max(w.height for w in words)
    assert math.isclose(note["font"]["size"], PX * max(w.size for w in words))
    return Box(left, centre - height / 2, left + width, centre + height / 2)
