"""Labels as plotly's annotations and markup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from rooflens.report.escape import printable
from rooflens.report.figures.labels import SMALL, TextLine
from rooflens.report.figures.page_layout import Page, Plane
from rooflens.report.figures.palette import INK

PX = 4 / 3
"""CSS pixels in a point."""


def label_annotations(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the labels: in the plane bound to the point that they name, beside it to the height of their lines.

    So they move with the data.
    """
    plane = Plane(page.figure, page.plane)
    for text in page.within if page.below else (*page.within, *page.beside):
        x, y = plane.at(text.anchor)
        place = {"x": math.log10(text.anchor[0]), "y": math.log10(text.anchor[1]), "xref": "x", "yref": "y"}
        more: dict[str, Any] = {"bgcolor": "rgba(255,255,255,0.65)"}
        if text in page.beside:
            x, more = plane.box.right, {}
            place |= {"x": 1, "xref": "paper"}
        if text.leader is not None:
            from_x, from_y, to_x, to_y = text.leader
            yield {
                **place,
                "text": "",
                "showarrow": True,
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": text.colour,
                "xshift": (to_x - x) * PX,
                "yshift": (to_y - y) * PX,
                "ax": (from_x - to_x) * PX,
                "ay": (to_y - from_y) * PX,
            }
        yield {
            **place,
            **more,
            "text": markup(text.rows),
            "showarrow": False,
            "xanchor": "left",
            "yanchor": "middle",
            "align": "left",
            "borderpad": 0,
            "font": {"size": max(row.size for row in text.rows) * PX, "color": INK},
            "xshift": (text.box.left - x) * PX,
            "yshift": ((text.box.bottom + text.box.top) / 2 - y) * PX,
        }


def x_label(page: Page) -> dict[str, Any]:
    """Return the name of the lower axis on a narrow page, where it would be cut in the middle of the axis."""
    return {
        "text": markup([TextLine(page.figure.x.label, SMALL)]),
        "showarrow": False,
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": 0,
        "yref": "paper",
        "yanchor": "top",
        "yshift": -22 * PX,
    }


def markup(rows: Sequence[TextLine]) -> str:
    """Return lines as plotly's own markup, with the texts of users made harmless."""
    marked = []
    for row in rows:
        text = f'<span style="color:{row.colour};font-size:{row.size * PX:.2f}px">{escape(row.text)}</span>'
        marked.append(f"<b>{text}</b>" if row.bold else text)
    return "<br>".join(marked)


def harmless(rows: Iterable[str]) -> str:
    """Return texts of users, one below the other, without markup of their own."""
    return "<br>".join(escape(printable(row)) for row in rows)
