"""Labels as plotly's annotations and markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from rooflens.report.escape import printable
from rooflens.report.figures.labels import Words
from rooflens.report.figures.page_layout import Placed, Plane
from rooflens.report.figures.palette import INK

PX = 4 / 3
"""CSS pixels in a point."""


def within(plane: Plane, placed: Placed) -> Iterator[dict[str, Any]]:
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


def beside(plane: Plane, placed: Placed) -> Iterator[dict[str, Any]]:
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
        "text": text(words),
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "middle",
        "align": "left",
        "borderpad": 0,
        "font": {"size": max(line.size for line in words) * PX, "color": INK},
    }


def text(words: Sequence[Words]) -> str:
    """Lines as plotly's own markup, with the texts of users made harmless."""
    found = []
    for line in words:
        text = f'<span style="color:{line.colour};font-size:{line.size * PX:.2f}px">{escape(line.text)}</span>'
        found.append(f"<b>{text}</b>" if line.bold else text)
    return "<br>".join(found)


def lines(lines: Iterable[str]) -> str:
    return "<br>".join(escape(printable(line)) for line in lines)
