"""The roofline figure in ink: PNG, SVG and PDF by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rooflens import units
from rooflens.report.charts.scales import power_of_ten
from rooflens.report.figures.matplotlib_files import MARKERS, empty, file_bytes
from rooflens.report.figures.page_layout import (
    KEY_INDENT,
    RUG_WIDTH,
    SMALL_MARK,
    Placed,
    PlacedKey,
    Sheet,
    arrange,
    diameter,
)
from rooflens.report.figures.palette import (
    FAINT,
    FLAG,
    GREY,
    INK,
    OTHER,
    SHAPES,
    SIGN,
    STRIP,
    ceiling_colour,
    ceiling_dash,
    device_colour,
    group_colours,
    group_shape,
    mark_rim,
    mark_shape,
)
from rooflens.report.figures.roofline_data import Axis, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

POINTS_PER_INCH = 72
# A diamond and a square of the same width as a circle look larger or smaller; these make their areas equal.
_AREA = {
    "circle": math.pi / 4,
    "diamond": 0.5,
    "square": 1.0,
    "triangle-up": 0.5,
    "triangle-down": 0.5,
    "cross": 5 / 9,
}
_LOW, _LINES, _MARKS, _TEXT = 1.0, 2.0, 3.0, 4.0


def render(figure: Figure, suffix: str) -> bytes:
    """The bytes of a PNG, SVG or PDF file; equal figures give equal bytes."""
    return file_bytes(lambda: draw(figure), suffix)


def draw(figure: Figure) -> Canvas:
    """The figure as one of matplotlib's, with an Agg canvas of its own."""
    sheet = arrange(figure)
    canvas = empty(sheet.width / POINTS_PER_INCH, sheet.height / POINTS_PER_INCH)
    box = sheet.plane
    plane = canvas.add_axes(
        (box.left / sheet.width, box.bottom / sheet.height, box.width / sheet.width, box.height / sheet.height)
    )
    page = canvas.add_axes((0, 0, 1, 1), facecolor="none")
    page.set(xlim=(0, sheet.width), ylim=(0, sheet.height))
    page.set_axis_off()
    _axes(plane, figure)
    _ceilings(plane, figure)
    _rug(page, figure, sheet)
    _marks(plane, figure)
    for placed in sheet.within:
        if placed.bridge is not None:
            plane.plot(*zip(*placed.bridge, strict=True), color=placed.colour, linewidth=0.7, zorder=_LINES)
    for placed in (*sheet.title, *sheet.beside, *sheet.within, *sheet.notes):
        _text(page, placed, halo=placed in sheet.within)
    for key in sheet.keys:
        _key(page, figure, key)
    return canvas


def _axes(plane: Axes, figure: Figure) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

    plane.set(xscale="log", yscale="log", xlim=(figure.x.low, figure.x.high), ylim=(figure.y.low, figure.y.high))
    plane.set_xlabel(figure.x.label, fontsize=9.4, color=INK, labelpad=5)
    plane.set_ylabel(figure.y.label, fontsize=9.4, color=INK, labelpad=5)
    for axis, data in ((plane.xaxis, figure.x), (plane.yaxis, figure.y)):
        shown = ticks(data)
        axis.set_major_locator(FixedLocator(shown))
        axis.set_ticklabels([tick_text(tick, prefix=axis is plane.yaxis) for tick in shown])
        axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=200))
        axis.set_minor_formatter(NullFormatter())
    plane.tick_params(which="both", color=GREY, labelcolor=INK, labelsize=8.6)
    plane.tick_params(which="minor", length=1.5)
    plane.grid(which="major", color=FAINT, linewidth=0.8, zorder=_LOW)
    plane.set_axisbelow(True)
    for side, spine in plane.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)


def ticks(axis: Axis) -> list[float]:
    """Powers of ten inside the axis, at most nine of them; on a short axis their double and fivefold too."""
    first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    step = max(1, math.ceil((last - first) / 9))
    factors = (1, 2, 5) if last - first <= _SHORT else (1,)
    candidates = (factor * 10.0**power for power in range(first, last + 1) if power % step == 0 for factor in factors)
    return [tick for tick in candidates if axis.low <= tick <= axis.high]


_SHORT = 3


def tick_text(value: float, *, prefix: bool) -> str:
    """A tick: performance with a prefix (``10 T``), intensity as a plain number while that is short."""
    if prefix and 1 <= value < 1e21:
        return units.show(value, "", 1)
    power = round(math.log10(value))
    return f"{value:g}" if -4 < power < 5 else power_of_ten(power)


def _ceilings(plane: Axes, figure: Figure) -> None:
    for line in figure.ceilings:
        plane.plot(
            *zip(line.start, line.end, strict=True),
            color=ceiling_colour(line.device, len(figure.devices), line.resource, hierarchical=figure.hierarchical),
            linestyle=_linestyle(
                ceiling_dash(line.device, len(figure.devices), line.resource, hierarchical=figure.hierarchical)
            ),
            linewidth=1.6,
            solid_capstyle="butt",
            zorder=_LINES,
        )
    for ridge in figure.ridges:
        colour = device_colour(ridge.device, len(figure.devices))
        plane.plot(
            ridge.x, ridge.y, "o", markersize=4.5, markerfacecolor="white", markeredgecolor=colour, zorder=_LINES
        )


def _linestyle(lengths: Sequence[float]) -> Any:
    return (0, tuple(lengths)) if lengths else "-"


def _marks(plane: Axes, figure: Figure) -> None:
    colours = group_colours(figure.groups)
    for tie in figure.ties:
        plane.plot(*zip(tie.start, tie.end, strict=True), color=GREY, linewidth=0.7, alpha=0.7, zorder=_LINES)
    for link in figure.links:
        plane.plot(
            *zip(link.start, link.end, strict=True), color=colours[link.group], linewidth=1.0, alpha=0.8, zorder=_LINES
        )
    # Large marks first, so that none hides a smaller one; the hollow ones last.
    for mark in sorted(figure.marks, key=lambda mark: (mark.whole, -diameter(figure, mark))):
        across = diameter(figure, mark)
        colour = colours[mark.group]
        rim, width = mark_rim(mark.device, len(figure.devices), colour, whole=mark.whole, small=across < SMALL_MARK)
        shape = mark_shape(mark.source, mark.level, hierarchical=figure.hierarchical)
        plane.scatter(
            mark.x,
            mark.y,
            s=_size(across, shape),
            marker=MARKERS[shape],
            facecolor=(1, 1, 1, 0.6) if mark.whole else colour,
            edgecolor=rim,
            linewidth=width,
            alpha=0.9,
            zorder=_MARKS,
        )
        if mark.above_roof:
            plane.scatter(
                mark.x,
                mark.y,
                s=(across + 7) ** 2,
                marker="o",
                facecolor="none",
                edgecolor=FLAG,
                linewidth=1.6,
                zorder=_MARKS,
            )


def _size(across: float, shape: str) -> float:
    """matplotlib's s, the square of a marker's size, for the area of a circle of that diameter."""
    return across**2 * (_AREA["circle"] / _AREA[shape]) * (0.5 if shape == "diamond" else 1.0)


def _rug(page: Axes, figure: Figure, sheet: Sheet) -> None:
    from matplotlib.patches import Rectangle

    colours = group_colours([*figure.groups, OTHER])
    box = sheet.plane
    if figure.rug:
        page.add_patch(Rectangle((box.left, box.bottom), RUG_WIDTH, box.height, facecolor=STRIP, linewidth=0))
    for mark in figure.rug:
        bottom, height = box.bottom + mark.low * box.height, (mark.high - mark.low) * box.height
        page.add_patch(
            Rectangle(
                (box.left, bottom), RUG_WIDTH, height, facecolor=colours[mark.group], edgecolor="white", linewidth=0.3
            )
        )


def _text(page: Axes, placed: Placed, *, halo: bool) -> None:
    from matplotlib.patheffects import withStroke

    if placed.leader is not None:
        x0, y0, x1, y1 = placed.leader
        page.plot((x0, x1), (y0, y1), color=placed.colour, linewidth=0.7, zorder=_LINES, solid_capstyle="butt")
    line_height = placed.box.height / len(placed.words)
    for row, words in enumerate(placed.words):
        page.text(
            placed.box.left,
            placed.box.top - (row + 0.5) * line_height,
            words.text,
            fontsize=words.size,
            color=words.colour,
            fontweight="bold" if words.bold else "normal",
            verticalalignment="center_baseline",
            parse_math=False,
            path_effects=[withStroke(linewidth=2.5, foreground="white")] if halo else None,
            zorder=_TEXT,
        )


def _key(page: Axes, figure: Figure, placed: PlacedKey) -> None:
    """A row of the legend: its sign and its words."""
    from matplotlib.patches import Rectangle

    key, box = placed.key, placed.box
    x, y = box.left + 4.5, (box.bottom + box.top) / 2
    colours = group_colours(figure.groups)
    if key.what == "group":
        hollow = all(mark.whole for mark in figure.marks if mark.group == key.name)
        colour, shape = colours[key.name], group_shape(key.name, hierarchical=figure.hierarchical)
        page.scatter(
            x,
            y,
            s=_size(6.7, shape),
            marker=MARKERS[shape],
            facecolor="none" if hollow else colour,
            edgecolor=colour,
            zorder=_MARKS,
        )
    elif key.what == "source":
        shape = next(shape for source, shape in SHAPES.items() if source == key.name)
        page.scatter(x, y, s=_size(7, shape), marker=MARKERS[shape], facecolor=SIGN, edgecolor=GREY, zorder=_MARKS)
    elif key.what == "whole":
        page.scatter(x, y, s=45, marker="o", facecolor="none", edgecolor=GREY, linewidth=1.6)
    elif key.what in ("tie", "pair"):
        page.plot((x - 5, x + 5), (y, y), color=GREY, linewidth=1.0 if key.what == "pair" else 0.7)
    elif key.what == "flag":
        page.scatter(x, y, s=60, marker="o", facecolor="none", edgecolor=FLAG, linewidth=1.6)
    elif key.what == "rug":
        page.add_patch(Rectangle((x - RUG_WIDTH / 2, y - 5), RUG_WIDTH, 10, facecolor=SIGN, linewidth=0))
    left = box.left if key.what == "heading" else box.left + KEY_INDENT
    page.text(
        left,
        y,
        key.words.text,
        fontsize=key.words.size,
        color=key.words.colour,
        fontweight="bold" if key.words.bold else "normal",
        verticalalignment="center_baseline",
        parse_math=False,
    )
