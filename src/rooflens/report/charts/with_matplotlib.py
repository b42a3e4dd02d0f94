"""Charts as SVG, PDF and PNG files by matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from rooflens.report.charts.chart import Bar, BarPiece, Bars, Chart, HeatMap, Plot, Series, legend_names, shortened
from rooflens.report.charts.colours import diverging, ink_on
from rooflens.report.escape import printable
from rooflens.report.figures.axes import Axis, tick_text, ticks
from rooflens.report.figures.matplotlib_files import MARKERS, empty, file_bytes, frame
from rooflens.report.figures.palette import FAINT, GREY, INK

_WIDTH, _PLANE, _ROW, _EDGE = 7.0, 4.4, 0.26, 1.1
"""Inches: of a figure, of a plane between two axes, of a row, and of what lies around the rows."""
_MOST_KEYS = 24
"""Rows that a legend shows."""


def render(chart: Chart, suffix: str, *, notes: bool = False, width: float | None = None) -> bytes:
    """Return the bytes of a PNG, SVG or PDF file; equal charts give equal bytes.

    Args:
        notes: True writes the notes of the chart below it; the page of a report has them in its text.
    """
    return file_bytes(lambda: _draw(chart, chart.notes if notes else ()), suffix, font_size=9, tight=True)


def _draw(chart: Chart, notes: Sequence[str]) -> Canvas:
    rows = 0 if isinstance(chart, Plot) else len(chart.bars if isinstance(chart, Bars) else chart.rows)
    canvas = empty(_WIDTH, _PLANE if isinstance(chart, Plot) else _EDGE + _ROW * rows)
    plane = canvas.add_subplot()
    plane.set_title(_plain(chart.title), loc="left", fontsize=10.5, color=INK, fontweight="bold")
    if isinstance(chart, Plot):
        _plot(plane, chart)
    elif isinstance(chart, Bars):
        _bars(plane, chart)
    else:
        _heat(plane, chart)
    if notes:
        text = "\n".join(map(_plain, notes))
        canvas.text(plane.get_position().x0, -0.02, text, fontsize=7.4, color=GREY, verticalalignment="top")
    return canvas


def _plain(text: str) -> str:
    """Return text of users so that matplotlib does not take it for mathematics."""
    return printable(text).replace("$", r"\$")


def _plot(plane: Axes, chart: Plot) -> None:
    for name, axis in (("x", chart.x), ("y", chart.y)):
        _axis(plane, name, axis)
    frame(plane, 8.2)
    for series in chart.series:
        _series(plane, series)
    _legend(plane, chart)


def _axis(plane: Axes, name: str, axis: Axis) -> None:
    shown = ticks(axis)
    plane.set(**{f"{name}scale": axis.scale, f"{name}lim": (axis.low, axis.high)})
    its = plane.xaxis if name == "x" else plane.yaxis
    its.set_major_locator(FixedLocator(shown))
    its.set_minor_locator(NullLocator())
    its.set_ticklabels([tick_text(axis, tick) for tick in shown])
    its.set_label_text(_plain(axis.label), color=INK)


def _series(plane: Axes, series: Series) -> None:
    if series.path:
        (line,) = plane.plot(*zip(*series.path, strict=True), color=series.colour, linewidth=series.width * 0.75)
        line.set_linestyle(_dash(series))
        if series.label:
            plane.annotate(
                _plain(series.label),
                series.path[-1],
                xytext=(-3, 3),
                textcoords="offset points",
                ha="right",
                fontsize=7.4,
                color=INK,
            )
    for dot in series.dots:
        if dot.bar is not None:
            plane.plot(
                *zip(*dot.bar, strict=True), color=series.colour, linewidth=2.5, alpha=0.35, solid_capstyle="butt"
            )
    if series.dots:
        x, y = [dot.x for dot in series.dots], [dot.y for dot in series.dots]
        plane.scatter(
            x, y, s=20, color=series.colour, marker=MARKERS[series.shape], edgecolor="white", linewidth=0.4, zorder=3
        )


def _dash(series: Series) -> Any:
    return (0, series.dash) if series.dash else "-"


def _legend(plane: Axes, chart: Plot | Bars) -> None:
    names = legend_names(chart)
    if len(names) < 2:
        return
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
    columns = 2 if len(handles) > 6 else 1
    plane.legend(
        handles=handles[:_MOST_KEYS],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        fontsize=8,
        ncols=columns if len(handles) > _MOST_KEYS / 2 else 1,
        borderaxespad=0,
    )


def _bars(plane: Axes, chart: Bars) -> None:
    labels = [_plain(shortened(bar.label)) for bar in chart.bars]
    for group, colour in chart.groups.items():
        widths = [sum(part.value for part in bar.parts if part.group == group) for bar in chart.bars]
        lefts = [sum(part.value for part in _before(bar, group)) for bar in chart.bars]
        plane.barh(range(len(labels)), widths, left=lefts, color=colour, height=0.68, edgecolor="white", linewidth=0.4)
    for limit in chart.limits:
        plane.axvline(limit.value, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
        words: dict[str, Any] = {"fontsize": 7.4, "color": INK, "ha": "right", "va": "bottom"}
        plane.annotate(_plain(limit.label), (limit.value, -0.6), xytext=(0, 2), textcoords="offset points", **words)
    _axis(plane, "x", chart.scale)
    plane.set_yticks(range(len(labels)), labels)
    plane.set_ylim(len(labels) - 0.4, -0.6)
    frame(plane, 8.2)
    plane.grid(visible=False, axis="y")
    _legend(plane, chart)


def _before(bar: Bar, group: str) -> Iterable[BarPiece]:
    """Return the pieces of a bar left of a group."""
    return takewhile(lambda part: part.group != group, bar.parts)


def _heat(plane: Axes, chart: HeatMap) -> None:
    for y, (_, cells) in enumerate(chart.rows):
        for x, cell in enumerate(cells):
            ground = FAINT if cell.value is None else diverging(cell.value)
            plane.add_patch(Rectangle((x, y), 0.96, 0.94, facecolor=ground, linewidth=0))
            plane.text(x + 0.48, y + 0.47, cell.text, ha="center", va="center", fontsize=8, color=ink_on(ground))
    columns, rows = len(chart.columns), len(chart.rows)
    plane.set(xlim=(0, max(1, columns)), ylim=(max(1, rows), 0))
    plane.set_xticks([x + 0.48 for x in range(columns)], chart.columns)
    plane.set_yticks([y + 0.47 for y in range(rows)], [_plain(shortened(label)) for label, _ in chart.rows])
    plane.xaxis.tick_top()
    plane.tick_params(length=0, labelcolor=INK, labelsize=8.2)
    for spine in plane.spines.values():
        spine.set_visible(False)
