"""Where labels go so that none covers another. Pure geometry, in points, y upwards.

Two problems, two functions: :func:`spread` sets labels one above the other in a column, as near as possible to the
lines they name; :func:`first_free` puts labels into an area with other things, each at its first free place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from rooflens.errors import InvalidValue

Segment = tuple[float, float, float, float]
"""x and y of the start, x and y of the end."""
Stretch = tuple[float, float]
"""The smallest and the largest width of a frame, as multiples of the width for which places are given."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with sides along the axes."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.top - self.bottom

    def meets(self, other: Box, gap: float = 0.0) -> bool:
        """True if the boxes share area, or come nearer than `gap`."""
        across = self.left < other.right + gap and other.left < self.right + gap
        return across and self.bottom < other.top + gap and other.bottom < self.top + gap

    def moved(self, dx: float) -> Box:
        """Return the box, shifted to the right."""
        return Box(self.left + dx, self.bottom, self.right + dx, self.top)

    def crossed_by(self, segment: Segment) -> bool:
        """True if the segment runs through the box (Liang and Barsky's clipping)."""
        x0, y0, x1, y1 = segment
        enter, leave = 0.0, 1.0
        for start, delta, low, high in ((x0, x1 - x0, self.left, self.right), (y0, y1 - y0, self.bottom, self.top)):
            if delta == 0:
                if not low < start < high:
                    return False
                continue
            near, far = sorted(((low - start) / delta, (high - start) / delta))
            enter, leave = max(enter, near), min(leave, far)
        return enter < leave


@dataclass(frozen=True, slots=True)
class Spot:
    """A box that belongs to a point: when the frame is stretched, it keeps its distance to the point at `anchor`.

    Attributes:
        leader: a line from the box to its point, where they are apart; it moves with the box.
        bridge: a line from the point to what the label names, where this is another point; it widens with the frame.
    """

    box: Box
    anchor: float
    leader: Segment | None = None
    bridge: Segment | None = None

    def meets(self, other: Spot, gap: float = 0.0, stretch: Stretch = (1.0, 1.0)) -> bool:
        """True if the boxes come nearer than `gap` at some width of the frame within `stretch`.

        As the frame widens, one box moves steadily against the other, by the difference of their anchors. They meet if
        this way crosses the shifts at which they share a column.
        """
        a, b = self.box, other.box
        if not (a.bottom < b.top + gap and b.bottom < a.top + gap):
            return False
        apart = self.anchor - other.anchor
        first, last = sorted(((stretch[0] - 1) * apart, (stretch[1] - 1) * apart))
        return first < b.right + gap - a.left and last > b.left - gap - a.right

    def inside(self, frame: Box, stretch: Stretch = (1.0, 1.0)) -> bool:
        """True if the box is inside the frame at every width within `stretch`; the frame's left edge is fixed."""
        moved = [(self.box.moved((scale - 1) * (self.anchor - frame.left)), scale) for scale in stretch]
        across = all(frame.left <= box.left and box.right <= frame.left + scale * frame.width for box, scale in moved)
        return across and self.box.bottom >= frame.bottom and self.box.top <= frame.top

    def swept(self, stretch: Stretch) -> Box:
        """Return a box such that a roof which is off it keeps off the text at every width in `stretch`.

        Whatever the scale, the line is at scale x its distance from the anchor: so the sides come nearer as it grows.
        """
        left, right = self.box.left - self.anchor, self.box.right - self.anchor
        return Box(
            self.anchor + min(left / scale for scale in stretch) - _OFF_WALLS,
            self.box.bottom - _OFF_WALLS,
            self.anchor + max(right / scale for scale in stretch) + _OFF_WALLS,
            self.box.top + _OFF_WALLS,
        )

    def tail(self) -> tuple[Spot, ...]:
        """Return the leader and the bridge as small boxes."""
        leader = [] if self.leader is None else _boxes_on(self.leader, _LEADER_PIECES)
        bridge = [] if self.bridge is None else along(self.bridge)
        return (*(Spot(box, self.anchor) for box in leader), *bridge)


_LEADER_PIECES, _PIECE = 6, 8.0
_OFF_WALLS = 1.0
"""Between a text and a roof: half the width of the line."""


def along(line: Segment) -> list[Spot]:
    """Return a line of the data as small boxes that stay where they are on it when the frame is stretched."""
    number = max(1, math.ceil(math.hypot(line[2] - line[0], line[3] - line[1]) / _PIECE))
    return [Spot(box, (box.left + box.right) / 2) for box in _boxes_on(line, number)]


def _boxes_on(segment: Segment, number: int) -> list[Box]:
    x0, y0, x1, y1 = segment
    xs = [x0 + (x1 - x0) * i / number for i in range(number + 1)]
    ys = [y0 + (y1 - y0) * i / number for i in range(number + 1)]
    return [Box(min(xs[i : i + 2]), min(ys[i : i + 2]), max(xs[i : i + 2]), max(ys[i : i + 2])) for i in range(number)]


def spread(wanted: Sequence[float], heights: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Return the centres of boxes in a column: in the order of `wanted`, `gap` apart, inside `low` to `high`.

    The squared distances to the wanted centres are the smallest possible. Subtracting what lies below each box turns
    "one above the other" into "not decreasing", which is isotonic regression; clipping its values keeps them in bounds.

    Args:
        wanted: centres, in any order.
        heights: of the boxes, in the same order.

    Raises:
        InvalidValue: the boxes do not fit between `low` and `high`.
    """
    if not wanted:
        return []
    from scipy.optimize import isotonic_regression

    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    stacked, below = [], 0.0
    for i in order:
        stacked.append(below + heights[i] / 2)
        below += heights[i] + gap
    slack = high - low - (below - gap)
    if slack < 0:
        raise InvalidValue(f"{len(wanted)} labels of {below - gap:.4g} points do not fit into {high - low:.4g}")
    fitted = isotonic_regression([wanted[i] - offset for i, offset in zip(order, stacked, strict=True)]).x
    centres = [0.0] * len(wanted)
    for i, value, offset in zip(order, fitted, stacked, strict=True):
        centres[i] = min(max(float(value), low), low + slack) + offset
    return centres


def first_free(
    wishes: Sequence[Iterable[Spot]],
    taken: Sequence[Spot],
    frame: Box,
    gap: float,
    stretch: Stretch = (1.0, 1.0),
    labels: Sequence[Spot] = (),
    walls: Sequence[Segment] = (),
) -> list[Spot | None]:
    """Return for each label the first of its wished places that is free, or None; earlier labels choose first.

    A place is free if the text keeps off everything, and if no leader runs through a text or another leader. A leader
    may run over a mark or a wall: it ends at one.

    Args:
        wishes: for each label its places, best first.
        taken: marks, off which labels must keep.
        frame: what labels must stay inside.
        gap: distance to everything else.
        stretch: widths of the frame in all of which a place must be free.
        labels: labels that have their place already.
        walls: lines of the data which no text may touch: roofs.
    """
    texts, tails = list(labels), [piece for label in labels for piece in label.tail()]

    chosen: list[Spot | None] = []
    for places in wishes:
        spot = next(
            (
                place
                for place in places
                if place.inside(frame, stretch)
                and not any(place.swept(stretch).crossed_by(wall) for wall in walls)
                and not any(place.meets(other, gap, stretch) for other in (*taken, *texts, *tails))
                and not any(piece.meets(other, 1.0, stretch) for piece in place.tail() for other in (*texts, *tails))
            ),
            None,
        )
        chosen.append(spot)
        if spot is not None:
            texts.append(spot)
            tails += spot.tail()
    return chosen


# Places around a point, best first: beside it, then above and below, then at the corners.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_RINGS = (0.0, 7.0, 16.0, 28.0, 42.0, 60.0, 82.0)
_CROSSING = 14.0
_THROUGH = 30.0
_OTHERS = 1.0
"""Cost of naming the next mark instead of the first."""
_NEAR, _BESIDE = 4.5, 8.0
"""Between the rim of a mark and its text at least; and at most where the two are seen as one without a leader."""


def around(
    point: tuple[float, float],
    radius: float,
    size: tuple[float, float],
    lines: Sequence[Segment] = (),
    also: Sequence[tuple[tuple[float, float], float]] = (),
    marks: Sequence[Box] = (),
) -> list[Spot]:
    """Return places for a label of a round mark, best first: near ones, and such that no line crosses the text.

    Args:
        also: other marks of the same name, with their radii.
        marks: those of any name; a leader through another one seems to name that.
    """
    width, height = size
    ranked: list[tuple[float, int, Spot]] = []
    dots = enumerate([(point, radius), *also])
    for (number, ((x, y), reach)), ring, (rank, (dx, dy)) in product(dots, _RINGS, enumerate(_SIDES)):
        far = reach + _NEAR + ring
        step = far if 0 in (dx, dy) else 0.75 * far
        left = x + dx * step - (1 - dx) / 2 * width
        bottom = y + dy * step - (1 - dy) / 2 * height
        box = Box(left, bottom, left + width, bottom + height)
        cost = ring + 0.5 * rank + _OTHERS * number + _CROSSING * sum(box.crossed_by(line) for line in lines)
        # From the nearest edge of the text to the rim of the mark, where they are not side by side.
        from_x, from_y = min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)
        away = math.hypot(from_x - x, from_y - y)
        rim = 1 - reach / away if away >= reach + _BESIDE else 0.0
        leader = (from_x, from_y, from_x + (x - from_x) * rim, from_y + (y - from_y) * rim) if rim else None
        if leader is not None:
            others = (mark for mark in marks if not (mark.left < x < mark.right and mark.bottom < y < mark.top))
            cost += _THROUGH * sum(mark.crossed_by(leader) for mark in others)
        ranked.append((cost, len(ranked), Spot(box, x, leader)))
    return [spot for _, _, spot in sorted(ranked, key=lambda item: item[:2])]


def beside(
    line: Segment,
    parallels: Sequence[Segment],
    size: tuple[float, float],
    lines: Sequence[Segment] = (),
    stretch: Stretch = (1.0, 1.0),
) -> list[Spot]:
    """Return places for a label of a rising line, best first: left or right of it and of all its parallels.

    A good place is two thirds up the line, has a short leader, and no line runs through the text.

    Args:
        parallels: rising lines of the same slope, as memory diagonals on logarithmic axes are.
        lines: all lines.
        stretch: widths of the frame; the wider it is, the further a flatter line reaches under a text beside it.
    """
    x0, y0, x1, y1 = line
    if y1 <= y0:
        return []
    width, height = size
    corner = stretch[1] * height / 2 * (x1 - x0) / (y1 - y0)
    count = max(1, min(_MOST_STEPS, int((y1 - y0) / _STEP)))
    ranked: list[tuple[float, int, Spot]] = []
    for i in range(count):
        up = (i + 0.5) / count
        y = y0 + up * (y1 - y0)
        crossed = (line, *(other for other in parallels if other[1] <= y <= other[3]))
        xs = [left + (y - low) / (high - low) * (right - left) for left, low, right, high in crossed]
        own, leftmost, rightmost = xs[0], min(xs), max(xs)
        for clear in _CLEARANCES:
            for left, outer in ((leftmost - corner - clear - width, leftmost), (rightmost + corner + clear, rightmost)):
                box = Box(left, y - height / 2, left + width, y + height / 2)
                from_x = box.right + 2.0 if left < own else left - 2.0
                # The label keeps to the outermost line, so that it stays beside all of them at any width.
                bridge = None if outer == own else (outer, y, own, y)
                cost = abs(from_x - own) + _HEIGHT_COST * abs(up - _PREFERRED)
                cost += _CROSSING * sum(box.crossed_by(other) for other in lines)
                ranked.append((cost, len(ranked), Spot(box, outer, (from_x, y, outer, y), bridge)))
    return [spot for _, _, spot in sorted(ranked, key=lambda item: item[:2])]


def along_flat(line: Segment, size: tuple[float, float], lines: Sequence[Segment] = ()) -> list[Spot]:
    """Return places for a label of a level line, best first: above or below it, near its right end, crossed by none."""
    (x0, y, x1, _), (width, height) = line, size
    ranked: list[tuple[float, int, Spot]] = []
    for step in range(_MOST_STEPS):
        right = x1 - step * (x1 - x0) / _MOST_STEPS
        for rank, bottom in enumerate((y + _NEAR / 2, y - _NEAR / 2 - height)):
            box = Box(right - width, bottom, right, bottom + height)
            cost = step + 3 * rank + _CROSSING * sum(box.crossed_by(other) for other in lines)
            ranked.append((cost, len(ranked), Spot(box, right)))
    return [spot for _, _, spot in sorted(ranked, key=lambda item: item[:2])]


_STEP, _MOST_STEPS = 6.0, 60
_PREFERRED, _HEIGHT_COST = 0.62, 60.0
_CLEARANCES = (5.0, 14.0, 28.0, 46.0)
