"""The roofline figure as PNG, SVG and PDF by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

from rooflens.report.figures.axes import tick_text, ticks
from rooflens.report.figures.drawn_marks import middle_colour
from rooflens.report.figures.label_places import Box
from rooflens.report.figures.labels import HEADING, LegendRow, TextLine
from rooflens.report.figures.matplotlib_files import MARKERS, empty, frame
from rooflens.report.figures.narrow_page import KEY_INDENT
from rooflens.report.figures.page_layout import MOST_Y_TICKS, RUG_WIDTH, TICK_WIDTH, Page, TextBox
from rooflens.report.figures.palette import (
    FLAG,
    GREY,
    INK,
    SIGN,
    STRIP,
    Symbol,
    ceiling_colour,
    ceiling_dash,
    device_colour,
)
from rooflens.report.figures.roofline_data import stems

POINTS_PER_INCH = 72
# matplotlib's s is the square of a marker's size; these give a symbol the area of a circle of that diameter.
_SIZE: Mapping[Symbol, float] = {
    "circle": 1.0,
    "diamond": math.pi / 4,  # 0.5 of its square, which stands on a corner
    "square": math.pi / 4,
    "triangle-up": math.pi / 4 / 0.5,
    "triangle-down": math.pi / 4 / 0.5,
    "cross": math.pi / 4 / (5 / 9),
}
_LINES, _MARKS, _TEXT = 2.0, 3.0, 4.0
_TRAIL = (0, (3, 1.5))
_STEM = (0, (1, 2))
_BAND, _FAINTLY = 3.5, 0.35


def draw(page: Page) -> Canvas:
    """Return the figure as one of matplotlib's, with an Agg canvas of its own."""
    canvas = empty(page.width / POINTS_PER_INCH, page.height / POINTS_PER_INCH)
    figure, box = page.figure, page.plane
    plane = canvas.add_axes(
        (box.left / page.width, box.bottom / page.height, box.width / page.width, box.height / page.height)
    )
    paper = canvas.add_axes((0, 0, 1, 1), facecolor="none")
    paper.set(xlim=(0, page.width), ylim=(0, page.height))
    paper.set_axis_off()
    _axes(plane, page)
    _lines(plane, page)
    _marks(plane, page)
    if figure.rug:
        paper.add_patch(Rectangle((box.left, box.bottom), RUG_WIDTH, box.height, facecolor=STRIP, linewidth=0))
    for mark in figure.rug:
        corner, height = (box.left, box.bottom + mark.low * box.height), (mark.high - mark.low) * box.height
        colour = page.colours[mark.group]
        paper.add_patch(Rectangle(corner, RUG_WIDTH, height, facecolor=colour, edgecolor="white", linewidth=0.3))
    for text in (*page.title, *page.beside, *page.within, *page.notes):
        _text(paper, text, halo=text in page.within)
    for row, its_box in page.legend:
        _legend_row(paper, row, its_box)
    return canvas


def _axes(plane: Axes, page: Page) -> None:
    figure, box = page.figure, page.plane
    plane.set(xscale="log", yscale="log", xlim=(figure.x.low, figure.x.high), ylim=(figure.y.low, figure.y.high))
    look: dict[str, Any] = {"fontsize": page.letters, "loc": "right"} if page.below else {"fontsize": HEADING}
    plane.set_xlabel(figure.x.label, color=INK, labelpad=2 if page.below else 5, **look)
    for axis, data, most in (
        (plane.xaxis, figure.x, int(box.width / TICK_WIDTH)),
        (plane.yaxis, figure.y, MOST_Y_TICKS),
    ):
        shown = ticks(data, most)
        axis.set_major_locator(FixedLocator(shown))
        axis.set_ticklabels([tick_text(data, tick) for tick in shown])
        axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=200))
        axis.set_minor_formatter(NullFormatter())
    frame(plane, page.letters)
    plane.tick_params(which="minor", length=1.5)


def _lines(plane: Axes, page: Page) -> None:
    figure = page.figure
    devices = len(figure.devices)
    for line in figure.ceilings:
        dash = ceiling_dash(line.device, devices, line.resource, hierarchical=figure.hierarchical)
        plane.plot(
            *zip(line.start, line.end, strict=True),
            color=ceiling_colour(line.device, devices, line.resource, by_level=figure.levels_coloured),
            linestyle=(0, dash) if dash else "-",
            linewidth=1.6,
            solid_capstyle="butt",
            zorder=_LINES,
        )
    for ridge in figure.ridges:
        rim = device_colour(ridge.device, devices)
        plane.plot(ridge.x, ridge.y, "o", markersize=4.5, markerfacecolor="white", markeredgecolor=rim, zorder=_LINES)
    thin: dict[str, Any] = {"linewidth": 0.7, "zorder": _LINES}
    for tie in figure.ties:
        plane.plot(*zip(tie.start, tie.end, strict=True), color=GREY, alpha=0.7, **thin)
    for trail in figure.trails:
        colour = page.colours[trail.group] if trail.group else GREY
        plane.plot(*zip(*trail.points, strict=True), color=colour, alpha=0.6, linestyle=_TRAIL, **thin)
    for stem in stems(figure.whiskers):
        ends = tuple(zip(stem.start, stem.end, strict=True))
        plane.plot(*ends, color=page.colours[stem.group], alpha=0.6, linestyle=_STEM, **thin)
    for whisker in figure.whiskers:
        ends, colour = tuple(zip(whisker.start, whisker.end, strict=True)), page.colours[whisker.group]
        plane.plot(*ends, color=colour, linewidth=_BAND, alpha=_FAINTLY, solid_capstyle="butt", zorder=_LINES)
        middle = middle_colour(whisker, figure, page.colours)
        plane.plot(*whisker.middle, "_", color=middle, markersize=6, markeredgewidth=1.2, zorder=_LINES)
        if whisker.below_bound:
            beside: dict[str, Any] = {
                "xytext": (5, 0),
                "textcoords": "offset points",
                "va": "center",
                "fontsize": HEADING,
            }
            plane.annotate("!", whisker.middle, color=FLAG, fontweight="bold", zorder=_TEXT, **beside)
    for link in figure.links:
        colour = page.colours[link.group]
        plane.plot(*zip(link.start, link.end, strict=True), color=colour, linewidth=1.0, alpha=0.8, zorder=_LINES)
    for text in page.within:
        if text.bridge is not None:
            plane.plot(*zip(*text.bridge, strict=True), color=text.colour, **thin)


def _marks(plane: Axes, page: Page) -> None:
    # Large marks first, so that none hides a smaller one; the hollow ones last.
    for drawn in sorted(page.marks, key=lambda drawn: (drawn.mark.whole, -drawn.diameter)):
        mark = drawn.mark
        plane.scatter(
            mark.x,
            mark.y,
            s=drawn.diameter**2 * _SIZE[drawn.symbol],
            marker=MARKERS[drawn.symbol],
            facecolor=(1, 1, 1, 0.6) if mark.whole else drawn.colour,
            edgecolor=drawn.rim,
            linewidth=drawn.rim_width,
            alpha=0.9,
            zorder=_MARKS,
        )
        if mark.too_large:  # large ones are drawn first, and none hides that one does not fit
            cross: dict[str, Any] = {"color": INK, "linewidth": 1.2, "zorder": _TEXT}
            plane.scatter(mark.x, mark.y, s=(drawn.diameter + 1) ** 2, marker="x", **cross)
        if mark.above_roof:
            ring = (drawn.diameter + 7) ** 2
            plane.scatter(mark.x, mark.y, s=ring, facecolor="none", edgecolor=FLAG, linewidth=1.6, zorder=_MARKS)


def _text(paper: Axes, text: TextBox, *, halo: bool) -> None:
    if text.leader is not None:
        x0, y0, x1, y1 = text.leader
        look: dict[str, Any] = {"linewidth": 1.6, "linestyle": (0, text.dash or None)}
        if text.dash is None:
            look = {"linewidth": 0.7}
        paper.plot((x0, x1), (y0, y1), color=text.colour, zorder=_LINES, solid_capstyle="butt", **look)
    height = text.box.height / len(text.rows)
    effects = [withStroke(linewidth=2.5, foreground="white")] if halo else None
    for number, row in enumerate(text.rows):
        y = text.box.top - (number + 0.5) * height
        _write(paper, row, text.box.left, y, path_effects=effects, zorder=_TEXT)


def _write(paper: Axes, row: TextLine, x: float, y: float, **look: Any) -> None:
    """Write a line of text that begins at `x`, centred at `y`."""
    weight = "bold" if row.bold else "normal"
    look |= {"fontsize": row.size, "color": row.colour, "fontweight": weight}
    paper.text(x, y, row.text, verticalalignment="center_baseline", parse_math=False, **look)


def _legend_row(paper: Axes, row: LegendRow, box: Box) -> None:
    x, y = box.left + 4.5, (box.bottom + box.top) / 2
    marker: dict[str, Any] = {"marker": MARKERS[row.symbol]}
    match row.kind:
        case "group":
            fill = "none" if row.hollow else row.colour
            size = 6.7**2 * _SIZE[row.symbol]
            paper.scatter(x, y, s=size, facecolor=fill, edgecolor=row.colour, zorder=_MARKS, **marker)
        case "source":
            size = 7**2 * _SIZE[row.symbol]
            paper.scatter(x, y, s=size, facecolor=row.colour, edgecolor=GREY, zorder=_MARKS, **marker)
        case "size":
            paper.scatter(x, y, s=row.diameter**2, facecolor=SIGN, edgecolor=GREY, linewidth=0.8, zorder=_MARKS)
        case "whole" | "flag":
            size, colour = (45, GREY) if row.kind == "whole" else (60, FLAG)
            paper.scatter(x, y, s=size, facecolor="none", edgecolor=colour, linewidth=1.6, **marker)
        case "misfit":
            paper.scatter(x, y, s=60, marker="x", color=INK, linewidth=1.2)
        case "tie" | "pair":
            paper.plot((x - 5, x + 5), (y, y), color=GREY, linewidth=1.0 if row.kind == "pair" else 0.7)
        case "trail":
            paper.plot((x - 5, x + 5), (y, y), color=GREY, linewidth=0.7, linestyle=_TRAIL)
        case "band":
            paper.plot((x, x), (y - 5, y + 5), color=GREY, linewidth=_BAND, alpha=_FAINTLY, solid_capstyle="butt")
            paper.plot(x, y, "_", color=GREY, markersize=6, markeredgewidth=1.2)
        case "rug":
            paper.add_patch(Rectangle((x - RUG_WIDTH / 2, y - 5), RUG_WIDTH, 10, facecolor=SIGN, linewidth=0))
    _write(paper, row.text, box.left if row.kind == "heading" else box.left + KEY_INDENT, y)
