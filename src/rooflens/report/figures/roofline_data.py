"""A roofline before anything draws it: lines, marks and axes in the units of the data.

Every type here is plain data, so that a figure is tested and printed without a pixel. A backend draws it and decides
nothing about its content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rooflens.records import Source
from rooflens.report.figures.axes import XY, Axis, check_drawable

LEVELS_TITLE = "memory level"
"""What colours tell on a roofline of several levels, unless they tell families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingLine:
    """The visible segment of one ceiling of one device.

    Attributes:
        device: index into `RooflineData.devices`; colour and dash follow it.
        resource: ``dram``, ``matmul.bf16`` ...
        rate: B/s for memory, FLOP/s for compute.
        origin: where the rate comes from, and whether it was checked.
        start, end: the segment, left to right.
    """

    device: int
    kind: Literal["memory", "compute"]
    resource: str
    rate: float
    origin: str
    start: XY
    end: XY


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """Where a compute ceiling meets the diagonal of a level: from this intensity on the level no longer limits."""

    device: int
    resource: str
    level: str = "dram"
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One piece of work with a time, at one memory level.

    Attributes:
        x: FLOP per byte of `level`.
        y: FLOP/s: work over the bound (estimate) or over the measured time.
        share: share of the time of its case, 0 to 1.
        group: what the colour tells, one of `RooflineData.groups`; the level where a figure has several.
        source: estimate, measure, counters or profile; told by the symbol, as is the level where there are several.
        device: index into `RooflineData.devices`, None where the device is unknown or not drawn.
        above_roof: quicker than the units and this level of its device allow.
        too_large: its case does not fit into the memory of its device; it is crossed out.
        whole: a whole case beside its own parts; drawn hollow, and its area means nothing.
        batch: that of its case.
    """

    x: float
    y: float
    share: float
    group: str
    source: Source
    device: int | None
    label: str
    hover: tuple[str, ...]
    above_roof: bool = False
    too_large: bool = False
    whole: bool = False
    level: str = "dram"
    batch: int | None = None

    def __post_init__(self) -> None:
        check_drawable(self.label, self.x, self.y)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A line from the leftmost to the rightmost mark of one piece of work with one time, at several memory levels."""

    start: XY
    end: XY


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A line between the estimated and the observed mark of the same piece."""

    group: str
    start: XY
    end: XY


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """A line through the marks of one step while one number of its case grows.

    Attributes:
        number: what grows: batch, img_size or seq_len.
        group: that of its marks, "" where they have several.
        points: its marks, in the order of the number.
        name: what tells it from other trails, "" where it is the only one.
        steps: the number at each mark, as text.
        device: index into `RooflineData.devices`, None where it is not drawn.
    """

    number: str
    group: str
    points: tuple[XY, ...]
    name: str = ""
    steps: tuple[str, ...] = ()
    device: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whisker:
    """Where the time of a step is expected: the band in which 8 of 10 measured times should lie, and its middle.

    Attributes:
        device: index into `RooflineData.devices`; where there are several, the middle has its colour.
        mark: that of its bound; a thin line leads from there to the band.
        below_bound: the expected time is below the bound; told by a sign.
    """

    group: str
    device: int | None
    start: XY
    end: XY
    middle: XY
    mark: XY
    below_bound: bool = False


MOST_STEMS = 30
"""Bands that a line joins to the mark of their bound: more lines are a hatching."""


def stems(whiskers: Sequence[Whisker]) -> Iterator[Link]:
    """Yield thin lines from the marks of bounds down to the bands of the expected times, where they are few."""
    if len(whiskers) <= MOST_STEMS:
        for whisker in whiskers:
            if whisker.end[1] < whisker.mark[1]:
                yield Link(group=whisker.group, start=whisker.mark, end=whisker.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class RugMark:
    """A piece without FLOP: no place on a logarithmic plane, but a share of the time.

    The rug is a strip at the left edge whose full height is all the time; `low` and `high` are fractions of it.
    """

    label: str
    group: str
    share: float
    low: float
    high: float
    hover: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A piece without a point, and why; `level` where it has points at other levels."""

    label: str
    reason: str
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineData:
    """A roofline: FLOP per byte against FLOP/s on logarithmic axes.

    Attributes:
        levels: memory levels of the marks and diagonals, the nearest first; with several, colours and symbols tell
            them.
        groups: what colours tell apart, largest share of time first; `group_title` says what they are.
        rest: what shares the last colour, since there are more than people tell apart.
        sizes: what the size of a mark tells: a share of the time (as area), the batch, or nothing.
        devices: titles of the devices drawn.
        listing: what the numbers beside marks stand for.
        unplaced: what could not be drawn, with the reason.
        notes: what a reader must know to read the points.
    """

    title: str
    subtitle: str
    levels: tuple[str, ...]
    x: Axis
    y: Axis
    devices: tuple[str, ...] = ()
    ceilings: tuple[CeilingLine, ...] = ()
    ridges: tuple[Ridge, ...] = ()
    marks: tuple[Mark, ...] = ()
    ties: tuple[Tie, ...] = ()
    links: tuple[Link, ...] = ()
    trails: tuple[Trail, ...] = ()
    whiskers: tuple[Whisker, ...] = ()
    rug: tuple[RugMark, ...] = ()
    groups: tuple[str, ...] = ()
    group_title: str = ""
    rest: tuple[str, ...] = ()
    sizes: Literal["share", "batch", "nothing"] = "share"
    unplaced: tuple[Unplaced, ...] = ()
    listing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hierarchical(self) -> bool:
        """True if the figure shows more than one memory level."""
        return len(self.levels) > 1

    @property
    def levels_coloured(self) -> bool:
        """True if colours tell memory levels, as symbols do."""
        return self.hierarchical and self.group_title == LEVELS_TITLE
