"""Where the names of marks and lines stand on a chart, so that none covers another, a mark or a roof."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rooflens.report.charts.bar_rows import fitting
from rooflens.report.charts.chart import Plot, Series, shortened
from rooflens.report.escape import printable
from rooflens.report.figures.axes import XY, place
from rooflens.report.figures.label_places import Box, Segment, Spot, along_flat, around, beside, first_free, spread

_LETTER, _HIGH = 0.61, 1.25
"""Width of an average letter and height of a line, in sizes of type."""
_GAP, _RADIUS, _AWAY, _BAR = 1.0, 4.5, 12.0, 1.5
_MOST, _MOST_DOTS, _FEW = 40, 4, 3
_COLUMN = 8.0
"""Width of the narrowest column of names, in sizes of type."""


@dataclass(frozen=True, slots=True)
class ChartLabel:
    """A text whose left end and middle are at a point, and leaders from it to its marks; in points, y upwards."""

    text: str
    left: float
    middle: float
    leaders: tuple[Segment, ...]


def chart_labels(
    chart: Plot, width: float, height: float, size: float, measure: Callable[[str], float] | None = None
) -> list[ChartLabel]:
    """Return the labels that find a place on a plane of `width` x `height`: those of roofs first, then of marks.

    Args:
        size: of the type.
        measure: gives the width of a text; default: a guess, rather too wide.
    """
    wide = measure or (lambda text: _LETTER * size * len(text))

    def at(point: XY) -> XY:
        return width * place(chart.x, point[0]), height * place(chart.y, point[1])

    marks = [(at((dot.x, dot.y)), _RADIUS * dot.size, dot.label) for series in chart.series for dot in series.dots]
    ends = [
        (at((dot.x, dot.y)), _RADIUS * dot.size, dot.label)
        for series in chart.series
        if series.path and (dot := max(series.dots, key=lambda dot: dot.x, default=None)) is not None and dot.label
    ]
    left = max((x + radius for (x, _), radius, _ in ends), default=0.0) + _AWAY
    named = marks
    few_are_cut = 0 < len(ends) <= _FEW and any(wide(name) > width - left for *_, name in ends)
    if ends and (few_are_cut or width - left < _COLUMN * size):  # no room beside the lines: around their ends
        named, ends = ends, []
    roofs = [(series, line) for series in chart.series if series.tip for line in _lines(series, at)]
    walls = [line for _, line in roofs]
    lines = walls + [line for series in chart.series if not series.tip for line in _lines(series, at)]
    names: list[str] = []
    wishes: list[list[Spot]] = []
    for series, line in roofs:
        if series.label:
            box = (wide(series.label), _HIGH * size)
            names.append(series.label)
            wishes.append(along_flat(line, box, lines) if line[1] == line[3] else beside(line, [line], box, lines))
    for name, dots in [] if ends else _named(named):
        (point, radius), *also = dots
        names.append(name)
        wishes.append(around(point, radius, (wide(name), _HIGH * size), lines, also))
    taken = [Spot(Box(x - r, y - r, x + r, y + r), x) for (x, y), r, _ in marks]
    for (x0, y0), (x1, y1) in (map(at, dot.bar) for series in chart.series for dot in series.dots if dot.bar):
        bar = Box(min(x0, x1) - _BAR, min(y0, y1) - _BAR, max(x0, x1) + _BAR, max(y0, y1) + _BAR)
        taken.append(Spot(bar, bar.left))
    frame = Box(_GAP, _GAP, width - _GAP, height - _GAP)
    column = list(_column(ends, left, height, size * _HIGH, lambda name: fitting(name, width - left, wide)))
    half = size * _HIGH / 2
    for label in column:
        its = Box(label.left, label.middle - half, label.left + wide(label.text), label.middle + half)
        taken.append(Spot(its, label.left))
    spots = first_free(wishes, taken, frame, _GAP, walls=walls)
    return column + [
        ChartLabel(name, spot.box.left, (spot.box.bottom + spot.box.top) / 2, (spot.leader,) if spot.leader else ())
        for name, spot in zip(names, spots, strict=True)
        if spot is not None
    ]


def _lines(series: Series, at: Callable[[XY], XY]) -> Iterator[Segment]:
    for start, end in pairwise(series.path):
        yield (*at(start), *at(end))


End = tuple[XY, float, str]
"""Where a line ends, the radius of its mark there, and its name."""


def _joined(ends: Sequence[End]) -> list[list[End]]:
    """Return ends from the lowest on; those of one name between which no other is belong together."""
    from_below = sorted(ends, key=lambda end: end[0][1])
    return [list(its) for _, its in groupby(from_below, key=lambda end: end[2])]


def _column(
    ends: list[End], left: float, height: float, high: float, fitting: Callable[[str], str]
) -> Iterator[ChartLabel]:
    """Yield names right of the ends of lines, as near to them as possible; of too many each once, then the first ones.

    Lines of one name that end one above the other have it once.
    """
    kept = _joined(ends)
    most = int((height + _GAP) / (high + _GAP))
    if len(kept) > most:
        number = {id(end): n for n, end in enumerate(ends)}
        seen = Counter[str]()
        ranked = []
        for its in sorted(kept, key=lambda its: min(number[id(end)] for end in its)):
            ranked.append((seen[its[0][2]], its))
            seen[its[0][2]] += 1
        ranked.sort(key=lambda each: each[0])  # each name once, then those that were first
        kept = _joined([end for _, its in ranked[:most] for end in its])
    middles = [sum(y for (_, y), *_ in its) / len(its) for its in kept]
    centres = spread(middles, [high] * len(kept), 0.0, height, _GAP)
    for its, centre in zip(kept, centres, strict=True):
        leaders = tuple((left - _GAP, centre, x + radius, y) for (x, y), radius, _ in its)
        yield ChartLabel(fitting(printable(its[0][2])), left, centre, leaders)


def _named(marks: list[tuple[XY, float, str]]) -> list[tuple[str, list[tuple[XY, float]]]]:
    """Return each name with its marks: those first that stand furthest from the middle of all."""
    if not marks:
        return []
    middle = [sum(mark[0][axis] for mark in marks) / len(marks) for axis in (0, 1)]
    names: dict[str, list[tuple[XY, float]]] = {}
    for point, radius, label in sorted(marks, key=lambda mark: -math.dist(mark[0], middle)):
        if label:
            names.setdefault(shortened(printable(label)), []).append((point, radius))
    return [(name, dots[:_MOST_DOTS]) for name, dots in list(names.items())[:_MOST]]
