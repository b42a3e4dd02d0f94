"""Files by matplotlib, without pyplot and its global state: equal pictures give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.transforms import Bbox

from rooflens.report.figures.palette import FAINT, GREY, INK, Symbol

MARKERS: Mapping[Symbol, str] = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "cross": "P",
}
"""matplotlib's names of the symbols."""
DPI = 160
_EDGE = 0.1
"""Inches."""
_DATES: Mapping[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def empty(width: float, height: float) -> Canvas:
    """Return a figure of so many inches, with an Agg canvas of its own."""
    canvas = Canvas(figsize=(width, height))
    FigureCanvasAgg(canvas)
    return canvas


def frame(plane: Axes, size: float) -> None:
    """Draw what surrounds any plane: two axes with ticks of this size, and a grid behind everything."""
    plane.tick_params(which="both", color=GREY, labelcolor=INK, labelsize=size)
    plane.grid(which="major", color=FAINT, linewidth=0.8)
    plane.set_axisbelow(True)
    for side, spine in plane.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)


def file_bytes(
    draw: Callable[[], Canvas],
    suffix: str,
    *,
    font_size: float = 10.0,
    tight: bool = False,
    width: float | None = None,
) -> bytes:
    """Return the bytes of a PNG, SVG or PDF file.

    Args:
        draw: makes the figure; called where no style of the user holds.
        font_size: of what has no size of its own, in points.
        tight: True cuts the page to what is on it.
        width: of a page that is cut in height alone, in points.
    """
    settings: Any = {
        "svg.hashsalt": "rooflens",
        "pdf.fonttype": 42,
        "font.family": "DejaVu Sans",
        "font.size": font_size,
    }
    # The defaults first: a style that the user has set must not move anything.
    with style.context("default"), mpl.rc_context(settings):
        file = io.BytesIO()
        canvas = draw()
        cut: Any = "tight" if tight else None
        if tight and width is not None:
            box = canvas.get_tightbbox()
            cut = Bbox.from_extents(0, box.y0 - _EDGE, width / 72, box.y1 + _EDGE)
        canvas.savefig(
            file,
            format=suffix,
            dpi=DPI,
            facecolor="white",
            bbox_inches=cut,
            metadata=_DATES.get(suffix),
        )
    return file.getvalue()
