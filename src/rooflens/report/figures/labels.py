"""The words beside ceilings, ridges and marks, and in the legend, before they have a place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rooflens import units
from rooflens.report.case_names import SOURCE_WORDS, cut, shorten
from rooflens.report.escape import printable
from rooflens.report.figures.drawn_ceilings import FEW_DEVICES
from rooflens.report.figures.palette import GREY, INK, SHAPES, ceiling_colour, device_colour
from rooflens.report.figures.roofline_data import CeilingLine, Figure

SMALL, NORMAL, HEADING, TITLE = 8.0, 8.6, 9.4, 13.0
"""Sizes of type, in points."""
LINE_HEIGHT = 1.3
_LONGEST_TITLE, LONGEST_KEY = 36, 28


@dataclass(frozen=True, slots=True)
class Words:
    """One line of text."""

    text: str
    size: float = NORMAL
    colour: str = INK
    bold: bool = False

    @property
    def width(self) -> float:
        """Points from the left to the right end."""
        return _width(self.text, self.size, self.bold)

    @property
    def height(self) -> float:
        return self.size * LINE_HEIGHT


@lru_cache(maxsize=4096)
def _width(text: str, size: float, bold: bool) -> float:
    # DejaVu Sans, which comes with matplotlib, is as wide as any sans-serif that a browser may take instead.
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) * 1.02


def block_size(lines: Iterable[Words]) -> tuple[float, float]:
    """Width and height of lines set one below the other, at the line height of the largest."""
    items = list(lines)
    return max(line.width for line in items), len(items) * max(line.height for line in items)


def wrap(text: str, size: float, width: float, *, bold: bool = False, colour: str = INK) -> list[Words]:
    """`text` in lines of at most `width` points; a longer word is cut short."""
    lines: list[str] = []
    for word in printable(text).split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _width(longer, size, bold) <= width:
            lines[-1] = longer
            continue
        while len(word) > 1 and _width(word, size, bold) > width:
            word = word[: int(0.9 * len(word)) - 1] + "…"  # noqa: PLW2901
        lines.append(word)
    return [Words(line, size, colour, bold) for line in lines]


@dataclass(frozen=True, slots=True)
class CeilingLabel:
    """What is written about one ceiling, about several that coincide, or about a whole device.

    Attributes:
        line: the segment to which the label belongs.
        beside: the label stands in the column beside the plane, not in it.
    """

    words: tuple[Words, ...]
    line: CeilingLine
    beside: bool


def ceiling_labels(figure: Figure) -> list[CeilingLabel]:
    """A label for each ceiling; ceilings that coincide share one; many devices have one label each."""
    if len(figure.devices) > FEW_DEVICES:
        return _by_device(figure)
    found = []
    for line in dict.fromkeys((line.kind, line.rate) for line in figure.ceilings):
        equal = [other for other in figure.ceilings if (other.kind, other.rate) == line]
        words = [*_titles(figure, equal), *_rate_words(equal, _colour(figure, equal[0]))]
        found.append(CeilingLabel(tuple(words), equal[0], beside=equal[0].kind == "compute"))
    return found


def _by_device(figure: Figure) -> list[CeilingLabel]:
    """One label per device with both its ceilings; equal devices share it."""
    alike: dict[tuple[tuple[str, float, str], ...], list[CeilingLine]] = {}
    for number in range(len(figure.devices)):
        own = [line for line in figure.ceilings if line.device == number]
        if own:
            alike.setdefault(tuple((line.resource, line.rate, line.origin) for line in own), []).extend(own)
    found = []
    for lines in alike.values():
        compute = [line for line in lines if line.kind == "compute"]
        memory = [line for line in lines if line.kind == "memory"]
        words = [*_titles(figure, lines), *(_rate_line(kind) for kind in (compute, memory) if kind)]
        found.append(CeilingLabel(tuple(words), (compute or memory)[0], beside=bool(compute)))
    return found


def _titles(figure: Figure, lines: Sequence[CeilingLine]) -> list[Words]:
    if len(figure.devices) == 1:
        return []
    titles = {line.device: cut(printable(figure.devices[line.device]), _LONGEST_TITLE) for line in lines}
    return [Words(title, NORMAL, device_colour(n, len(figure.devices)), bold=True) for n, title in titles.items()]


def _colour(figure: Figure, line: CeilingLine) -> str:
    """Of the words about a ceiling: that of its level where a figure has several, so that it is found anywhere."""
    if not figure.hierarchical or line.kind != "memory" or len(figure.devices) > 1:
        return INK
    return ceiling_colour(line.device, len(figure.devices), line.resource, hierarchical=True)


def _rate_words(lines: Sequence[CeilingLine], colour: str = INK) -> list[Words]:
    """Names and rate of lines that coincide, then where the rate comes from."""
    names = list(dict.fromkeys(line.resource for line in lines))
    rate = units.show(lines[0].rate, "FLOP/s" if lines[0].kind == "compute" else "B/s")
    origins = " / ".join(dict.fromkeys(line.origin for line in lines))
    last = f"{names[-1]}  {rate}"
    return [*(Words(f"{name},") for name in names[:-1]), Words(last, NORMAL, colour), Words(origins, SMALL, GREY)]


def _rate_line(lines: Sequence[CeilingLine]) -> Words:
    """As :func:`_rate_words`, in one line."""
    *names, origin = _rate_words(lines)
    return Words(" ".join(words.text for words in names) + f", {origin.text}", SMALL)


def footnotes(figure: Figure, most: int) -> list[str]:
    """The numbers' names, the notes, and what could not be drawn.

    What shares a reason is named together, `most` names in all reasons.
    """
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in figure.unplaced:
        reasons.setdefault((item.level, item.reason), []).append(item.label)
    found = [*figure.listing, *figure.notes]
    for (level, reason), labels in list(reasons.items())[:most]:
        more = f" and {len(labels) - most} more" if len(labels) > most else ""
        at = f" at {level}" if level else ""
        found.append(f"Not drawn{at}: {'; '.join(labels[:most])}{more}. {reason[0].upper()}{reason[1:]}.")
    if len(reasons) > most:
        found.append(f"Not drawn either: {sum(len(labels) for labels in list(reasons.values())[most:])} more.")
    return found


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the legend.

    Attributes:
        what: heading; group (a colour); source (a shape); whole, tie, pair, flag and rug: the signs that need a word.
        name: the group or source that the row stands for.
    """

    what: Literal["heading", "group", "source", "whole", "tie", "pair", "flag", "rug"]
    words: Words
    name: str = ""


def legend(figure: Figure) -> list[Key]:
    """The rows of the legend, for what the figure holds."""
    found: list[Key] = []
    if figure.groups:
        found.append(Key("heading", Words(figure.group_title, SMALL, GREY, bold=True)))
        found += [Key("group", Words(shorten(printable(group), LONGEST_KEY)), group) for group in figure.groups]
    sources = [source for source in SHAPES if any(mark.source == source for mark in figure.marks)]
    if sources:
        found.append(Key("heading", Words("area: share of time", SMALL, GREY, bold=True)))
        found += [
            Key("source", Words(SOURCE_WORDS[source]), source)
            for source in sources
            if not (figure.hierarchical and source == "counters")  # these have the shapes of their levels
        ]
    if figure.hierarchical and any(mark.whole for mark in figure.marks):
        found.append(Key("whole", Words("hollow: the whole")))
    if figure.ties:
        found.append(Key("tie", Words("the same at each level")))
    if figure.links:
        found.append(Key("pair", Words("the same, estimated and observed")))
    if any(mark.above_roof for mark in figure.marks):
        found.append(Key("flag", Words("above its roof, see note")))
    if figure.rug:
        found.append(Key("rug", Words("no FLOP, share of time")))
    return found
