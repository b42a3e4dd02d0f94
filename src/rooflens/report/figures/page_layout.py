"""A figure set on a page: where each label, key and note goes, in points, y upwards. Backends only add ink.

The page is as large as its content needs: the column beside the plane is as wide as its longest label, and the plane as
high as the column. So nothing has to cover anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rooflens import units
from rooflens.report.case_names import shorten
from rooflens.report.escape import printable
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.label_places import Box, Segment, Spot, Stretch, along, around, beside, first_free, spread
from rooflens.report.figures.labels import (
    HEADING,
    SMALL,
    TITLE,
    CeilingLabel,
    Key,
    Words,
    block_size,
    ceiling_labels,
    footnotes,
    legend,
    wrap,
)
from rooflens.report.figures.palette import GREY, INK, REACH, ceiling_colour, mark_shape
from rooflens.report.figures.roofline_data import XY, Axis, CeilingLine, Figure, Mark

PLANE_WIDTH, PLANE_HEIGHT = 470.0, 370.0
LEFT, BELOW, EDGE = 58.0, 46.0, 14.0
GUTTER = 18.0
"""Between plane and column: the room of the leaders."""
GAP = 3.0
KEY_HEIGHT = 14.5
KEY_INDENT = 16.0
RUG_WIDTH = 7.0
SMALL_MARK = 8.0
"""Below this diameter a rim would cover the colour."""
_MOST_UNPLACED = 4
_MOST_NAMED, _SMALLEST_NAMED = 12, 0.15
# Spots to a decade: marks that are nearer than a few points share a label.
_SAME_SPOT = 40


@dataclass(frozen=True, slots=True)
class Placed:
    """Lines of text in a box, left-aligned.

    Attributes:
        leader: a line in `colour` from the box to what it names.
        anchor: the point of the data to which the label belongs; it moves with it.
        bridge: a line of the data that leads on from there to what the label names.
    """

    words: tuple[Words, ...]
    box: Box
    colour: str = INK
    leader: Segment | None = None
    anchor: XY = (1.0, 1.0)
    bridge: tuple[XY, XY] | None = None


@dataclass(frozen=True, slots=True)
class PlacedKey:
    """A row of the legend; the sign is centred at `x`, the text begins `KEY_INDENT` right of the row's left edge."""

    key: Key
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The page. `plane` is the area between the axes."""

    width: float
    height: float
    plane: Box
    title: tuple[Placed, ...]
    beside: tuple[Placed, ...]
    within: tuple[Placed, ...]
    keys: tuple[PlacedKey, ...]
    notes: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """The axes of a figure on the page."""

    figure: Figure
    box: Box

    def at(self, point: XY) -> XY:
        """A point of the data in points of the page."""
        x, y = self.figure.x, self.figure.y
        return (
            self.box.left + _fraction(x, point[0]) * self.box.width,
            self.box.bottom + _fraction(y, point[1]) * self.box.height,
        )

    def segment(self, start: XY, end: XY) -> Segment:
        """A line of the data on the page."""
        return (*self.at(start), *self.at(end))


def _fraction(axis: Axis, value: float) -> float:
    return (math.log10(value) - math.log10(axis.low)) / (math.log10(axis.high) - math.log10(axis.low))


def diameter(figure: Figure, mark: Mark) -> float:
    """Points across a mark: its area is its share of time against the largest share on the figure."""
    if mark.whole:
        return 11.0
    largest = 22.0 if any(other.whole for other in figure.marks) else 12.0
    least = 3.8
    if figure.hierarchical:  # each piece is there several times, and its shapes must be told apart
        largest, least = 0.75 * largest, 6.0
    return max(least, largest * math.sqrt(mark.share / max(other.share for other in figure.marks if not other.whole)))


def arrange(figure: Figure, stretch: Stretch = (1.0, 1.0)) -> Sheet:
    """Set `figure` on a page.

    Args:
        stretch: widths of the plane, as multiples of `PLANE_WIDTH`, at which labels inside it must not meet either.
    """
    labels, keys = ceiling_labels(figure), legend(figure)
    column = _column_width(labels, keys)
    width = LEFT + PLANE_WIDTH + GUTTER + column + EDGE
    notes, head = _notes(figure, width - 2 * EDGE), _head(figure, width - 2 * EDGE)
    bottom = EDGE + sum(line.height for line in notes) + BELOW
    column_labels = [label for label in labels if label.beside]
    inside = [label for label in labels if not label.beside]
    while True:
        need = sum(block_size(label.words)[1] + GAP for label in column_labels) + KEY_HEIGHT * len(keys) + 4 * GAP
        plane = Plane(figure, Box(LEFT, bottom, LEFT + PLANE_WIDTH, bottom + max(PLANE_HEIGHT, need)))
        spots = _memory_spots(plane, inside, stretch)
        if all(spot is not None for spot in spots):
            break
        # What finds no place in the plane goes into the column, for which the page grows.
        column_labels += [label for label, spot in zip(inside, spots, strict=True) if spot is None]
        inside = [label for label, spot in zip(inside, spots, strict=True) if spot is not None]
    top = plane.box.top + EDGE + sum(line.height for line in head)
    within = _memory_labels(plane, inside, spots)
    taken = [spot for spot in spots if spot is not None]
    return Sheet(
        width=width,
        height=top + EDGE,
        plane=plane.box,
        title=tuple(_lines(head, EDGE, top)),
        beside=tuple(_column(plane, column_labels, KEY_HEIGHT * len(keys) + GAP)),
        within=(*within, *_point_labels(plane, taken, stretch)),
        keys=tuple(_key_rows(plane, keys, column)),
        notes=tuple(_lines(notes, EDGE, bottom - BELOW)),
    )


def _column_width(labels: Sequence[CeilingLabel], keys: Sequence[Key]) -> float:
    texts = [block_size(label.words)[0] for label in labels]
    rows = [key.words.width + KEY_INDENT for key in keys]
    return max([*texts, *rows, 60.0])


def _head(figure: Figure, width: float) -> list[Words]:
    title = wrap(figure.title, TITLE, width, bold=True)
    return title + (wrap(figure.subtitle, HEADING, width, colour=GREY) if figure.subtitle else [])


def _notes(figure: Figure, width: float) -> list[Words]:
    """Notes and what could not be placed, wrapped to the width of the page."""
    return [line for text in footnotes(figure, _MOST_UNPLACED) for line in wrap(text, SMALL, width, colour=GREY)]


def _lines(lines: Sequence[Words], left: float, top: float) -> Iterator[Placed]:
    for line in lines:
        yield Placed((line,), Box(left, top - line.height, left + line.width, top))
        top -= line.height


def _key_rows(plane: Plane, keys: Sequence[Key], width: float) -> Iterator[PlacedKey]:
    left = plane.box.right + GUTTER
    top = plane.box.bottom + KEY_HEIGHT * len(keys)
    for row, key in enumerate(keys):
        high = top - row * KEY_HEIGHT
        yield PlacedKey(key, Box(left, high - KEY_HEIGHT, left + width, high))


def _column(plane: Plane, labels: Sequence[CeilingLabel], below: float) -> Iterator[Placed]:
    """Labels beside the plane, as near as possible to the height at which their lines end."""
    sizes = [block_size(label.words) for label in labels]
    ends = [plane.at(label.line.end) for label in labels]
    low, high = plane.box.bottom + below, plane.box.top + GAP
    centres = spread([y for _, y in ends], [height for _, height in sizes], low, high, GAP)
    left = plane.box.right + GUTTER
    for label, (width, height), (x, y), centre in zip(labels, sizes, ends, centres, strict=True):
        reaches = x > plane.box.right - 1.0
        yield Placed(
            label.words,
            Box(left, centre - height / 2, left + width, centre + height / 2),
            _colour(plane.figure, label.line),
            (left - 3.0, centre, plane.box.right, y) if reaches else None,
            label.line.end,
        )


def _memory_spots(plane: Plane, labels: Sequence[CeilingLabel], stretch: Stretch) -> list[Spot | None]:
    """Places beside the memory diagonals."""
    lines = _lines_of(plane)
    diagonals = [plane.segment(line.start, line.end) for line in plane.figure.ceilings if line.kind == "memory"]
    wishes = [
        beside(plane.segment(label.line.start, label.line.end), diagonals, block_size(label.words), lines, stretch)
        for label in labels
    ]
    ties = [spot for tie in plane.figure.ties for spot in along(plane.segment(tie.start, tie.end))]
    return first_free(wishes, [*_marks(plane), *ties], _frame(plane), GAP, stretch)


def _memory_labels(plane: Plane, labels: Sequence[CeilingLabel], spots: Sequence[Spot | None]) -> Iterator[Placed]:
    for label, spot in zip(labels, spots, strict=True):
        if spot is not None:
            anchor, named = _at_height(plane, label.line, spot)
            yield Placed(
                label.words,
                spot.box,
                _colour(plane.figure, label.line),
                spot.leader,
                anchor,
                None if spot.bridge is None else (anchor, named),
            )


def _colour(figure: Figure, line: CeilingLine) -> str:
    return ceiling_colour(line.device, len(figure.devices), line.resource, hierarchical=figure.hierarchical)


def _at_height(plane: Plane, line: CeilingLine, spot: Spot) -> tuple[XY, XY]:
    """The anchor of a label, and the point of its diagonal at the same height."""
    x, y = plane.figure.x, plane.figure.y
    up = ((spot.box.bottom + spot.box.top) / 2 - plane.box.bottom) / plane.box.height
    right = (spot.anchor - plane.box.left) / plane.box.width
    height = y.low * (y.high / y.low) ** up
    return (x.low * (x.high / x.low) ** right, height), (height / line.rate, height)


def _lines_of(plane: Plane) -> list[Segment]:
    figure = plane.figure
    ends = [(line.start, line.end) for line in figure.ceilings]
    ends += [(link.start, link.end) for link in figure.links]
    ends += [(tie.start, tie.end) for tie in figure.ties]
    return [plane.segment(start, end) for start, end in ends]


def _frame(plane: Plane) -> Box:
    left = plane.box.left + (RUG_WIDTH if plane.figure.rug else 0.0)
    return Box(left + GAP, plane.box.bottom + GAP, plane.box.right - GAP, plane.box.top - GAP)


def _marks(plane: Plane) -> list[Spot]:
    """What labels must keep off: every mark, ring included."""
    found = []
    for mark in plane.figure.marks:
        x, y = plane.at((mark.x, mark.y))
        radius = _reach(plane.figure, mark) + (4.0 if mark.above_roof else 1.0)
        found.append(Spot(Box(x - radius, y - radius, x + radius, y + radius), x))
    return found


def _reach(figure: Figure, mark: Mark) -> float:
    """From the middle of a mark to its tip."""
    shape = mark_shape(mark.source, mark.level, hierarchical=figure.hierarchical)
    return REACH.get(shape, 1.0) * diameter(figure, mark) / 2


def _point_labels(plane: Plane, taken: Sequence[Spot], stretch: Stretch) -> Iterator[Placed]:
    """Labels of ridges and of the marks with the largest shares, as far as there is room."""
    figure = plane.figure
    lines = _lines_of(plane)
    names = [*_ridge_words(figure), *(_piece_words(figure) if figure.hierarchical else _mark_words(figure))]
    wishes: list[list[Spot]] = []
    named: dict[Spot, XY] = {}
    for name in names:
        size = (name.words.width, name.words.height)
        places = [(spot, dot) for dot, radius in name.dots for spot in around(plane.at(dot), radius, size, lines)]
        named |= dict(places)
        wishes.append([spot for spot, _ in places])
    spots = first_free(wishes, _marks(plane), _frame(plane), GAP, stretch, labels=taken)
    for name, spot in zip(names, spots, strict=True):
        if spot is not None:
            yield Placed((name.words,), spot.box, GREY, spot.leader, named[spot])


@dataclass(frozen=True, slots=True)
class _Name:
    """Words for one of some dots, the first of which is the best: points of the data, and radii on the page."""

    words: Words
    dots: tuple[tuple[XY, float], ...]


def _ridge_words(figure: Figure) -> list[_Name]:
    """Ridges with their intensity; those of several levels would fill the plane."""
    if len(figure.devices) > FEW_DEVICES or figure.hierarchical:
        return []
    found = dict.fromkeys((ridge.x, ridge.y) for ridge in figure.ridges)
    return [_Name(Words(f"ridge {units.show(x, 'FLOP/B')}", SMALL, GREY), (((x, y), 3.0),)) for x, y in found]


def _piece_words(figure: Figure) -> list[_Name]:
    """The pieces of a figure of several levels: each is named once, right of its marks or else at another of them."""
    rows: dict[tuple[object, ...], list[Mark]] = {}
    for mark in figure.marks:
        rows.setdefault((mark.label, mark.device, mark.source, mark.whole, mark.y), []).append(mark)
    found = []
    for marks in sorted(rows.values(), key=lambda marks: (not marks[0].whole, -marks[0].share)):
        ordered = sorted(marks, key=lambda mark: -mark.x)
        found.append(
            _Name(
                Words(shorten(printable(marks[0].label)), SMALL),
                tuple(((mark.x, mark.y), _reach(figure, mark)) for mark in (*ordered[:1], *reversed(ordered[1:]))),
            )
        )
    return found


def _mark_words(figure: Figure) -> list[_Name]:
    """The marks to name, largest share of time first; those at one spot are named together.

    An estimated and an observed point are named once, and so is a case on many devices, where it is quickest: there
    the rims tell the devices.
    """
    many = len(figure.devices) > FEW_DEVICES
    alike: dict[tuple[object, ...], list[Mark]] = {}
    for mark in figure.marks:
        place = (round(_SAME_SPOT * math.log10(mark.x)), round(_SAME_SPOT * math.log10(mark.y)))
        alike.setdefault((place, mark.group, mark.source, mark.device, mark.whole), []).append(mark)
    shares = [(sum(mark.share for mark in marks), marks) for marks in alike.values()]
    # Numbers are short and explained below the figure: all of them are wanted.
    part = 0.0 if figure.listing else _SMALLEST_NAMED
    least = part * max((share for share, marks in shares if not marks[0].whole), default=0.0)
    found: dict[tuple[str, int | None], _Name] = {}
    for share, marks in sorted(
        shares, key=lambda item: (not item[1][0].whole, -item[0], -item[1][0].y if many else 0.0)
    ):
        first = max(marks, key=lambda mark: mark.share)
        if first.whole or share >= least:
            more = f" +{len(marks) - 1} alike" if len(marks) > 1 else ""
            words = Words(shorten(printable(first.label)) + more, SMALL)
            key = (first.label, None if many else first.device)
            found.setdefault(key, _Name(words, (((first.x, first.y), _reach(figure, first)),)))
    return list(found.values())[: None if figure.listing else _MOST_NAMED]
