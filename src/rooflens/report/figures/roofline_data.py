"""What a roofline figure is before anything draws it: lines, marks and axes in the units of the data.

Every type here is plain data, so that a figure can be tested and printed without a pixel. A backend adds ink and
decides nothing about the content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rooflens.errors import InvalidValue
from rooflens.records import Source, write_atomically

XY = tuple[float, float]
"""FLOP per byte of a memory level, and FLOP/s."""

SUFFIXES = ("png", "svg", "pdf", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis that holds everything on the figure, with room to spare."""

    label: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingLine:
    """One ceiling of one device, as the segment that is seen.

    Attributes:
        device: index into `Figure.devices`; colour and dash follow it.
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
    """Where a compute ceiling meets the diagonal of a level: the intensity from which on this no longer limits."""

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
        share: part of the time of its case, 0 to 1.
        group: what the colour tells, one of `Figure.groups`; the level where a figure has several.
        source: estimate, measure, counters or profile; told by the shape, as is the level where there are several.
        device: index into `Figure.devices`, None where the device is unknown or not drawn.
        above_roof: quicker than the units and this level of its device allow.
        whole: a whole case beside its own parts; drawn hollow, its area says nothing.
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
    whole: bool = False
    level: str = "dram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """One piece of work with one time, at several memory levels: a line from its leftmost to its rightmost mark."""

    start: XY
    end: XY


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The same thing, estimated and observed: a line between the two marks."""

    group: str
    start: XY
    end: XY


@dataclass(frozen=True, slots=True, kw_only=True)
class RugMark:
    """An operation without FLOP: no place on a logarithmic plane, but a share of the time.

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
    """Something that has no point, and why; `level` where it has points at other levels."""

    label: str
    reason: str
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A roofline as data: FLOP per byte against FLOP/s on logarithmic axes.

    Attributes:
        levels: memory levels of the marks and diagonals, the nearest first; with several, colours and shapes tell them.
        groups: what colours tell apart, largest share of time first; `group_title` says what they are.
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
    rug: tuple[RugMark, ...] = ()
    groups: tuple[str, ...] = ()
    group_title: str = ""
    unplaced: tuple[Unplaced, ...] = ()
    listing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hierarchical(self) -> bool:
        """Whether it shows more than one memory level."""
        return len(self.levels) > 1

    def save(self, path: str | Path) -> Path:
        """Draw to a file, which appears whole or not at all.

        Args:
            path: ends in .png, .svg or .pdf (matplotlib) or in .html (plotly, one file that asks nothing of any host).

        Returns:
            The path written.

        Raises:
            InvalidValue: another suffix.
            OutputError: the file cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower().removeprefix(".")
        if suffix not in SUFFIXES:
            raise InvalidValue(
                f"cannot draw {str(target)!r}: its suffix is {target.suffix!r}, known are "
                + ", ".join(f".{known}" for known in SUFFIXES)
            )
        write_atomically(target, _renderer(suffix)(self))
        return target

    def _repr_png_(self) -> bytes:
        """How a notebook shows the figure."""
        from rooflens.report.figures.with_matplotlib import render

        return render(self, "png")


def _renderer(suffix: str) -> Callable[[Figure], str | bytes]:
    if suffix == "html":
        from rooflens.report.figures.html_page import render_html

        return render_html
    from rooflens.report.figures.with_matplotlib import render

    return lambda figure: render(figure, suffix)
