"""How each mark of a figure looks: symbol, size and colours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.report.figures.palette import REACH, Symbol, device_colour, mark_shape
from rooflens.report.figures.roofline_data import Mark, RooflineData

_SMALL = 8.0
"""Below this diameter a wide rim would cover the colour."""
_WHOLE = 11.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMark:
    """A mark and how it looks, whatever draws it.

    Attributes:
        diameter: points across a circle of the same area.
        reach: points from the middle to the tip of the symbol.
        colour: that of its group.
        rim: the colour of its device where there are several; a hollow mark is nothing but its rim.
        rim_width: in points.
    """

    mark: Mark
    symbol: Symbol
    diameter: float
    reach: float
    colour: str
    rim: str
    rim_width: float


def drawn_marks(figure: RooflineData, colours: Mapping[str, str]) -> list[DrawnMark]:
    """Return how each mark looks. Its area is its share of time against the largest share on the figure."""
    largest = 22.0 if any(mark.whole for mark in figure.marks) else 12.0
    least = 3.8
    if figure.hierarchical:  # each piece is there several times, and its symbols must be told apart
        largest, least = 0.75 * largest, 6.0
    top = max((mark.share for mark in figure.marks if not mark.whole), default=1.0)
    drawn = []
    for mark in figure.marks:
        diameter = _WHOLE if mark.whole else max(least, largest * math.sqrt(mark.share / top))
        symbol = mark_shape(mark.source, mark.level, hierarchical=figure.hierarchical)
        several = mark.device is not None and len(figure.devices) > 1
        rim = colours[mark.group] if mark.whole else "#ffffff"
        drawn.append(
            DrawnMark(
                mark=mark,
                symbol=symbol,
                diameter=diameter,
                reach=REACH.get(symbol, 1.0) * diameter / 2,
                colour=colours[mark.group],
                rim=device_colour(mark.device, len(figure.devices)) if several and mark.device is not None else rim,
                rim_width=1.6 if mark.whole else 0.6 if diameter < _SMALL or not several else 1.2,
            )
        )
    return drawn
