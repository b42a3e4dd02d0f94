"""A figure set on a page: where each label, legend row and note goes, in points, y upwards. Backends only draw it.

The page is as large as its content needs: the column beside the plane is as wide as its longest label, and the plane as
high as the column. So nothing covers anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rooflens import units
from rooflens.report.figures.axes import XY, place
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.drawn_marks import DrawnMark, drawn_marks
from rooflens.report.figures.label_places import (
    Box,
    Segment,
    Spot,
    Stretch,
    along,
    along_flat,
    around,
    beside,
    first_free,
    spread,
)
from rooflens.report.figures.labels import (
    HEADING,
    SMALL,
    TITLE,
    CeilingLabel,
    LegendRow,
    TextLine,
    block_size,
    ceiling_labels,
    footnotes,
    legend,
    wrap,
)
from rooflens.report.figures.palette import GREY, INK, OTHER, ceiling_dash, group_colours
from rooflens.report.figures.point_names import case_names, piece_names, point_names, trail_names
from rooflens.report.figures.roofline_data import RooflineData

PAPER: Stretch = (1.0, 1.0)
SCREEN: Stretch = (0.75, 2.0)
"""The narrowest and the widest plane on a screen, as multiples of that on paper."""
PHONE: Stretch = (1.0, 2.5)
"""The same of a page of `PHONE_WIDTH`, whose plane is shown as wide as the window, up to `PHONE_MOST`."""
PLANE_WIDTH, PLANE_HEIGHT = 470.0, 370.0
NARROW, PHONE_WIDTH = 480.0, 240.0
"""Points: a page that is narrower has its column below the plane; and the width of the narrowest phone."""
LEAST_WIDTH = 120.0
"""Of a plane: a page cannot be narrower than that needs."""
_LEAST_HEIGHT, _NARROW_SHAPE = 250.0, 0.95
_LEAST_ON_PAPER, _SHAPE_ON_PAPER = 150.0, 0.85
"""Of a narrow plane: its least height, and its height against its width; on paper a page is about as high as wide."""
LEFT, BELOW, EDGE = 68.0, 46.0, 14.0
MOST_Y_TICKS, TICK_WIDTH = 8, 42.0
PHONE_MOST = LEFT + EDGE + PHONE[1] * (PHONE_WIDTH - LEFT - EDGE)
GUTTER = 18.0
"""Between plane and column: the room of the leaders."""
GAP = 3.0
KEY_HEIGHT, _LOW_KEY = 14.5, 12.5
KEY_INDENT = 16.0
"""From the left edge of a legend row to its text."""
_BETWEEN_KEYS = 8.0
RUG_WIDTH = 7.0
_MOST_UNPLACED = 4
_SAMPLE = 24.0


_Key = tuple[LegendRow, tuple[float, float], int]
"""A row of the legend, where it begins and ends from the left, and its line from the top."""


@dataclass(frozen=True, slots=True)
class TextBox:
    """Lines of text in a box, left-aligned.

    Attributes:
        leader: a line in `colour` from the box to what it names.
        anchor: the point of the data to which the label belongs; it moves with it.
        bridge: a line of the data that leads on from there to what the label names.
        dash: of the leader, where it is a piece of the line itself; () is a whole line.
    """

    rows: tuple[TextLine, ...]
    box: Box
    colour: str = INK
    leader: Segment | None = None
    anchor: XY = (1.0, 1.0)
    bridge: tuple[XY, XY] | None = None
    dash: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A figure on its page.

    Attributes:
        plane: the area between the axes.
        beside, within: labels in the column beside the plane, and in it.
        colours: of the groups.
        below: the column lies below the plane, not beside it.
    """

    figure: RooflineData
    width: float
    height: float
    plane: Box
    title: tuple[TextBox, ...]
    beside: tuple[TextBox, ...]
    within: tuple[TextBox, ...]
    legend: tuple[tuple[LegendRow, Box], ...]
    notes: tuple[TextBox, ...]
    marks: tuple[DrawnMark, ...]
    colours: dict[str, str]
    below: bool = False


@dataclass(frozen=True, slots=True)
class Plane:
    """The axes of a figure on the page."""

    figure: RooflineData
    box: Box

    def at(self, point: XY) -> XY:
        """Return a point of the data in points of the page."""
        x, y = place(self.figure.x, point[0]), place(self.figure.y, point[1])
        return self.box.left + x * self.box.width, self.box.bottom + y * self.box.height


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What labels in a plane must keep off: its frame, marks with rings, bands, roofs, other lines if possible."""

    plane: Plane
    frame: Box
    marks: list[Spot]
    lines: list[Segment]
    roofs: list[Segment]

    @classmethod
    def of(cls, plane: Plane, marks: Sequence[DrawnMark]) -> _Surroundings:
        figure, box = plane.figure, plane.box
        left = box.left + (RUG_WIDTH if figure.rug else 0.0)
        spots = []
        for drawn in marks:
            x, y = plane.at((drawn.mark.x, drawn.mark.y))
            radius = drawn.reach + (4.0 if drawn.mark.above_roof else 1.0)
            spots.append(Spot(Box(x - radius, y - radius, x + radius, y + radius), x))
        for whisker in figure.whiskers:
            (x, low), (_, high) = plane.at(whisker.start), plane.at(whisker.end)
            spots.append(Spot(Box(x - 3.0, low, x + 3.0, high), x))
        ends = [(line.start, line.end) for lines in (figure.ceilings, figure.links, figure.ties) for line in lines]
        ends += [ends for trail in figure.trails for ends in pairwise(trail.points)]
        segments = [(*plane.at(start), *plane.at(end)) for start, end in ends]
        frame = Box(left + GAP, box.bottom + GAP, box.right - GAP, box.top - GAP)
        return cls(plane, frame, spots, segments, segments[: len(figure.ceilings)])


def arrange(figure: RooflineData, stretch: Stretch = PAPER, width: float | None = None) -> Page:
    """Set `figure` on a page.

    Args:
        stretch: widths of the plane, as multiples of that on the page, at which labels inside it must not meet either.
        width: of the page in points; default: what the plane and the column need. On a page narrower than `NARROW` the
            column lies below the plane.
    """
    colours = group_colours([*figure.groups, OTHER])
    marks = drawn_marks(figure, colours)
    labels, rows = list(ceiling_labels(figure)), legend(figure, colours)
    below, few = width is not None and width < NARROW, len(figure.devices) <= FEW_DEVICES
    rows, line = (_small(rows), _LOW_KEY) if below else (rows, KEY_HEIGHT)
    widths = [60.0, *(row.text.width + KEY_INDENT for row in rows), *(block_size(its.rows)[0] for its in labels)]
    beside_plane = EDGE if below else GUTTER + max(widths) + EDGE
    plane_width = PLANE_WIDTH if width is None else max(LEAST_WIDTH, width - LEFT - beside_plane)
    width = LEFT + plane_width + beside_plane
    room = width - 2 * EDGE
    notes = [line for text in footnotes(figure, _MOST_UNPLACED) for line in wrap(text, SMALL, room, colour=GREY)]
    head = _head(figure, room, below=below)
    bottom = EDGE + sum(line.height for line in notes) + BELOW
    column = [] if below else [label for label in labels if label.beside]
    inside = [label for label in labels if label not in column]
    height = _height(plane_width, stretch) if below else PLANE_HEIGHT
    keys = _in_a_row(rows, room) if below else [(row, (0.0, max(widths)), n) for n, row in enumerate(rows)]
    high = max((down for _, _, down in keys), default=-1) + 1
    while True:
        listed = _together(column, len(figure.devices)) if below else column
        need = sum(block_size(label.rows)[1] + GAP for label in listed) + line * high + 4 * GAP
        foot = bottom + (need if below else 0.0)
        plane = Plane(figure, Box(LEFT, foot, LEFT + plane_width, foot + (height if below else max(height, need))))
        around_labels = _Surroundings.of(plane, marks)
        spots = _ceiling_spots(around_labels, inside, stretch)
        if None not in spots:
            break
        # What finds no place in the plane goes into the column, for which the page grows.
        without = [label for label, spot in zip(inside, spots, strict=True) if spot is None]
        column += map(_short, without) if below and few else without
        inside = [label for label, spot in zip(inside, spots, strict=True) if spot is not None]
    taken = [spot for spot in spots if spot is not None]
    top = plane.box.top + 6.0 + sum(line.height for line in head)
    left, low = (EDGE, bottom - BELOW + 2 * GAP) if below else (plane.box.right + GUTTER, plane.box.bottom)
    under = Box(left + _SAMPLE, low + line * high, left + room, plane.box.bottom - BELOW)
    return Page(
        figure=figure,
        width=width,
        height=top + EDGE,
        plane=plane.box,
        title=tuple(_stacked(head, top)),
        beside=tuple(_listed(figure, listed, under) if below else _column(plane, column, KEY_HEIGHT * len(rows) + GAP)),
        within=(
            *(_ceiling_label(plane, label, spot) for label, spot in zip(inside, taken, strict=True)),
            *_point_labels(around_labels, marks, taken, stretch),
        ),
        legend=tuple(_keys(keys, left, low + line * high, line)),
        notes=tuple(_stacked(notes, bottom - BELOW)),
        marks=tuple(marks),
        colours=colours,
        below=below,
    )


def _height(width: float, stretch: Stretch) -> float:
    """Return the height of a narrow plane."""
    least, shape = (_LEAST_HEIGHT, _NARROW_SHAPE) if stretch == PHONE else (_LEAST_ON_PAPER, _SHAPE_ON_PAPER)
    return min(PLANE_HEIGHT, max(least, shape * width))


def _small(rows: Sequence[LegendRow]) -> list[LegendRow]:
    """Return the rows of a legend in small type."""
    return [replace(row, text=replace(row.text, size=SMALL)) for row in rows]


def _head(figure: RooflineData, room: float, *, below: bool) -> list[TextLine]:
    """Return the lines above the plane: title, subtitle, some room, and the name of the upright axis."""
    head = wrap(figure.title, HEADING if below else TITLE, room, bold=True)
    head += wrap(figure.subtitle, SMALL if below else HEADING, room, colour=GREY) if figure.subtitle else []
    return [*head, TextLine("", SMALL), *wrap(figure.y.label, HEADING, room)]


def _short(label: CeilingLabel) -> CeilingLabel:
    """Return the label with rate and origin in one line."""
    *before, rate, origin = label.rows
    return replace(label, rows=(*before, replace(rate, text=f"{rate.text}, {origin.text}", size=SMALL)))


def _in_a_row(rows: Sequence[LegendRow], room: float) -> list[_Key]:
    """Return the rows of the legend one beside the other; a heading, and what has no room, begins a new line."""
    keys: list[_Key] = []
    left, down = 0.0, -1
    for row in rows:
        width = row.text.width + (0.0 if row.kind == "heading" else KEY_INDENT)
        if down < 0 or row.kind == "heading" or left + width > room:
            left, down = 0.0, down + 1
        keys.append((row, (left, left + width), down))
        left += width + _BETWEEN_KEYS
    return keys


def _keys(keys: Sequence[_Key], left: float, top: float, line: float) -> Iterator[tuple[LegendRow, Box]]:
    """Yield the rows of the legend at their places on the page, on lines of a height."""
    for row, (start, end), down in keys:
        yield row, Box(left + start, top - (down + 1) * line, left + end, top - down * line)


def _together(labels: Sequence[CeilingLabel], devices: int) -> list[CeilingLabel]:
    """Return the labels of each of several devices as one, below its name."""
    if devices < 2:
        return list(labels)
    merged: dict[TextLine, CeilingLabel] = {}
    for label in labels:
        first, *rest = label.rows
        before = merged.get(first)
        merged[first] = label if before is None else replace(before, rows=(*before.rows, *rest))
    return list(merged.values())


def _listed(figure: RooflineData, labels: Sequence[CeilingLabel], under: Box) -> Iterator[TextBox]:
    """Yield labels one below the other below the plane, each behind a piece of its line."""
    top = under.top
    for label in labels:
        dash = ceiling_dash(
            label.line.device, len(figure.devices), label.line.resource, hierarchical=figure.hierarchical
        )
        width, height = block_size(label.rows)
        middle = top - height / 2
        yield TextBox(
            label.rows,
            Box(under.left, top - height, under.left + width, top),
            label.colour,
            (under.left - _SAMPLE, middle, under.left - 4.0, middle),
            label.line.end,
            dash=dash,
        )
        top -= height + GAP


def _stacked(rows: Sequence[TextLine], top: float) -> Iterator[TextBox]:
    """Yield lines one below the other, from the left edge of the page."""
    for row in rows:
        yield TextBox((row,), Box(EDGE, top - row.height, EDGE + row.width, top))
        top -= row.height


def _column(plane: Plane, labels: Sequence[CeilingLabel], below: float) -> Iterator[TextBox]:
    """Yield labels beside the plane, as near as possible to the height at which their lines end."""
    sizes = [block_size(label.rows) for label in labels]
    ends = [plane.at(label.line.end) for label in labels]
    low, high = plane.box.bottom + below, plane.box.top + GAP
    centres = spread([y for _, y in ends], [height for _, height in sizes], low, high, GAP)
    left = plane.box.right + GUTTER
    for label, (width, height), (x, y), centre in zip(labels, sizes, ends, centres, strict=True):
        box = Box(left, centre - height / 2, left + width, centre + height / 2)
        leader = (left - 3.0, centre, plane.box.right, y) if x > plane.box.right - 1.0 else None
        yield TextBox(label.rows, box, label.colour, leader, label.line.end)


def _ceiling_spots(surroundings: _Surroundings, labels: Sequence[CeilingLabel], stretch: Stretch) -> list[Spot | None]:
    """Return places beside the memory diagonals and above or below the flats, None for a label that finds none."""
    plane = surroundings.plane
    ends = [(label, (*plane.at(label.line.start), *plane.at(label.line.end))) for label in labels]
    diagonals = [
        (*plane.at(line.start), *plane.at(line.end)) for line in plane.figure.ceilings if line.kind == "memory"
    ]
    lines = surroundings.lines
    wishes = [
        beside(line, diagonals, block_size(label.rows), lines, stretch)
        if label.line.kind == "memory"
        else along_flat(line, block_size(label.rows), lines)
        for label, line in ends
    ]
    ties = [spot for tie in plane.figure.ties for spot in along((*plane.at(tie.start), *plane.at(tie.end)))]
    taken = [*surroundings.marks, *ties]
    return first_free(wishes, taken, surroundings.frame, GAP, stretch, walls=surroundings.roofs)


def _ceiling_label(plane: Plane, label: CeilingLabel, spot: Spot) -> TextBox:
    """Return a label bound to the outermost diagonal, bridged to its own at the same height; or to its flat."""
    x, y = plane.figure.x, plane.figure.y
    right = (spot.anchor - plane.box.left) / plane.box.width
    at_x = x.low * (x.high / x.low) ** right
    if label.line.kind == "compute":
        return TextBox(label.rows, spot.box, label.colour, spot.leader, (at_x, label.line.rate))
    up = ((spot.box.bottom + spot.box.top) / 2 - plane.box.bottom) / plane.box.height
    anchor = (at_x, y.low * (y.high / y.low) ** up)
    bridge = None if spot.bridge is None else (anchor, (anchor[1] / label.line.rate, anchor[1]))
    return TextBox(label.rows, spot.box, label.colour, spot.leader, anchor, bridge)


def _point_labels(
    surroundings: _Surroundings, marks: Sequence[DrawnMark], taken: Sequence[Spot], stretch: Stretch
) -> Iterator[TextBox]:
    """Yield labels of ridges and of the marks with the largest shares, as far as there is room."""
    plane, at = surroundings.plane, surroundings.plane.at
    figure = plane.figure
    if figure.hierarchical:
        names = piece_names(figure, marks)
    else:
        few = len(figure.devices) <= FEW_DEVICES
        ridges = dict.fromkeys((ridge.x, ridge.y) for ridge in figure.ridges if few)
        names = [(TextLine(f"ridge {units.show(x, 'FLOP/B')}", SMALL, GREY), [((x, y), 3.0)]) for x, y in ridges]
        on_trails = {point for trail in figure.trails for point in trail.points}
        others = [drawn for drawn in marks if (drawn.mark.x, drawn.mark.y) not in on_trails]
        names += trail_names(figure, marks)
        names += point_names(figure, others) if figure.sizes == "share" else case_names(at, others)
    wishes = []
    for row, dots in names:
        (point, radius), *also = ((at(dot), radius) for dot, radius in dots)
        wishes.append(around(point, radius, (row.width, row.height), surroundings.lines, also))
    free = (surroundings.marks, surroundings.frame, GAP, stretch)
    spots = first_free(wishes, *free, labels=taken, walls=surroundings.roofs)
    for (row, dots), spot in zip(names, spots, strict=True):
        if spot is not None:
            middle = (spot.anchor, (spot.box.bottom + spot.box.top) / 2)
            named = min((dot for dot, _ in dots), key=lambda dot: math.dist(at(dot), middle))
            yield TextBox((row,), spot.box, GREY, spot.leader, named)
