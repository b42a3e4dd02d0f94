"""Where the bars of a chart and their names stand: beside each other, or long names above their bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rooflens import units
from rooflens.report.charts.chart import Bars
from rooflens.report.escape import printable

_MOST_BESIDE = 0.35
"""Of the width of a page: longer names stand above their bars."""
_Width = Callable[[str], float]
"""Gives the width of a text."""


@dataclass(frozen=True, slots=True)
class BarRow:
    """A bar and its name, measured from the top of all of them.

    Attributes:
        lines: of its name, with the middle of each; `middle`: that of the bar.
        amount: how long the bar is, as text; "" for a share, since all are as long.
    """

    lines: tuple[tuple[str, float], ...]
    middle: float
    amount: str


@dataclass(frozen=True, slots=True)
class BarRows:
    """All bars of a chart.

    Attributes:
        above: True if names stand above their bars.
        left, right: room that names and amounts take beside the bars.
    """

    rows: tuple[BarRow, ...]
    above: bool
    height: float
    left: float
    right: float


def bar_rows(chart: Bars, page: float, measure: _Width, *, line: float, row: float) -> BarRows:
    """Return the rows of a chart on a page of some width; no name is cut.

    Args:
        line: height of a line of text; `row`: that of a bar with the room around it.
    """
    names = [printable(bar.label) for bar in chart.bars]
    widest = max(map(measure, names), default=0.0)
    above = widest > _MOST_BESIDE * page
    amounts = ["" if chart.unit == "%" else units.show(bar.length, chart.unit, 3) for bar in chart.bars]
    rows, top = [], 0.0
    for name, amount in zip(names, amounts, strict=True):
        texts = in_lines(name, page - 4 * line, measure) if above else (name,)
        high = line * len(texts) if above else 0.0
        middles = [top + line * (number + 0.6) if above else top + row / 2 for number in range(len(texts))]
        rows.append(BarRow(tuple(zip(texts, middles, strict=True)), top + high + row / 2, amount))
        top += high + row
    return BarRows(tuple(rows), above, top, 0.0 if above else widest, max(map(measure, amounts), default=0.0))


def in_lines(text: str, width: float, measure: _Width) -> tuple[str, ...]:
    """Return text in lines of at most a width; of a longer word the middle is left out.

    >>> in_lines("vit_base_patch16 batch 8", 9, len)
    ('vit_…ch16', 'batch 8')
    """
    lines: list[str] = []
    for word in (fitting(word, width, measure) for word in text.split(" ")):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and measure(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return tuple(lines)


def fitting(text: str, width: float, measure: _Width) -> str:
    """Return text, or its ends as far as they have room: both tell more than its middle."""
    if measure(text) <= width:
        return text
    shorter = (f"{text[:half]}…{text[-half:]}" for half in range(len(text) // 2, 1, -1))
    return next((each for each in shorter if measure(each) <= width), f"{text[:1]}…{text[-1:]}")
