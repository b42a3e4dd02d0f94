"""Charts as SVG, PDF and PNG files by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from textwrap import fill, wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullLocator

from rooflens import units
from rooflens.report.charts.bar_rows import BarRows, bar_rows, in_lines
from rooflens.report.charts.chart import Bar, BarPiece, Bars, Chart, HeatMap, Plot, Series, legend_names
from rooflens.report.charts.colours import diverging, ink_on
from rooflens.report.charts.labels import chart_labels
from rooflens.report.escape import printable
from rooflens.report.figures.axes import Axis, tick_text, ticks
from rooflens.report.figures.labels import TextLine
from rooflens.report.figures.matplotlib_files import MARKERS, empty, file_bytes, frame
from rooflens.report.figures.page_layout import NARROW
from rooflens.report.figures.palette import FAINT, GREY, INK

_WIDTH, _PLANE, _ROW, _EDGE = 7.0, 4.4, 0.26, 1.1
"""Inches: of a figure, of a plane between two axes, of a row, and of what lies around the rows."""
_SHAPE = 0.9
"""Height of a narrow plane, against the width of its page."""
_INCH, _LETTERS = 72.0, 17
"""Points, and letters of a note, in an inch."""
_LEFT, _RIGHT, _KEYS, _FOOT, _KEY = 62.0, 10.0, 120.0, 40.0, 13.5
"""Points: of ticks left of a plane, of the edge, of a legend beside it, of the axis below it, of a row of a legend."""
_LABEL = 7.4
"""Size of the type of labels."""
_NAME, _LINE = 8.2, 11.0
"""Size of the type of the names of bars, and height of their lines."""
_MOST_HEAT = 0.4
"""Of the width of a page, for the names of rows of a heat map."""
_MOST_KEYS = 24
"""Rows that a legend shows."""


def render(chart: Chart, suffix: str, *, notes: bool = False, width: float | None = None) -> bytes:
    """Return the bytes of a PNG, SVG or PDF file; equal charts give equal bytes.

    Args:
        notes: True writes the notes of the chart below it; the page of a report has them in its text.
        width: of the page in points.
    """
    words = chart.notes if notes else ()
    return file_bytes(lambda: _draw(chart, words, width), suffix, font_size=9, tight=True, width=width)


def _draw(chart: Chart, notes: Sequence[str], width: float | None) -> Canvas:
    inches = _WIDTH if width is None else width / _INCH
    below = inches < NARROW / _INCH
    names, high, left, right = [], min(_PLANE, _SHAPE * inches), _LEFT, _RIGHT
    rows = bar_rows(chart, inches * _INCH, _wide, line=_LINE, row=_ROW * _INCH) if isinstance(chart, Bars) else None
    if rows is not None:
        high = _EDGE + rows.height / _INCH
        left, right = (_RIGHT if rows.above else rows.left + 12), max(_RIGHT + 10, rows.right + 12)
    elif isinstance(chart, HeatMap):
        names = ["\n".join(in_lines(printable(label), _MOST_HEAT * inches * _INCH, _wide)) for label, _ in chart.rows]
        high = _EDGE + _ROW * len(names)
        left = max(_wide(line) for name in names for line in name.split("\n")) + 12
    canvas = empty(inches, high)
    plane = canvas.add_subplot()
    own = plane.get_position()
    across = own.x0, own.width
    if width is not None:  # what stands left of the plane, the plane, and a legend beside it fill the width
        room = width - left - right - (0.0 if below or isinstance(chart, HeatMap) else _KEYS - _RIGHT)
        across = left / width, room / width
    high_of_plane = own.height if rows is None else rows.height / (high * _INCH)
    plane.set_position((across[0], own.y0, across[1], high_of_plane))
    longest = int(inches * _LETTERS)
    title = fill(_plain(chart.title), longest * 2 // 3)
    lines = 1 if isinstance(chart, Plot) else len(chart.limits) if isinstance(chart, Bars) else 0
    above: dict[str, Any] = {"pad": 12 + 10 * lines} if lines else {}
    own = plane.get_position()
    start = 0.0 if width is None else 4 / width  # of a page of its own, the title begins at its edge
    if start:
        above["x"] = (start - own.x0) / own.width
    plane.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold", **above)
    if isinstance(chart, Plot):
        _plot(plane, chart)
    elif rows is not None and isinstance(chart, Bars):
        _bars(plane, chart, rows)
    elif isinstance(chart, HeatMap):
        _heat(plane, chart, names)
    foot = -_FOOT / (high * _INCH)
    if not isinstance(chart, HeatMap):
        foot -= _legend(plane, chart, below=below, beside=right) / (high * _INCH)
    if notes:
        text = "\n".join(line for note in notes for line in wrap(_plain(note), longest))
        canvas.text(
            start or own.x0, plane.get_position().y0 + foot, text, fontsize=7.4, color=GREY, verticalalignment="top"
        )
    return canvas


def _wide(text: str) -> float:
    return TextLine(text, _NAME).width


def _plain(text: str) -> str:
    """Return text of users so that matplotlib does not take it for mathematics."""
    return printable(text).replace("$", r"\$")


def _plot(plane: Axes, chart: Plot) -> None:
    for name, axis in (("x", chart.x), ("y", chart.y)):
        _axis(plane, name, axis)
    frame(plane, 8.2)
    for series in chart.series:
        _series(plane, series)
    _labels(plane, chart)
    look: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "color": INK}
    plane.annotate(_plain(chart.y.label), (0, 1), xycoords="axes fraction", **look)


def _axis(plane: Axes, name: str, axis: Axis) -> None:
    most = 6
    if name == "x":
        widest = max((TextLine(tick_text(axis, tick), 8.2).width for tick in ticks(axis)), default=1.0)
        most = max(2, min(most, int(_points(plane)[0] / (1.25 * widest))))
    shown = ticks(axis, most)
    plane.set(**{f"{name}scale": axis.scale, f"{name}lim": (axis.low, axis.high)})
    its = plane.xaxis if name == "x" else plane.yaxis
    its.set_major_locator(FixedLocator(shown))
    its.set_minor_locator(NullLocator())
    its.set_ticklabels([tick_text(axis, tick) for tick in shown])
    if name == "x":
        its.set_label_text(_plain(axis.label), color=INK)


def _series(plane: Axes, series: Series) -> None:
    if series.path:
        (line,) = plane.plot(*zip(*series.path, strict=True), color=series.colour, linewidth=series.width * 0.75)
        line.set_linestyle(_dash(series))
    for dot in series.dots:
        if dot.bar is not None:
            plane.plot(
                *zip(*dot.bar, strict=True), color=series.colour, linewidth=2.5, alpha=0.35, solid_capstyle="butt"
            )
    crossed = [dot for dot in series.dots if dot.crossed]
    if crossed:
        places = [dot.x for dot in crossed], [dot.y for dot in crossed]
        plane.scatter(*places, s=36, marker="x", color=INK, linewidth=1.1, zorder=4)
    if series.dots:
        x, y = [dot.x for dot in series.dots], [dot.y for dot in series.dots]
        plane.scatter(
            x,
            y,
            s=[20 * dot.size**2 for dot in series.dots],
            color=series.colour,
            marker=MARKERS[series.shape],
            edgecolor="white",
            linewidth=0.4,
            zorder=3,
        )


def _points(plane: Axes) -> tuple[float, float]:
    """Return width and height of a plane in points."""
    box = plane.get_window_extent()
    dpi = plane.figure.dpi / _INCH
    return box.width / dpi, box.height / dpi


def _labels(plane: Axes, chart: Plot) -> None:
    width, height = _points(plane)
    for label in chart_labels(chart, width, height, _LABEL, lambda text: TextLine(text, _LABEL).width):
        for x0, y0, x1, y1 in label.leaders:
            xs, ys = (x0 / width, x1 / width), (y0 / height, y1 / height)
            plane.plot(xs, ys, color=GREY, linewidth=0.5, transform=plane.transAxes)
        where = (label.left / width, label.middle / height)
        effects = [withStroke(linewidth=2, foreground="white")]
        look: dict[str, Any] = {"fontsize": _LABEL, "color": INK, "va": "center_baseline", "path_effects": effects}
        plane.text(*where, _plain(label.text), transform=plane.transAxes, **look)


def _dash(series: Series) -> Any:
    return (0, series.dash) if series.dash else "-"


def _legend(plane: Axes, chart: Plot | Bars, *, below: bool, beside: float) -> float:
    """Draw the legend beside the plane and its amounts, or below it; return how many points it needs there."""
    names = legend_names(chart)
    if len(names) < 2:
        return 0.0
    handles: list[Any] = []
    if isinstance(chart, Bars):
        handles = [Patch(facecolor=chart.groups[name], label=_plain(name)) for name in names]
    else:
        by_name = {series.name: series for series in reversed(chart.series)}
        for name in names:
            series = by_name[name]
            marker = MARKERS[series.shape] if series.dots or not series.path else ""
            handle = Line2D([], [], color=series.colour, marker=marker, label=_plain(name), linewidth=1.2)
            handle.set_linestyle(_dash(series) if series.path else "none")
            handles.append(handle)
    columns = 2 if below or len(handles) > _MOST_KEYS / 2 else 1
    box = plane.get_position()
    under = (-box.x0 / box.width, -_FOOT / _points(plane)[1])
    plane.legend(
        handles=handles[:_MOST_KEYS],
        loc="upper left",
        bbox_to_anchor=under if below else (1.0 + (beside - _RIGHT + 4) / _points(plane)[0], 1.0),
        frameon=False,
        fontsize=8,
        ncols=columns,
        borderaxespad=0,
    )
    return math.ceil(len(handles) / columns) * _KEY if below else 0.0


def _bars(plane: Axes, chart: Bars, rows: BarRows) -> None:
    middles = [row.middle for row in rows.rows]
    for group, colour in chart.groups.items():
        widths = [sum(part.value for part in bar.parts if part.group == group) for bar in chart.bars]
        lefts = [sum(part.value for part in _before(bar, group)) for bar in chart.bars]
        look: dict[str, Any] = {"height": 0.68 * _ROW * _INCH, "edgecolor": "white", "linewidth": 0.4}
        plane.barh(middles, widths, left=lefts, color=colour, **look)
    for number, limit in enumerate(chart.limits):  # each on a line of its own above the bars
        plane.axvline(limit.value, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
        words: dict[str, Any] = {"fontsize": 7.4, "color": INK, "ha": "right", "va": "bottom"}
        words |= {"xytext": (0, 2 + 10 * number), "textcoords": "offset points"}
        plane.annotate(f"{_plain(limit.label)} {units.show(limit.value, chart.unit)}", (limit.value, 0), **words)
    _axis(plane, "x", chart.scale)
    names: dict[str, Any] = {"fontsize": _NAME, "color": INK, "va": "center", "transform": plane.get_yaxis_transform()}
    names |= {"path_effects": [withStroke(linewidth=2, foreground="white")], "zorder": 4}  # no line strikes them out
    start, side = (3 / _points(plane)[0], "left") if rows.above else (-6 / _points(plane)[0], "right")
    for row in rows.rows:
        for text, middle in row.lines:
            plane.text(start, middle, _plain(text), ha=side, **names)
        plane.text(1 + 4 / _points(plane)[0], row.middle, row.amount, **names)
    plane.set_yticks(middles, [""] * len(middles))
    plane.set_ylim(rows.height, 0)
    frame(plane, _NAME)
    plane.grid(visible=False, axis="y")
    plane.tick_params(axis="y", length=0 if rows.above else 3)


def _before(bar: Bar, group: str) -> Iterable[BarPiece]:
    """Return the pieces of a bar left of a group."""
    return takewhile(lambda part: part.group != group, bar.parts)


def _heat(plane: Axes, chart: HeatMap, names: Sequence[str]) -> None:
    for y, (_, cells) in enumerate(chart.rows):
        for x, cell in enumerate(cells):
            ground = FAINT if cell.value is None else diverging(cell.value)
            plane.add_patch(Rectangle((x, y), 0.96, 0.94, facecolor=ground, linewidth=0))
            plane.text(x + 0.48, y + 0.47, cell.text, ha="center", va="center", fontsize=8, color=ink_on(ground))
    columns, rows = len(chart.columns), len(chart.rows)
    plane.set(xlim=(0, max(1, columns)), ylim=(max(1, rows), 0))
    plane.set_xticks([x + 0.48 for x in range(columns)], chart.columns)
    plane.set_yticks([y + 0.47 for y in range(rows)], [_plain(name) for name in names])
    plane.xaxis.tick_top()
    plane.tick_params(length=0, labelcolor=INK, labelsize=_NAME)
    for spine in plane.spines.values():
        spine.set_visible(False)
