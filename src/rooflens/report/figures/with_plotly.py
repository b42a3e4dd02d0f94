"""The roofline figure by plotly: hover texts, zoom, groups to switch.

The plane is as wide as the window allows, within bounds, and labels keep their distance in pixels to the points they
name. So they are arranged to be apart at every width within the bounds; zooming in moves points apart, never together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from rooflens import units
from rooflens.report.figures.axes import XY, Axis, log_ticks, tick_text, ticks
from rooflens.report.figures.drawn_marks import DrawnMark, middle_colour
from rooflens.report.figures.labels import HEADING, NORMAL, LegendRow
from rooflens.report.figures.page_layout import (
    BELOW,
    EDGE,
    LEFT,
    MOST_Y_TICKS,
    PHONE,
    PLANE_WIDTH,
    RUG_WIDTH,
    SCREEN,
    TICK_WIDTH,
    Page,
)
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
from rooflens.report.figures.plotly_labels import PX, harmless, label_annotations, markup, x_label
from rooflens.report.figures.roofline_data import Link, RooflineData, Tie, Whisker, stems

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
_CROSS = {"symbol": "x-thin", "line": {"color": INK, "width": 1.6}}
"""Over what does not fit into the memory of its device."""
_RING = {"symbol": "circle-open", "color": FLAG, "line": {"width": 2}}
"""Around what is above its roof."""
_TRAIL = {"width": 0.9, "dash": "4px,2px"}
_RUG_AXES = {"xaxis": "x2", "yaxis": "y2"}


def height(page: Page) -> float:
    """Return the height of the plot on the page, in CSS pixels."""
    return (_TOP + page.plane.height + BELOW) * PX


def draw(page: Page) -> go.Figure:
    """Return the figure as one of plotly's, with labels where `page` has them."""
    bridges = [
        _trace("lines", text.bridge, line={"color": text.colour, "width": 1})
        for text in page.within
        if text.bridge is not None
    ]
    traces = [*_ceilings(page.figure), *bridges, *_groups(page), *_rug(page), *_signs(page)]
    notes = [*label_annotations(page), *([x_label(page)] if page.below else [])]
    return go.Figure(traces, {**_layout(page), "annotations": notes})


def _layout(page: Page) -> dict[str, Any]:
    figure = page.figure
    hidden = {"range": [0, 1], "fixedrange": True, "visible": False}
    heading = {"size": HEADING * PX}
    return {
        "template": "none",
        "showlegend": not page.below,
        "height": round(height(page)),
        "margin": {
            "l": LEFT * PX,
            "r": (page.width - page.plane.right) * PX,
            "t": _TOP * PX,
            "b": BELOW * PX,
            "pad": 0,
        },
        "font": {"family": FONTS, "size": NORMAL * PX, "color": INK},
        "hoverlabel": {"align": "left", "font": {"family": FONTS, "size": NORMAL * PX}},
        "hovermode": "closest",
        "barmode": "overlay",
        # The label of the upright axis stands on it, as on all other pictures.
        "title": {
            "text": escape(figure.y.label),
            "font": heading,
            "xref": "container",
            "x": 0,
            "yref": "paper",
            "y": 1,
            "yanchor": "bottom",
            "pad": {"l": EDGE * PX, "b": 8},
        },
        "xaxis": _axis(figure.x, _most_ticks(page))
        | ({} if page.below else {"title": {"text": escape(figure.x.label), "font": heading, "standoff": 8}}),
        "yaxis": _axis(figure.y, MOST_Y_TICKS),
        # The rug keeps to the left edge whatever part of the plane is shown.
        "xaxis2": {**hidden, "overlaying": "x", "anchor": "y2"},
        "yaxis2": {**hidden, "overlaying": "y", "anchor": "x2"},
        **_legends(page),
    }


def _most_ticks(page: Page) -> int:
    """Return how many ticks have room where the window is narrowest."""
    return int(page.plane.width * (PHONE if page.below else SCREEN)[0] / TICK_WIDTH)


def _axis(axis: Axis, most: int) -> dict[str, Any]:
    shown = ticks(axis, most)
    return {
        "type": "log",
        "range": [math.log10(axis.low), math.log10(axis.high)],
        "tickvals": shown,
        "ticktext": [tick_text(axis, tick) for tick in shown],
        "gridcolor": FAINT,
        "linecolor": GREY,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GREY,
        "minor": {"ticks": "outside", "ticklen": 2, "tickcolor": GREY, "tickvals": _minor(axis)},
        "zeroline": False,
    }


def _minor(axis: Axis) -> list[float]:
    """Return the small ticks between powers of ten."""
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)))
    return [factor * 10.0**power for power in powers for factor in range(2, 10)]


def zoomed_ticks(page: Page) -> dict[str, Any]:
    """Return for each axis the choices of ticks, the finest first: of these a page shows the finest that has room."""
    wide = _most_ticks(page)
    return {
        name: {"most": most, "choices": [[(tick, tick_text(axis, tick)) for tick in row] for row in log_ticks(axis, 3)]}
        for name, axis, most in (("xaxis", page.figure.x, wide), ("yaxis", page.figure.y, MOST_Y_TICKS))
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


def _trace(mode: str, points: Sequence[XY | None], **look: Any) -> dict[str, Any]:
    """Return lines or markers at some points, outside the legend and without a hover text unless `look` has them."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": [None if point is None else point[0] for point in points],
        "y": [None if point is None else point[1] for point in points],
        "showlegend": False,
        "hoverinfo": "text" if "hovertext" in look else "skip",
    } | look


def _ceilings(figure: RooflineData) -> Iterator[dict[str, Any]]:
    devices = len(figure.devices)
    steps = [i / _LINE_POINTS for i in range(_LINE_POINTS + 1)]
    for line in figure.ceilings:
        (x0, y0), (x1, y1) = line.start, line.end
        rate = units.show(line.rate, "FLOP/s" if line.kind == "compute" else "B/s")
        dash = ceiling_dash(line.device, devices, line.resource, hierarchical=figure.hierarchical)
        look = {
            "color": ceiling_colour(line.device, devices, line.resource, by_level=figure.levels_coloured),
            "width": 2,
            "dash": ",".join(f"{2 * length:g}px" for length in dash) or "solid",
        }
        # Points along the line give the hover text a place to appear.
        points = [(x0 ** (1 - t) * x1**t, y0 ** (1 - t) * y1**t) for t in steps]
        text = harmless([figure.devices[line.device], f"{line.resource} {rate}", line.origin])
        yield _trace("lines", points, line=look, hovertext=text)
    for ridge in figure.ridges:
        rim = {"color": device_colour(ridge.device, devices), "width": 1.4}
        at = f"{ridge.resource} ridge at {units.show(ridge.x, 'FLOP/B')} of {ridge.level}"
        marker = {"size": 6, "color": "white", "line": rim}
        text = harmless([figure.devices[ridge.device], at])
        yield _trace("markers", [(ridge.x, ridge.y)], marker=marker, hovertext=text)


def _groups(page: Page) -> Iterator[dict[str, Any]]:
    """Yield for each group its entry in the legend, its links, its marks of each symbol, and the rings around them."""
    figure = page.figure
    if figure.ties:
        yield _trace("lines", _segments(figure.ties), line={"color": GREY, "width": 0.9}, opacity=0.7)
    for trail in figure.trails:
        if not trail.group:
            yield _trace("lines", trail.points, line={"color": GREY} | _TRAIL, opacity=0.6)
    rows = [row for row, _ in page.legend if row.kind == "group"]
    for group, row in zip(figure.groups, rows, strict=True):
        entry = {
            "symbol": row.symbol,
            "size": 9,
            "color": "white" if row.hollow else row.colour,
            "line": {"color": row.colour, "width": 2 * row.hollow},
        }
        shown = {"name": escape(row.text.text), "showlegend": True, "hoverinfo": None}
        yield _trace("markers", [None], legendgroup=group, marker=entry, **shown)
        links = [link for link in figure.links if link.group == group]
        if links:
            yield _trace("lines", _segments(links), legendgroup=group, line={"color": row.colour, "width": 1.2})
        yield from _bands(figure, row, group, page.colours)
        for trail in figure.trails:
            if trail.group == group:
                look = {"legendgroup": group, "line": {"color": row.colour} | _TRAIL}
                yield _trace("lines", trail.points, opacity=0.6, **look)
        marks = [drawn for drawn in page.marks if drawn.mark.group == group]
        by_symbol: dict[Symbol, list[DrawnMark]] = {}
        for drawn in sorted(marks, key=lambda drawn: list(SHAPES).index(drawn.mark.source)):
            by_symbol.setdefault(drawn.symbol, []).append(drawn)
        for symbol, same in by_symbol.items():
            yield _marks(same, symbol, group)
        yield from _over([drawn for drawn in marks if drawn.mark.too_large], group, _CROSS, 1)
        yield from _over([drawn for drawn in marks if drawn.mark.above_roof], group, _RING, 7)


def _over(marks: Sequence[DrawnMark], group: str, sign: Mapping[str, Any], wider: float) -> Iterator[dict[str, Any]]:
    """Yield a sign over each mark, so much wider than the mark."""
    if marks:
        sizes = [(drawn.diameter + wider) * PX for drawn in marks]
        points = [(drawn.mark.x, drawn.mark.y) for drawn in marks]
        yield _trace("markers", points, legendgroup=group, marker={**sign, "size": sizes})


def _bands(figure: RooflineData, row: LegendRow, group: str, colours: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the bands of expected times of a group, their middles, and a sign at those below the bound."""
    whiskers = [whisker for whisker in figure.whiskers if whisker.group == group]
    lines = [stem for stem in stems(figure.whiskers) if stem.group == group]
    if lines:
        look = {"legendgroup": group, "line": {"color": row.colour, "width": 1, "dash": "dot"}}
        yield _trace("lines", _segments(lines), opacity=0.5, **look)
    if whiskers:
        look = {"legendgroup": group, "line": {"color": row.colour, "width": 5}}
        yield _trace("lines", _segments(whiskers), opacity=0.35, **look)
        middles = [middle_colour(whisker, figure, colours) for whisker in whiskers]
        middle = {"symbol": "line-ew-open", "size": 8, "color": middles, "line": {"width": 1.6}}
        yield _trace("markers", [whisker.middle for whisker in whiskers], legendgroup=group, marker=middle)
    flagged = [whisker.middle for whisker in whiskers if whisker.below_bound]
    if flagged:
        words = {"textposition": "middle right", "textfont": {"color": FLAG, "size": HEADING * PX}}
        yield _trace("text", flagged, legendgroup=group, text="<b>!</b>", **words)


def _segments(lines: Sequence[Link | Tie | Whisker]) -> list[XY | None]:
    """Return the ends of lines, with a gap after each."""
    return [point for line in lines for point in (line.start, line.end, None)]


def _marks(marks: Sequence[DrawnMark], symbol: Symbol, group: str) -> dict[str, Any]:
    # Large marks first, so that none hides a smaller one.
    ordered = sorted(marks, key=lambda drawn: -drawn.diameter)
    marker = {
        "symbol": symbol,
        "size": [_SIZES.get(symbol, 1.0) * drawn.diameter * PX for drawn in ordered],
        "color": ["rgba(255,255,255,0.6)" if drawn.mark.whole else drawn.colour for drawn in ordered],
        "line": {"color": [drawn.rim for drawn in ordered], "width": [drawn.rim_width * PX for drawn in ordered]},
        "opacity": 0.9,
    }
    points = [(drawn.mark.x, drawn.mark.y) for drawn in ordered]
    texts = [harmless(drawn.mark.hover) for drawn in ordered]
    return _trace("markers", points, legendgroup=group, marker=marker, hovertext=texts)


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
        "pair": {"line": {"color": GREY, "width": 1.2}},
        "trail": {"line": {"color": GREY} | _TRAIL},
        "tie": {"line": {"color": GREY, "width": 0.9}},
        "band": {"marker": {"symbol": "line-ns-open", "size": 10, "color": SIGN, "line": {"width": 5}}},
        "whole": {"marker": open_circle | {"size": 9, "color": GREY}},
        "flag": {"marker": open_circle | {"size": 12, "color": FLAG}},
        "misfit": {"marker": _CROSS | {"size": 10}},
        "rug": {"marker": {"symbol": "square", "size": 10, "color": SIGN}},
    }
    for row, _ in page.legend:
        if row.kind not in ("heading", "group"):
            size = row.diameter * PX if row.kind == "size" else 9
            grey = {"size": size, "color": SIGN, "line": {"color": GREY, "width": 1}, "symbol": row.symbol}
            look = looks.get(row.kind, {"marker": grey})
            text = harmless([row.text.text])
            mode = "lines" if "line" in look else "markers"
            yield _trace(mode, [None], name=text, legend="legend2", showlegend=None, **look)
