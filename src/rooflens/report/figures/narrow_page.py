"""What a page is set with that is narrower than the usual one: its ceilings and its legend lie below the plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rooflens.report.figures.drawn_marks import DrawnMark
from rooflens.report.figures.label_places import Box
from rooflens.report.figures.labels import HEADING, SMALL, TITLE, CeilingLabel, LegendRow, TextLine, wrap

KEY_HEIGHT = 14.5
KEY_INDENT = 16.0
"""From the left edge of a legend row to its text."""
_BETWEEN_KEYS = 8.0

Key = tuple[LegendRow, tuple[float, float], int]
"""A row of the legend, where it begins and ends from the left, and its line from the top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a kind of page is set with, in points.

    Attributes:
        left, under: from the left edge of the page to the plane; of the axis below it.
        title, subtitle, axis: sizes of type.
        letters: the largest type of all else.
        key: height of a row of the legend.
        marks: their size against that on a wide page.
        least, most: height of the plane against its width; `lowest` in points.
        page: height of the page against its width, as far as `least` and `most` allow it.
        dense: no line is left empty, and ceilings are named in the plane where there is room.
    """

    left: float = 68.0
    under: float = 46.0
    edge: float = 14.0
    title: float = TITLE
    subtitle: float = HEADING
    axis: float = HEADING
    letters: float = TITLE
    key: float = KEY_HEIGHT
    marks: float = 1.0
    least: float = 0.95
    most: float = 0.95
    lowest: float = 250.0
    page: float = 0.0
    dense: bool = False


WIDE = Measures()
ON_PHONE = Measures(title=HEADING, subtitle=SMALL, letters=SMALL, key=12.5)
IN_COLUMN = Measures(
    left=54.0,
    under=27.0,
    edge=4.0,
    title=8.5,
    subtitle=7.0,
    axis=7.0,
    letters=7.0,
    key=9.6,
    marks=0.7,
    least=0.6,
    most=0.85,
    lowest=0.0,
    page=1.15,
    dense=True,
)


def plane_height(measures: Measures, plane: float, page: float, rest: float) -> float:
    """Return how high a plane of this width is on a page of this width, of which the `rest` is taken."""
    return max(measures.lowest, min(measures.most * plane, max(measures.least * plane, measures.page * page - rest)))


def small_rows(rows: Sequence[TextLine], letters: float) -> tuple[TextLine, ...]:
    """Return the lines with no letter larger than `letters`."""
    return tuple(replace(row, size=min(row.size, letters)) for row in rows)


def small_legend(rows: Sequence[LegendRow], measures: Measures) -> list[LegendRow]:
    """Return the rows of a legend in the letters and marks of the page."""
    return [
        replace(
            row,
            text=small_rows([row.text], measures.letters)[0],
            diameter=row.diameter * (measures.marks if row.kind == "size" else 1.0),
        )
        for row in rows
    ]


def small_label(label: CeilingLabel, letters: float) -> CeilingLabel:
    """Return the label of a ceiling in the letters of the page."""
    return replace(label, rows=small_rows(label.rows, letters))


def small_mark(drawn: DrawnMark, scale: float) -> DrawnMark:
    """Return a mark as large as the page has room for."""
    return drawn if scale == 1.0 else replace(drawn, diameter=scale * drawn.diameter, reach=scale * drawn.reach)


def short_label(label: CeilingLabel) -> CeilingLabel:
    """Return the label with rate and origin in one line."""
    *before, rate, origin = label.rows
    return replace(label, rows=(*before, replace(rate, text=f"{rate.text}, {origin.text}", size=min(rate.size, SMALL))))


def in_a_row(rows: Sequence[LegendRow], room: float, *, dense: bool) -> list[Key]:
    """Return the rows of the legend one beside the other; what has no room begins a new line, and so does a heading.

    Args:
        dense: True lets a heading follow on a line that has room for what it is the heading of.
    """
    keys: list[Key] = []
    left, down = 0.0, -1
    widths = [row.text.width + (0.0 if row.kind == "heading" else KEY_INDENT) for row in rows]
    for row, width, following in zip(rows, widths, [*widths, 0.0][1:], strict=True):
        heading = row.kind == "heading"
        need = width + _BETWEEN_KEYS + following if heading else width
        if down < 0 or (heading and not dense) or left + need > room:
            left, down = 0.0, down + 1
        keys.append((row, (left, left + width), down))
        left += width + _BETWEEN_KEYS
    return keys


def at_places(keys: Sequence[Key], left: float, top: float, line: float) -> Iterator[tuple[LegendRow, Box]]:
    """Yield the rows of the legend at their places on the page, on lines of a height."""
    for row, (start, end), down in keys:
        yield row, Box(left + start, top - (down + 1) * line, left + end, top - down * line)


def in_one_block(label: CeilingLabel, room: float) -> CeilingLabel:
    """Return the label of a whole device with its rates one after the other, and their origin once if they share it."""
    title, *rates = label.rows
    parts = [row.text.rpartition(", ") for row in rates]
    origins = dict.fromkeys(origin for *_, origin in parts)
    texts = [rate for rate, *_ in parts] if len(origins) == 1 else [row.text for row in rates]
    text = ", ".join(texts) + (f" ({next(iter(origins))})" if len(origins) == 1 else "")
    return replace(label, rows=(title, *wrap(text, rates[0].size, room))) if len(rates) > 1 else label


def together(labels: Sequence[CeilingLabel], devices: int) -> list[CeilingLabel]:
    """Return the labels of each of several devices as one, below its name."""
    if devices < 2:
        return list(labels)
    merged: dict[TextLine, CeilingLabel] = {}
    for label in labels:
        first, *rest = label.rows
        before = merged.get(first)
        merged[first] = label if before is None else replace(before, rows=(*before.rows, *rest))
    return list(merged.values())
