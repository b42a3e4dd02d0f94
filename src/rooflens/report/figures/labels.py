"""The texts beside ceilings, in the legend and below a figure, before they have a place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from rooflens import units
from rooflens.report.case_names import SOURCE_WORDS
from rooflens.report.escape import printable
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.drawn_marks import batch_ends
from rooflens.report.figures.palette import (
    GREY,
    INK,
    LEVEL_SHAPES,
    OTHER,
    SHAPES,
    SIGN,
    Symbol,
    ceiling_colour,
    device_colour,
)
from rooflens.report.figures.roofline_data import CeilingLine, RooflineData

SMALL, NORMAL, HEADING, TITLE = 8.0, 8.6, 9.4, 13.0
"""Sizes of type, in points."""
LINE_HEIGHT = 1.3
_GROWING = {"batch": "its batch", "img_size": "its image size", "seq_len": "its length"}
_LONGEST_LABEL, _LONGEST_TITLE, _LONGEST_KEY, LONGEST_CASE = 30, 36, 28, 48


def shorten(text: str, longest: int = _LONGEST_LABEL) -> str:
    """Cut `text` in front: the end of a module path tells more than its beginning.

    >>> shorten("encoder.layers.11.mlp", 8)
    '…11.mlp'
    """
    return text if len(text) <= longest else "…" + text[-(longest - 1) :].lstrip("._")


def cut(text: str, longest: int) -> str:
    """Cut `text` at its end: the beginning of the name of a kernel or device tells more than the rest of it.

    >>> cut("gemm_kernel<float, 128>", 12)
    'gemm_kernel…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of text."""

    text: str
    size: float = NORMAL
    colour: str = INK
    bold: bool = False

    @property
    @lru_cache(maxsize=4096)  # noqa: B019
    def width(self) -> float:
        """Points from the left to the right end."""
        # DejaVu Sans, which comes with matplotlib, is as wide as any sans-serif that a browser may take instead.
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(family="DejaVu Sans", size=self.size, weight="bold" if self.bold else "normal")
        width, _, _ = text_to_path.get_text_width_height_descent(self.text, font, ismath=False)
        return float(width) * 1.02

    @property
    def height(self) -> float:
        """Points from this line to the next."""
        return self.size * LINE_HEIGHT


def block_size(rows: Sequence[TextLine]) -> tuple[float, float]:
    """Return width and height of lines set one below the other, at the line height of the largest."""
    return max(row.width for row in rows), len(rows) * max(row.height for row in rows)


def wrap(text: str, size: float, width: float, *, bold: bool = False, colour: str = INK) -> list[TextLine]:
    """Return `text` in lines of at most `width` points; a longer word is cut short."""
    rows: list[TextLine] = []
    for word in printable(text).split(" "):
        longer = TextLine(f"{rows[-1].text} {word}" if rows else word, size, colour, bold)
        if rows and longer.width <= width:
            rows[-1] = longer
            continue
        row = TextLine(word, size, colour, bold)
        while len(row.text) > 1 and row.width > width:
            row = replace(row, text=row.text[: int(0.9 * len(row.text)) - 1] + "…")
        rows.append(row)
    return rows


@dataclass(frozen=True, slots=True)
class CeilingLabel:
    """What is written about one ceiling, about several that coincide, or about a whole device.

    Attributes:
        line: the segment to which the label belongs, and its colour.
        beside: the label stands in the column beside the plane, not in it.
    """

    rows: tuple[TextLine, ...]
    line: CeilingLine
    colour: str
    beside: bool


def ceiling_labels(figure: RooflineData) -> Iterator[CeilingLabel]:
    """Yield a label for each ceiling; ceilings that coincide share one, and so do the ceilings of each of many devices.

    Of many devices those with equal ceilings share a label.
    """
    devices = len(figure.devices)
    many, alike = devices > FEW_DEVICES, dict[object, list[CeilingLine]]()
    for line in figure.ceilings:
        own = tuple((o.resource, o.rate, o.origin) for o in figure.ceilings if o.device == line.device) if many else ()
        alike.setdefault(own or (line.kind, line.rate), []).append(line)
    for drawn in alike.values():
        compute = [line for line in drawn if line.kind == "compute"]
        memory = [line for line in drawn if line.kind == "memory"]
        first = (compute or memory)[0]
        colour = ceiling_colour(first.device, devices, first.resource, by_level=figure.levels_coloured)
        rows = []
        for number in dict.fromkeys(line.device for line in drawn) if devices > 1 else ():
            title = cut(printable(figure.devices[number]), _LONGEST_TITLE)
            rows.append(TextLine(title, NORMAL, device_colour(number, devices), bold=True))
        for same in filter(None, (compute, memory)):
            names = list(dict.fromkeys(line.resource for line in same))
            rate = units.show(same[0].rate, "FLOP/s" if same[0].kind == "compute" else "B/s")
            texts = [*(f"{name}," for name in names[:-1]), f"{names[-1]}  {rate}"]
            origin = " / ".join(dict.fromkeys(line.origin for line in same))
            if many:
                rows.append(TextLine(f"{' '.join(texts)}, {origin}", SMALL))
                continue
            # The rate of a level has the colour of its diagonal, so that it is found anywhere.
            own_colour = figure.levels_coloured and devices == 1 and same is memory
            rows += [TextLine(text) for text in texts[:-1]]
            rows += [TextLine(texts[-1], NORMAL, colour if own_colour else INK), TextLine(origin, SMALL, GREY)]
        yield CeilingLabel(tuple(rows), first, colour, beside=bool(compute))


def footnotes(figure: RooflineData, most: int) -> list[str]:
    """Return what the numbers stand for, the notes, and what could not be drawn.

    Pieces with the same reason are named together, `most` names for each of `most` reasons.
    """
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in figure.unplaced:
        reasons.setdefault((item.level, item.reason), []).append(item.label)
    notes = [*figure.listing, *figure.notes]
    for (level, reason), labels in list(reasons.items())[:most]:
        more = f" and {len(labels) - most} more" if len(labels) > most else ""
        at = f" at {level}" if level else ""
        notes.append(f"Not drawn{at}: {'; '.join(labels[:most])}{more}. {reason[0].upper()}{reason[1:]}.")
    if len(reasons) > most:
        notes.append(f"Not drawn either: {sum(len(labels) for labels in list(reasons.values())[most:])} more.")
    return notes


_Kind = Literal["heading", "group", "source", "size", "whole", "tie", "pair", "trail", "band", "flag", "misfit", "rug"]


@dataclass(frozen=True, slots=True)
class LegendRow:
    """A row of the legend.

    Attributes:
        kind: heading; group (a colour); source (a symbol); the others are the signs that need a word.
        symbol, colour: of a group or source.
        hollow: the group has no mark but whole cases.
        diameter: of the symbol, in points.
    """

    kind: _Kind
    text: TextLine
    symbol: Symbol = "circle"
    colour: str = SIGN
    hollow: bool = False
    diameter: float = 7.0


def legend(figure: RooflineData, colours: Mapping[str, str]) -> list[LegendRow]:
    """Return the rows of the legend, for what the figure holds."""
    rows = [*_groups(figure, colours), *_symbols(figure)]
    if figure.sizes == "batch":
        ends = batch_ends(figure)
        rows += [LegendRow("size", TextLine(f"batch {batch}"), diameter=diameter) for batch, diameter in ends]
    growing = _GROWING[figure.trails[0].number] if figure.trails else ""
    signs: tuple[tuple[_Kind, object, str], ...] = (
        ("whole", figure.hierarchical and any(mark.whole for mark in figure.marks), "hollow: the whole"),
        ("tie", figure.ties, "the same work at each level"),
        ("pair", figure.links, "from the bound to the time it took"),
        ("trail", figure.trails, f"the same step as {growing} grows"),
        ("band", figure.whiskers, "expected, 8 of 10 times within"),
        ("flag", any(mark.above_roof for mark in figure.marks), "faster than its roof, see note"),
        ("misfit", any(mark.too_large for mark in figure.marks), "does not fit, see note"),
        ("rug", figure.rug, "no FLOP: share of the time"),
    )
    return rows + [LegendRow(kind, TextLine(text)) for kind, is_there, text in signs if is_there]


def _groups(figure: RooflineData, colours: Mapping[str, str]) -> Iterator[LegendRow]:
    if figure.groups:
        yield LegendRow("heading", TextLine(figure.group_title, SMALL, GREY, bold=True))
    for group in figure.groups:
        symbol = LEVEL_SHAPES.get(group, "circle") if figure.hierarchical else "circle"
        hollow = {mark.whole for mark in figure.marks if mark.group == group} == {True}
        counted = {mark.source for mark in figure.marks} == {"counters"}  # of kernels, which tell no family
        none = "family not known" if counted else "no formula"
        more = f"{len(figure.rest)} more, see note" if figure.rest else none
        name = more if group == OTHER else shorten(printable(group), _LONGEST_KEY)
        yield LegendRow("group", TextLine(name), symbol, colours[group], hollow)


def _symbols(figure: RooflineData) -> Iterator[LegendRow]:
    """Yield what symbols tell: sources, and of counted work the memory level, unless colours tell it too."""
    if not figure.marks:
        return
    heading = {"share": "area: share of the time", "batch": "size: batch", "nothing": "what a mark is"}
    yield LegendRow("heading", TextLine(heading[figure.sizes], SMALL, GREY, bold=True))
    sources, levels = {mark.source for mark in figure.marks}, {mark.level for mark in figure.marks}
    for source, symbol in SHAPES.items():
        if source in sources and not (figure.hierarchical and source == "counters"):
            yield LegendRow("source", TextLine(SOURCE_WORDS[source]), symbol)
    if figure.hierarchical and not figure.levels_coloured:
        for level in figure.levels:
            if level in levels:
                yield LegendRow("source", TextLine(f"at {level}"), LEVEL_SHAPES[level])
