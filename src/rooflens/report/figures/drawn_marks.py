"""How each mark of a figure looks: symbol, size and colours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.report.figures.palette import LEVEL_SHAPES, REACH, SHAPES, Symbol, device_colour
from rooflens.report.figures.roofline_data import Mark, RooflineData, Whisker

_SMALL = 8.0
"""Below this diameter a wide rim would cover the colour."""
_WHOLE, _RIM = 11.0, 0.6
_LARGE, _SMALLEST = 12.0, 5.5
_ROOMY = 90
"""So many marks of whole cases have room at their full size."""


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
    """Return how each mark looks. Of pieces the area is the share of time against the largest share on the figure."""
    diameters = _diameters(figure)
    drawn = []
    for mark, diameter in zip(figure.marks, diameters, strict=True):
        levels = LEVEL_SHAPES if figure.hierarchical and mark.source == "counters" else {}
        symbol = levels.get(mark.level, SHAPES[mark.source])
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
                rim_width=1.6
                if mark.whole
                else _RIM * min(1.0, diameter / _SMALL)
                if diameter < _SMALL or not several
                else 1.2,
            )
        )
    return drawn


def middle_colour(whisker: Whisker, figure: RooflineData, colours: Mapping[str, str]) -> str:
    """Return the colour of the middle of a band: that of its device where there are several."""
    if whisker.device is None or len(figure.devices) < 2:
        return colours[whisker.group]
    return device_colour(whisker.device, len(figure.devices))


def _diameters(figure: RooflineData) -> list[float]:
    if figure.sizes == "batch":
        least, most = batch_ends(figure)
        return [least[1] if mark.batch is None else _between(least, most, mark.batch) for mark in figure.marks]
    if figure.sizes == "nothing":
        return [_LARGE * _crowded(figure)] * len(figure.marks)
    largest, smallest = (_LARGE if not any(mark.whole for mark in figure.marks) else 22.0), 3.8
    if figure.hierarchical:  # each piece is there several times, and its symbols must be told apart
        largest, smallest = 0.75 * largest, 6.0
    top = max((mark.share for mark in figure.marks if not mark.whole), default=1.0)
    return [_WHOLE if mark.whole else max(smallest, largest * math.sqrt(mark.share / top)) for mark in figure.marks]


def batch_ends(figure: RooflineData) -> tuple[tuple[int, float], tuple[int, float]]:
    """Return the smallest and the largest batch, with the diameters of their marks."""
    batches = [mark.batch for mark in figure.marks if mark.batch is not None]
    crowded = _crowded(figure)
    return (min(batches), _SMALLEST * crowded), (max(batches), _LARGE * crowded)


def _between(least: tuple[int, float], most: tuple[int, float], batch: int) -> float:
    """Return a diameter: equal steps for equal factors of the batch."""
    if most[0] <= least[0]:
        return most[1]
    return least[1] + (most[1] - least[1]) * math.log(batch / least[0]) / math.log(most[0] / least[0])


def _crowded(figure: RooflineData) -> float:
    """Return how much smaller marks are where they are many."""
    return max(0.65, min(1.0, math.sqrt(_ROOMY / max(1, len(figure.marks)))))
