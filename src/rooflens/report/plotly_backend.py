"""The roofline figure by plotly: hover texts, zoom, groups to switch.

The plane is as wide as the window allows, within bounds, and labels keep their distance in pixels to the points they
name. So they are arranged to be apart at every width within the bounds; zooming in moves points apart, never together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rooflens import units
from rooflens.report.captions import shorten
from rooflens.report.drawing import Axis, Figure, Mark
from rooflens.report.escape import printable
from rooflens.report.labels import HEADING, LONGEST_KEY, NORMAL, Words
from rooflens.report.palette import (
    FAINT,
    FLAG,
    GREY,
    INK,
    SHAPES,
    STRIP,
    ceiling_dash,
    device_colour,
    group_colours,
    mark_rim,
)
from rooflens.report.sheet import (
    BELOW,
    GUTTER,
    LEFT,
    PLANE_WIDTH,
    RUG_WIDTH,
    SMALL_MARK,
    Placed,
    Plane,
    Sheet,
    diameter,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

STRETCH = (0.75, 2.0)
"""The narrowest and the widest plane, as multiples of that on paper."""
PX = 4 / 3
"""CSS pixels in a point."""
# The row of buttons stands above the plane and the column, not over them.
_TOP = 30.0
# All of these are at most as wide as DejaVu Sans, for which the labels are arranged.
FONTS = "'DejaVu Sans', 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LINE_POINTS = 40
_RUG_AXES = {"xaxis": "x2", "yaxis": "y2"}


def height(sheet: Sheet) -> float:
    """Of the plot on the page, in CSS pixels."""
    return (_TOP + sheet.plane.height + BELOW) * PX


def draw(figure: Figure, sheet: Sheet) -> go.Figure:
    """The figure as one of plotly's, with labels where `sheet` has them."""
    import plotly.graph_objects as go

    plane = Plane(figure, sheet.plane)
    traces = [*_ceilings(figure), *_groups(figure), *_rug(figure), *_keys(figure, sheet)]
    annotations = [
        *(note for placed in sheet.within for note in _within(plane, placed)),
        *(note for placed in sheet.beside for note in _beside(plane, placed)),
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
            "title": {"text": "&nbsp;" * 6 + _text([placed.key.words]), "side": "top"},
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
                "color": device_colour(line.device, len(figure.devices)),
                "width": 2,
                "dash": _dash(ceiling_dash(line.device, len(figure.devices), line.resource)),
            },
            "hoverinfo": "text",
            "hovertext": _lines([figure.devices[line.device], f"{line.resource} {rate}", line.origin]),
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
            "hovertext": _lines(
                [figure.devices[ridge.device], f"{ridge.resource} ridge at {units.show(ridge.x, 'FLOP/B')}"]
            ),
            "showlegend": False,
        }


def _dash(lengths: Sequence[float]) -> str:
    return ",".join(f"{2 * length:g}px" for length in lengths) or "solid"


def _groups(figure: Figure) -> Iterator[dict[str, Any]]:
    """For each group its entry in the legend, its links, its marks of each source, and the rings around them."""
    colours = group_colours(figure.groups)
    for group in figure.groups:
        marks = [mark for mark in figure.marks if mark.group == group]
        hollow = any(mark.whole for mark in marks)
        base = {"type": "scatter", "legendgroup": group, "showlegend": False}
        yield {
            **base,
            "mode": "markers",
            "x": [None],
            "y": [None],
            "name": escape(shorten(printable(group), LONGEST_KEY)),
            "marker": {
                "size": 9,
                "color": "white" if hollow else colours[group],
                "line": {"color": colours[group], "width": 2 * hollow},
            },
            "showlegend": True,
        }
        links = [link for link in figure.links if link.group == group]
        if links:
            yield {
                **base,
                "mode": "lines",
                "x": [value for link in links for value in (link.start[0], link.end[0], None)],
                "y": [value for link in links for value in (link.start[1], link.end[1], None)],
                "line": {"color": colours[group], "width": 1.2},
                "hoverinfo": "skip",
            }
        for source, shape in SHAPES.items():
            seen = [mark for mark in marks if mark.source == source]
            if seen:
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
            "size": [size * PX for size in sizes],
            "color": ["rgba(255,255,255,0.6)" if mark.whole else colour for mark in ordered],
            "line": {"color": [rim for rim, _ in rims], "width": [width * PX for _, width in rims]},
            "opacity": 0.9,
        },
        "hoverinfo": "text",
        "hovertext": [_lines(mark.hover) for mark in ordered],
    }


def _rug(figure: Figure) -> Iterator[dict[str, Any]]:
    colours = group_colours(figure.groups)
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
            "hovertext": _lines(mark.hover),
        }


def _keys(figure: Figure, sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Rows of the legend that only explain: shapes, links, rings and the rug."""
    grey = {"size": 9, "color": "#b8c0c8", "line": {"color": GREY, "width": 1}}
    looks: dict[str, dict[str, Any]] = {
        "pair": {"mode": "lines", "line": {"color": GREY, "width": 1.2}},
        "flag": {
            "mode": "markers",
            "marker": {"symbol": "circle-open", "size": 12, "color": FLAG, "line": {"width": 2}},
        },
        "rug": {"mode": "markers", "marker": {"symbol": "square", "size": 10, "color": "#b8c0c8"}},
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
            "name": _lines([key.words.text]),
            "legend": "legend2",
            "hoverinfo": "skip",
            **look,
        }


def _within(plane: Plane, placed: Placed) -> Iterator[dict[str, Any]]:
    """A label in the plane: bound to the point that it names, so that it moves with it."""
    point = placed.anchor
    x, y = plane.at(point)
    box = placed.box
    place = {"x": math.log10(point[0]), "y": math.log10(point[1]), "xref": "x", "yref": "y"}
    if placed.leader is not None:
        yield _leader(placed, place, x, y)
    yield {
        **place,
        **_words(placed.words),
        "bgcolor": "rgba(255,255,255,0.65)",
        "xshift": (box.left - x) * PX,
        "yshift": ((box.bottom + box.top) / 2 - y) * PX,
    }


def _beside(plane: Plane, placed: Placed) -> Iterator[dict[str, Any]]:
    """A label in the column: bound to the height at which its line ends."""
    x, y = plane.box.right, plane.at(placed.anchor)[1]
    place = {"x": 1, "y": math.log10(placed.anchor[1]), "xref": "paper", "yref": "y"}
    if placed.leader is not None:
        yield _leader(placed, place, x, y)
    centre = (placed.box.bottom + placed.box.top) / 2
    yield {**place, **_words(placed.words), "xshift": (placed.box.left - x) * PX, "yshift": (centre - y) * PX}


def _leader(placed: Placed, place: dict[str, Any], x: float, y: float) -> dict[str, Any]:
    assert placed.leader is not None
    from_x, from_y, to_x, to_y = placed.leader
    return {
        **place,
        "text": "",
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": placed.colour,
        "xshift": (to_x - x) * PX,
        "yshift": (to_y - y) * PX,
        "ax": (from_x - to_x) * PX,
        "ay": (to_y - from_y) * PX,
    }


def _words(words: Sequence[Words]) -> dict[str, Any]:
    return {
        "text": _text(words),
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "middle",
        "align": "left",
        "borderpad": 0,
        "font": {"size": max(line.size for line in words) * PX, "color": INK},
    }


def _text(words: Sequence[Words]) -> str:
    """Lines as plotly's own markup, with the texts of users made harmless."""
    found = []
    for line in words:
        text = f'<span style="color:{line.colour};font-size:{line.size * PX:.2f}px">{escape(line.text)}</span>'
        found.append(f"<b>{text}</b>" if line.bold else text)
    return "<br>".join(found)


def _lines(lines: Iterable[str]) -> str:
    return "<br>".join(escape(printable(line)) for line in lines)
