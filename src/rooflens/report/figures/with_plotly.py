"""The roofline figure by plotly: hover texts, zoom, groups to switch.

The plane is as wide as the window allows, within bounds, and labels keep their distance in pixels to the points they
name. So they are arranged to be apart at every width within the bounds; zooming in moves points apart, never together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from rooflens import units
from rooflens.report.figures.axes import Axis
from rooflens.report.figures.drawn_marks import DrawnMark
from rooflens.report.figures.labels import HEADING, NORMAL
from rooflens.report.figures.page_layout import BELOW, GUTTER, LEFT, PLANE_WIDTH, RUG_WIDTH, Page
from rooflens.report.figures.palette import (
    FAINT,
    FLAG,
    GREY,
    INK,
    SHAPES,
    SIGN,
    STRIP,
    Symbol,
    ceiling_colour,
    ceiling_dash,
    device_colour,
)
from rooflens.report.figures.plotly_labels import PX, harmless, label_annotations, markup
from rooflens.report.figures.roofline_data import Link, RooflineData, Tie

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


def height(page: Page) -> float:
    """Return the height of the plot on the page, in CSS pixels."""
    return (_TOP + page.plane.height + BELOW) * PX


def draw(page: Page) -> go.Figure:
    """Return the figure as one of plotly's, with labels where `page` has them."""
    traces = [*_ceilings(page.figure), *_bridges(page), *_groups(page), *_rug(page), *_signs(page)]
    return go.Figure(traces, {**_layout(page), "annotations": list(label_annotations(page))})


def _layout(page: Page) -> dict[str, Any]:
    figure = page.figure
    hidden = {"range": [0, 1], "fixedrange": True, "visible": False}
    column = page.width - LEFT - PLANE_WIDTH - GUTTER
    return {
        "template": "none",
        "height": round(height(page)),
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
        **_legends(page),
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


def _legends(page: Page) -> dict[str, Any]:
    """Return two legends: groups, which switch their marks on and off, and below them the symbols, which do not."""
    headings = [(row, box) for row, box in page.legend if row.kind == "heading"]
    return {
        name: {
            "title": {"text": "&nbsp;" * 6 + markup([row.text]), "side": "top"},
            "font": {"size": NORMAL * PX, "color": INK},
            "x": 1,
            "xanchor": "left",
            "xref": "paper",
            "y": (box.top - page.plane.bottom) / page.plane.height,
            "yanchor": "top",
            "tracegroupgap": 0,
            "itemclick": "toggle" if name == "legend" else False,
            "itemdoubleclick": "toggleothers" if name == "legend" else False,
            "bgcolor": "rgba(0,0,0,0)",
        }
        for name, (row, box) in zip(("legend", "legend2"), headings, strict=False)
    }


def _ceilings(figure: RooflineData) -> Iterator[dict[str, Any]]:
    devices, hierarchical = len(figure.devices), figure.hierarchical
    for line in figure.ceilings:
        steps = [i / _LINE_POINTS for i in range(_LINE_POINTS + 1)]
        rate = units.show(line.rate, "FLOP/s" if line.kind == "compute" else "B/s")
        dash = ceiling_dash(line.device, devices, line.resource, hierarchical=hierarchical)
        yield {
            "type": "scatter",
            "mode": "lines",
            # Points along the line give the hover text a place to appear.
            "x": [line.start[0] ** (1 - t) * line.end[0] ** t for t in steps],
            "y": [line.start[1] ** (1 - t) * line.end[1] ** t for t in steps],
            "line": {
                "color": ceiling_colour(line.device, devices, line.resource, hierarchical=hierarchical),
                "width": 2,
                "dash": ",".join(f"{2 * length:g}px" for length in dash) or "solid",
            },
            "hoverinfo": "text",
            "hovertext": harmless([figure.devices[line.device], f"{line.resource} {rate}", line.origin]),
            "showlegend": False,
        }
    for ridge in figure.ridges:
        rim = {"color": device_colour(ridge.device, devices), "width": 1.4}
        at = f"{ridge.resource} ridge at {units.show(ridge.x, 'FLOP/B')} of {ridge.level}"
        yield {
            "type": "scatter",
            "mode": "markers",
            "x": [ridge.x],
            "y": [ridge.y],
            "marker": {"size": 6, "color": "white", "line": rim},
            "hoverinfo": "text",
            "hovertext": harmless([figure.devices[ridge.device], at]),
            "showlegend": False,
        }


def _bridges(page: Page) -> Iterator[dict[str, Any]]:
    """Yield lines that lead from labels over other diagonals to their own."""
    for text in page.within:
        if text.bridge is not None:
            start, end = text.bridge
            yield {
                "type": "scatter",
                "mode": "lines",
                "x": [start[0], end[0]],
                "y": [start[1], end[1]],
                "line": {"color": text.colour, "width": 1},
                "hoverinfo": "skip",
                "showlegend": False,
            }


def _groups(page: Page) -> Iterator[dict[str, Any]]:
    """Yield for each group its entry in the legend, its links, its marks of each symbol, and the rings around them."""
    figure = page.figure
    if figure.ties:
        tie = {"line": {"color": GREY, "width": 0.9}, "opacity": 0.7, "showlegend": False}
        yield _segments(figure.ties) | tie
    rows = [row for row, _ in page.legend if row.kind == "group"]
    for group, row in zip(figure.groups, rows, strict=True):
        base = {"type": "scatter", "legendgroup": group, "showlegend": False}
        yield {
            **base,
            "mode": "markers",
            "x": [None],
            "y": [None],
            "name": escape(row.text.text),
            "marker": {
                "symbol": row.symbol,
                "size": 9,
                "color": "white" if row.hollow else row.colour,
                "line": {"color": row.colour, "width": 2 * row.hollow},
            },
            "showlegend": True,
        }
        links = [link for link in figure.links if link.group == group]
        if links:
            yield base | _segments(links) | {"line": {"color": row.colour, "width": 1.2}}
        marks = [drawn for drawn in page.marks if drawn.mark.group == group]
        by_symbol: dict[Symbol, list[DrawnMark]] = {}
        for drawn in sorted(marks, key=lambda drawn: list(SHAPES).index(drawn.mark.source)):
            by_symbol.setdefault(drawn.symbol, []).append(drawn)
        for symbol, same in by_symbol.items():
            yield base | _marks(same, symbol)
        ringed = [drawn for drawn in marks if drawn.mark.above_roof]
        if ringed:
            yield base | {
                "mode": "markers",
                "x": [drawn.mark.x for drawn in ringed],
                "y": [drawn.mark.y for drawn in ringed],
                "marker": {
                    "symbol": "circle-open",
                    "size": [(drawn.diameter + 7) * PX for drawn in ringed],
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


def _marks(marks: Sequence[DrawnMark], symbol: Symbol) -> dict[str, Any]:
    # Large marks first, so that none hides a smaller one.
    ordered = sorted(marks, key=lambda drawn: -drawn.diameter)
    return {
        "mode": "markers",
        "x": [drawn.mark.x for drawn in ordered],
        "y": [drawn.mark.y for drawn in ordered],
        "marker": {
            "symbol": symbol,
            "size": [_SIZES.get(symbol, 1.0) * drawn.diameter * PX for drawn in ordered],
            "color": ["rgba(255,255,255,0.6)" if drawn.mark.whole else drawn.colour for drawn in ordered],
            "line": {
                "color": [drawn.rim for drawn in ordered],
                "width": [drawn.rim_width * PX for drawn in ordered],
            },
            "opacity": 0.9,
        },
        "hoverinfo": "text",
        "hovertext": [harmless(drawn.mark.hover) for drawn in ordered],
    }


def _rug(page: Page) -> Iterator[dict[str, Any]]:
    strip = {"type": "bar", "x": [RUG_WIDTH / PLANE_WIDTH / 2], "width": [RUG_WIDTH / PLANE_WIDTH]} | _RUG_AXES
    if page.figure.rug:
        yield strip | {"y": [1], "marker": {"color": STRIP}, "showlegend": False, "hoverinfo": "skip"}
    for mark in page.figure.rug:
        yield strip | {
            "y": [mark.high - mark.low],
            "base": [mark.low],
            "marker": {"color": page.colours[mark.group], "line": {"color": "white", "width": 0.4}},
            "legendgroup": mark.group,
            "showlegend": False,
            "hoverinfo": "text",
            "hovertext": harmless(mark.hover),
        }


def _signs(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the rows of the legend that only explain: symbols, links, rings and the rug."""
    open_circle = {"symbol": "circle-open", "line": {"width": 2}}
    looks: dict[str, dict[str, Any]] = {
        "pair": {"mode": "lines", "line": {"color": GREY, "width": 1.2}},
        "tie": {"mode": "lines", "line": {"color": GREY, "width": 0.9}},
        "whole": {"mode": "markers", "marker": open_circle | {"size": 9, "color": GREY}},
        "flag": {"mode": "markers", "marker": open_circle | {"size": 12, "color": FLAG}},
        "rug": {"mode": "markers", "marker": {"symbol": "square", "size": 10, "color": SIGN}},
    }
    for row, _ in page.legend:
        if row.kind not in ("heading", "group"):
            grey = {"size": 9, "color": SIGN, "line": {"color": GREY, "width": 1}, "symbol": row.symbol}
            yield {
                "type": "scatter",
                "x": [None],
                "y": [None],
                "name": harmless([row.text.text]),
                "legend": "legend2",
                "hoverinfo": "skip",
                **looks.get(row.kind, {"mode": "markers", "marker": grey}),
            }
