"""A figure set on a page: where each label, legend row and note goes, in points, y upwards. Backends only draw it.

The page is as large as its content needs: the column beside the plane is as wide as its longest label, and the plane as
high as the column. So nothing covers anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    SMALL,
    CeilingLabel,
    LegendRow,
    TextLine,
    block_size,
    ceiling_labels,
    footnotes,
    legend,
    wrap,
)
from rooflens.report.figures.narrow_page import (
    IN_COLUMN,
    KEY_INDENT,
    ON_PHONE,
    WIDE,
    Measures,
    at_places,
    in_a_row,
    in_one_block,
    plane_height,
    short_label,
    small_label,
    small_legend,
    small_mark,
    together,
)
from rooflens.report.figures.palette import GREY, INK, OTHER, ceiling_dash, group_colours
from rooflens.report.figures.point_names import PointName, merged, names_of
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
LEFT, BELOW, EDGE = WIDE.left, WIDE.under, WIDE.edge
MOST_Y_TICKS, TICK_WIDTH = 8, 42.0
PHONE_MOST = LEFT + EDGE + PHONE[1] * (PHONE_WIDTH - LEFT - EDGE)
GUTTER = 18.0
"""Between plane and column: the room of the leaders."""
GAP = 3.0
RUG_WIDTH = 7.0
_MOST_UNPLACED = 4
_MOST_AVOIDED = 60
"""Marks and bands that leaders keep off: of more, all ways are full of them."""
_ABOVE = 6.0
"""Between the plane and the name of its upright axis."""
_SAMPLE = 24.0


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
        letters: size of the smallest type.
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
    letters: float = SMALL


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
    def of(cls, plane: Plane, marks: Sequence[DrawnMark], over: float) -> _Surroundings:
        """Return what is on the plane; a label may stand so far over its upper end, where no line bounds it."""
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
        frame = Box(left + GAP, box.bottom + GAP, box.right - GAP, box.top + over)
        return cls(plane, frame, spots, segments, segments[: len(figure.ceilings)])


def arrange(figure: RooflineData, stretch: Stretch = PAPER, width: float | None = None) -> Page:
    """Set `figure` on a page.

    Args:
        stretch: widths of the plane, as multiples of that on the page, at which labels inside it must not meet either.
        width: of the page in points; default: what the plane and the column need. On a page narrower than `NARROW` the
            column lies below the plane.
    """
    colours = group_colours([*figure.groups, OTHER])
    below = width is not None and width < NARROW
    size = WIDE if not below else ON_PHONE if stretch == PHONE else IN_COLUMN
    marks = [small_mark(drawn, size.marks) for drawn in drawn_marks(figure, colours)]
    labels = _labels(figure, size)
    rows = small_legend(legend(figure, colours), size)
    widths = [60.0, *(row.text.width + KEY_INDENT for row in rows), *(block_size(its.rows)[0] for its in labels)]
    beside_plane = size.edge if below else GUTTER + max(widths) + size.edge
    plane_width = PLANE_WIDTH if width is None else max(LEAST_WIDTH, width - size.left - beside_plane)
    width = size.left + plane_width + beside_plane
    room, small = width - 2 * size.edge, min(SMALL, size.letters)
    notes = [line for text in footnotes(figure, _MOST_UNPLACED) for line in wrap(text, small, room, colour=GREY)]
    head = _head(figure, room, size)
    bottom = size.edge + sum(line.height for line in notes) + size.under
    over = _ABOVE + sum(line.height for line in head) + size.edge
    keys = [(row, (0.0, max(widths)), n) for n, row in enumerate(rows)]
    keys = in_a_row(rows, room, dense=size.dense) if below else keys
    high = size.key * (max((down for _, _, down in keys), default=-1) + 1)

    def plane_box(need: float) -> Box:
        foot = bottom + (need + high if below else 0.0)
        height = plane_height(size, plane_width, width, foot + over) if below else max(PLANE_HEIGHT, need + high)
        return Box(size.left, foot, size.left + plane_width, foot + height)

    surroundings, listed, inside = _placed_ceilings(figure, labels, marks, plane_box, stretch, size, room)
    plane, taken = surroundings.plane, [spot for _, spot in inside]
    top, below_axis = plane.box.top + over - size.edge, bottom - size.under
    left, low = (size.edge, below_axis + 2 * GAP) if below else (plane.box.right + GUTTER, plane.box.bottom)
    under = Box(left + _SAMPLE, low + high, left + room, plane.box.bottom - size.under)
    return Page(
        figure=figure,
        width=width,
        height=top + size.edge,
        plane=plane.box,
        title=tuple(_stacked(head, top, size.edge)),
        beside=tuple(_listed(figure, listed, under) if below else _column(plane, listed, high + GAP)),
        within=(
            *(_ceiling_label(plane, label, spot) for label, spot in inside),
            *_point_labels(surroundings, marks, taken, stretch, size),
        ),
        legend=tuple(at_places(keys, left, low + high, size.key)),
        notes=tuple(_stacked(notes, below_axis, size.edge)),
        marks=tuple(marks),
        colours=colours,
        below=below,
        letters=min(SMALL, size.letters),
    )


def _labels(figure: RooflineData, size: Measures) -> list[CeilingLabel]:
    """Return the labels of ceilings in the letters of a page, and short where it is dense."""
    labels = list(ceiling_labels(figure))
    if not size.dense:
        return labels
    labels = [small_label(label, size.letters) for label in labels]
    return [short_label(label) for label in labels] if len(figure.devices) <= FEW_DEVICES else labels


def _placed_ceilings(
    figure: RooflineData,
    labels: Sequence[CeilingLabel],
    marks: Sequence[DrawnMark],
    plane_box: Callable[[float], Box],
    stretch: Stretch,
    size: Measures,
    room: float,
) -> tuple[_Surroundings, list[CeilingLabel], list[tuple[CeilingLabel, Spot]]]:
    """Return the plane, the labels that stand in the column, and those in the plane with their places.

    Args:
        plane_box: the plane of a page whose column of labels is so high.
        room: width of that column, where it is below the plane.
    """
    below, few = size is not WIDE, len(figure.devices) <= FEW_DEVICES
    column = [] if below else [label for label in labels if label.beside]
    inside = [label for label in labels if label not in column]
    while True:
        listed = together(column, len(figure.devices)) if below else column
        if size.dense and few and len(figure.devices) > 1:
            listed = [in_one_block(label, room - _SAMPLE) for label in listed]
        need = sum(block_size(label.rows)[1] + GAP for label in listed) + 4 * GAP
        surroundings = _Surroundings.of(Plane(figure, plane_box(need)), marks, GAP if size.dense else -GAP)
        spots = _ceiling_spots(surroundings, inside, stretch)
        if None not in spots:
            return surroundings, listed, [(o, spot) for o, spot in zip(inside, spots, strict=True) if spot is not None]
        # What finds no place in the plane goes into the column, for which the page grows.
        without = [label for label, spot in zip(inside, spots, strict=True) if spot is None]
        column += map(short_label, without) if below and few and not size.dense else without
        inside = [label for label, spot in zip(inside, spots, strict=True) if spot is not None]


def _head(figure: RooflineData, room: float, size: Measures) -> list[TextLine]:
    """Return the lines above the plane: title, subtitle, some room, and the name of the upright axis."""
    head = wrap(figure.title, size.title, room, bold=True)
    head += wrap(figure.subtitle, size.subtitle, room, colour=GREY) if figure.subtitle else []
    return [*head, *([] if size.dense else [TextLine("", SMALL)]), *wrap(figure.y.label, size.axis, room)]


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


def _stacked(rows: Sequence[TextLine], top: float, left: float) -> Iterator[TextBox]:
    """Yield lines one below the other, from the left edge of the page."""
    for row in rows:
        yield TextBox((row,), Box(left, top - row.height, left + row.width, top))
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
    surroundings: _Surroundings, marks: Sequence[DrawnMark], taken: Sequence[Spot], stretch: Stretch, size: Measures
) -> Iterator[TextBox]:
    """Yield labels of ridges and of the marks with the largest shares, as far as there is room.

    Marks that lie on one another are named together; where that is too long, each by itself.
    """
    plane = surroundings.plane
    kinds = names_of(plane.figure, plane.at, marks, size.letters, ridges_last=size.dense)
    tried = [joined for kind in kinds for joined in merged(kind, plane.at)]
    together = [name for name, _ in tried]
    spots = _point_spots(surroundings, together, taken, stretch)
    alone = [
        name for (_, names), spot in zip(tried, spots, strict=True) if spot is None for name in names[1:] and names
    ]
    found = [*taken, *(spot for spot in spots if spot is not None)]
    together += alone
    spots += _point_spots(surroundings, alone, found, stretch)
    for (row, dots), spot in zip(together, spots, strict=True):
        if spot is not None:
            middle = (spot.anchor, (spot.box.bottom + spot.box.top) / 2)
            named = min((dot for dot, _ in dots), key=lambda dot: math.dist(plane.at(dot), middle))
            yield TextBox((row,), spot.box, GREY, spot.leader, named)


def _point_spots(
    surroundings: _Surroundings, names: Sequence[PointName], taken: Sequence[Spot], stretch: Stretch
) -> list[Spot | None]:
    """Return a place for each name at one of its marks, None for a name that finds none."""
    wishes = []
    marks = [spot.box for spot in surroundings.marks] if len(surroundings.marks) <= _MOST_AVOIDED else []
    for row, dots in names:
        (point, radius), *also = ((surroundings.plane.at(dot), radius) for dot, radius in dots)
        wishes.append(around(point, radius, (row.width, row.height), surroundings.lines, also, marks))
    free = (surroundings.marks, surroundings.frame, GAP, stretch)
    return first_free(wishes, *free, labels=taken, walls=surroundings.roofs)
