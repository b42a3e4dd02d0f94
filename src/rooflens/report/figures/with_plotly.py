"""The roofline figure by plotly: hover texts, zoom, groups to switch.

The plane is as wide as the window allows, within bounds, and labels keep their distance in pixels to the points they
name. So they are arranged to be apart at every width within the bounds; zooming in moves points apart, never together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rooflens import units
from rooflens.report.case_names import shorten
from rooflens.report.escape import printable
from rooflens.report.figures.labels import HEADING, LONGEST_KEY, NORMAL
from rooflens.report.figures.page_layout import (
    BELOW,
    GUTTER,
    LEFT,
    PLANE_WIDTH,
    RUG_WIDTH,
    SMALL_MARK,
    Plane,
    Sheet,
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
from rooflens.report.figures.plotly_labels import PX, beside, lines, text, within
from rooflens.report.figures.roofline_data import Axis, Figure, Link, Mark, Tie

if TYPE_CHECKING:
    import plotly.graph_objects as go

STRETCH = (0.75, 2.0)
"""The narrowest and the widest plane, as multiples of that on paper."""
# The row of buttons stands above the plane and the column, not over them.
_TOP = 30.0
# All of these are at most as wide as DejaVu Sans, for which the labels are arranged.
FONTS = "'DejaVu Sans', 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LINE_POINTS = 40
# A circle of radius 1 has the area pi; plotly's other shapes of that size have 4, 3.38, 1.73 and 3.2.
_SIZES = {
    "square": math.sqrt(math.pi / 4),
    "diamond": math.sqrt(math.pi / 3.38),
    "triangle-up": math.sqrt(math.pi / 1.73),
    "triangle-down": math.sqrt(math.pi / 1.73),
    "cross": math.sqrt(math.pi / 3.2),
}
_RUG_AXES = {"xaxis": "x2", "yaxis": "y2"}


def height(sheet: Sheet) -> float:
    """Of the plot on the page, in CSS pixels."""
    return (_TOP + sheet.plane.height + BELOW) * PX


def draw(figure: Figure, sheet: Sheet) -> go.Figure:
    """The figure as one of plotly's, with labels where `sheet` has them."""
    import plotly.graph_objects as go

    plane = Plane(figure, sheet.plane)
    traces = [*_ceilings(figure), *_bridges(sheet), *_groups(figure), *_rug(figure), *_keys(figure, sheet)]
    annotations = [
        *(note for placed in sheet.within for note in within(plane, placed)),
        *(note for placed in sheet.beside for note in beside(plane, placed)),
    ]
    return go.Figure(traces, {**_layout(figure, sheet), "annotations": annotations})


def _layout(figure: Figure, sheet: Sheet) -> dict[str, Any]:
    hidden = {"range": [0, 1], "fixedrange": True, "visible": False}
    column = sheet.width - LEFT - PLANE_WIDTH - GUTTER
    return {
        "template": "none",
        "height": round(height(sheet)),
        "margin": {"l": LEFT * PX, "r": (GUTTER + column) * PX, "t": _TOP * PX, "b": BELOW * PX, "pad": 0},
        "font": {"family": FONTS, "size": NORMAL * PX, "color": INK},
        "hoverlabel": {"align": "left", "font": {"family": FONTS, "size": NORMAL * PX}},
        "hovermode": "closest",
        "barmode": "overlay",
        "xaxis": _axis(figure.x, "none" if 1e-5 < figure.x.low and figure.x.high < 1e6 else "power"),
        "yaxis": _axis(figure.y, "SI"),
        # The rug keeps to the left edge whatever part of the plane is shown.
        "xaxis2": {**hidden, "overlaying": "x", "anchor": "y2"},
        "yaxis2": {**hidden, "overlaying": "y", "anchor": "x2"},
        **_legends(sheet),
    }


def _axis(axis: Axis, exponents: str) -> dict[str, Any]:
    return {
        "type": "log",
        "range": [math.log10(axis.low), math.log10(axis.high)],
        "title": {"text": escape(axis.label), "font": {"size": HEADING * PX}, "standoff": 8},
        "exponentformat": exponents,
        "nticks": 6,
        "gridcolor": FAINT,
        "linecolor": GREY,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GREY,
        "minor": {"ticks": "outside", "ticklen": 2, "tickcolor": GREY},
        "zeroline": False,
    }


def _legends(sheet: Sheet) -> dict[str, Any]:
    """Groups, which switch their marks on and off, and below them the shapes, which do not."""
    found = {}
    headings = [placed for placed in sheet.keys if placed.key.what == "heading"]
    for name, placed in zip(("legend", "legend2"), headings, strict=False):
        found[name] = {
            "title": {"text": "&nbsp;" * 6 + text([placed.key.words]), "side": "top"},
            "font": {"size": NORMAL * PX, "color": INK},
            "x": 1,
            "xanchor": "left",
            "xref": "paper",
            "y": (placed.box.top - sheet.plane.bottom) / sheet.plane.height,
            "yanchor": "top",
            "tracegroupgap": 0,
            "itemclick": "toggle" if name == "legend" else False,
            "itemdoubleclick": "toggleothers" if name == "legend" else False,
            "bgcolor": "rgba(0,0,0,0)",
        }
    return found


def _ceilings(figure: Figure) -> Iterator[dict[str, Any]]:
    for line in figure.ceilings:
        steps = [i / _LINE_POINTS for i in range(_LINE_POINTS + 1)]
        rate = units.show(line.rate, "FLOP/s" if line.kind == "compute" else "B/s")
        yield {
            "type": "scatter",
            "mode": "lines",
            # Points along the line give the hover text a place to appear.
            "x": [line.start[0] ** (1 - t) * line.end[0] ** t for t in steps],
            "y": [line.start[1] ** (1 - t) * line.end[1] ** t for t in steps],
            "line": {
                "color": ceiling_colour(
                    line.device, len(figure.devices), line.resource, hierarchical=figure.hierarchical
                ),
                "width": 2,
                "dash": _dash(
                    ceiling_dash(line.device, len(figure.devices), line.resource, hierarchical=figure.hierarchical)
                ),
            },
            "hoverinfo": "text",
            "hovertext": lines([figure.devices[line.device], f"{line.resource} {rate}", line.origin]),
            "showlegend": False,
        }
    for ridge in figure.ridges:
        colour = device_colour(ridge.device, len(figure.devices))
        yield {
            "type": "scatter",
            "mode": "markers",
            "x": [ridge.x],
            "y": [ridge.y],
            "marker": {"size": 6, "color": "white", "line": {"color": colour, "width": 1.4}},
            "hoverinfo": "text",
            "hovertext": lines(
                [
                    figure.devices[ridge.device],
                    f"{ridge.resource} ridge at {units.show(ridge.x, 'FLOP/B')} of {ridge.level}",
                ]
            ),
            "showlegend": False,
        }


def _bridges(sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Lines that lead from labels over other diagonals to their own."""
    for placed in sheet.within:
        if placed.bridge is not None:
            start, end = placed.bridge
            yield {
                "type": "scatter",
                "mode": "lines",
                "x": [start[0], end[0]],
                "y": [start[1], end[1]],
                "line": {"color": placed.colour, "width": 1},
                "hoverinfo": "skip",
                "showlegend": False,
            }


def _dash(lengths: Sequence[float]) -> str:
    return ",".join(f"{2 * length:g}px" for length in lengths) or "solid"


def _groups(figure: Figure) -> Iterator[dict[str, Any]]:
    """For each group its entry in the legend, its links, its marks of each shape, and the rings around them."""
    colours = group_colours(figure.groups)
    if figure.ties:
        yield {
            **_segments(figure.ties),
            "line": {"color": GREY, "width": 0.9},
            "opacity": 0.7,
            "showlegend": False,
        }
    for group in figure.groups:
        marks = [mark for mark in figure.marks if mark.group == group]
        hollow = all(mark.whole for mark in marks)
        base = {"type": "scatter", "legendgroup": group, "showlegend": False}
        yield {
            **base,
            "mode": "markers",
            "x": [None],
            "y": [None],
            "name": escape(shorten(printable(group), LONGEST_KEY)),
            "marker": {
                "symbol": group_shape(group, hierarchical=figure.hierarchical),
                "size": 9,
                "color": "white" if hollow else colours[group],
                "line": {"color": colours[group], "width": 2 * hollow},
            },
            "showlegend": True,
        }
        links = [link for link in figure.links if link.group == group]
        if links:
            yield base | _segments(links) | {"line": {"color": colours[group], "width": 1.2}}
        for shape, seen in _by_shape(figure, marks).items():
            yield base | _marks(figure, seen, shape, colours[group])
        ringed = [mark for mark in marks if mark.above_roof]
        if ringed:
            yield base | {
                "mode": "markers",
                "x": [mark.x for mark in ringed],
                "y": [mark.y for mark in ringed],
                "marker": {
                    "symbol": "circle-open",
                    "size": [(diameter(figure, mark) + 7) * PX for mark in ringed],
                    "color": FLAG,
                    "line": {"width": 2},
                },
                "hoverinfo": "skip",
            }


def _segments(lines: Sequence[Link | Tie]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [value for line in lines for value in (line.start[0], line.end[0], None)],
        "y": [value for line in lines for value in (line.start[1], line.end[1], None)],
        "hoverinfo": "skip",
    }


def _by_shape(figure: Figure, marks: Sequence[Mark]) -> dict[str, list[Mark]]:
    found: dict[str, list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: list(SHAPES).index(mark.source)):
        shape = mark_shape(mark.source, mark.level, hierarchical=figure.hierarchical)
        found.setdefault(shape, []).append(mark)
    return found


def _marks(figure: Figure, marks: Sequence[Mark], shape: str, colour: str) -> dict[str, Any]:
    # Large marks first, so that none hides a smaller one.
    ordered = sorted(marks, key=lambda mark: -diameter(figure, mark))
    sizes = [diameter(figure, mark) for mark in ordered]
    rims = [
        mark_rim(mark.device, len(figure.devices), colour, whole=mark.whole, small=size < SMALL_MARK)
        for mark, size in zip(ordered, sizes, strict=True)
    ]
    return {
        "mode": "markers",
        "x": [mark.x for mark in ordered],
        "y": [mark.y for mark in ordered],
        "marker": {
            "symbol": shape,
            "size": [_SIZES.get(shape, 1.0) * size * PX for size in sizes],
            "color": ["rgba(255,255,255,0.6)" if mark.whole else colour for mark in ordered],
            "line": {"color": [rim for rim, _ in rims], "width": [width * PX for _, width in rims]},
            "opacity": 0.9,
        },
        "hoverinfo": "text",
        "hovertext": [lines(mark.hover) for mark in ordered],
    }


def _rug(figure: Figure) -> Iterator[dict[str, Any]]:
    colours = group_colours([*figure.groups, OTHER])
    strip = {"type": "bar", "x": [RUG_WIDTH / PLANE_WIDTH / 2], "width": [RUG_WIDTH / PLANE_WIDTH]}
    if figure.rug:
        yield strip | {**_RUG_AXES, "y": [1], "marker": {"color": STRIP}, "showlegend": False, "hoverinfo": "skip"}
    for mark in figure.rug:
        yield strip | {
            **_RUG_AXES,
            "y": [mark.high - mark.low],
            "base": [mark.low],
            "marker": {"color": colours[mark.group], "line": {"color": "white", "width": 0.4}},
            "legendgroup": mark.group,
            "showlegend": False,
            "hoverinfo": "text",
            "hovertext": lines(mark.hover),
        }


def _keys(figure: Figure, sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Rows of the legend that only explain: shapes, links, rings and the rug."""
    grey = {"size": 9, "color": SIGN, "line": {"color": GREY, "width": 1}}
    looks: dict[str, dict[str, Any]] = {
        "pair": {"mode": "lines", "line": {"color": GREY, "width": 1.2}},
        "tie": {"mode": "lines", "line": {"color": GREY, "width": 0.9}},
        "whole": {
            "mode": "markers",
            "marker": {"symbol": "circle-open", "size": 9, "color": GREY, "line": {"width": 2}},
        },
        "flag": {
            "mode": "markers",
            "marker": {"symbol": "circle-open", "size": 12, "color": FLAG, "line": {"width": 2}},
        },
        "rug": {"mode": "markers", "marker": {"symbol": "square", "size": 10, "color": SIGN}},
    }
    for placed in sheet.keys:
        key = placed.key
        if key.what in ("heading", "group"):
            continue
        shape = next((shape for source, shape in SHAPES.items() if source == key.name), "")
        look = looks.get(key.what) or {"mode": "markers", "marker": grey | {"symbol": shape}}
        yield {
            "type": "scatter",
            "x": [None],
            "y": [None],
            "name": lines([key.words.text]),
            "legend": "legend2",
            "hoverinfo": "skip",
            **look,
        }
