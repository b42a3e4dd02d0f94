"""The legend below a roofline on a phone: swatches as SVG, groups that a touch switches on and off."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count

from rooflens.report.charts.svg import corners
from rooflens.report.escape import printable
from rooflens.report.figures.labels import LegendRow
from rooflens.report.figures.page_layout import Page, TextBox
from rooflens.report.figures.palette import FLAG, GREY, INK, SIGN

_LINES = {"tie": "stroke-width='.9'", "pair": "stroke-width='1.4'", "trail": "stroke-width='1' stroke-dasharray='4 2'"}
_RADIUS = 5.0


def keys(page: Page) -> str:
    """Return the list of roofs that have no label in the plane, and the legend."""
    return f'<ul class="keys">{"".join([*map(_roof, page.beside), *_rows(page)])}</ul>'


def _roof(label: TextBox) -> str:
    dash = " ".join(f"{1.6 * length:g}" for length in label.dash or ())
    line = f"<path d='M0,7H26' stroke='{label.colour}' stroke-width='2' stroke-dasharray='{dash}'/>"
    return f'<li class="wide">{_swatch(line)}<span>{escape(", ".join(row.text for row in label.rows))}</span></li>'


def _rows(page: Page) -> Iterator[str]:
    number = count()
    for row, _ in page.legend:
        text = escape(printable(row.text.text))
        if row.kind == "heading":
            yield f'<li class="wide heading">{text}</li>'
        elif row.kind == "group":
            button = f'<button type="button" aria-pressed="true" data-group="{next(number)}">'
            yield f"<li>{button}{_sign(row)}{text}</button></li>"
        else:
            yield f"<li>{_sign(row)}{text}</li>"


def _sign(row: LegendRow) -> str:
    if row.kind in _LINES:
        return _swatch(f"<path d='M1,7H25' stroke='{GREY}' {_LINES[row.kind]}/>")
    if row.kind == "band":
        return _swatch(
            f"<path d='M13,1V13' stroke='{GREY}' stroke-width='5' opacity='.35'/><path d='M9,7H17' stroke='{GREY}'/>"
        )
    if row.kind == "rug":
        return _swatch(f"<rect x='9' y='1' width='8' height='12' fill='{SIGN}'/>")
    if row.kind == "misfit":
        return _swatch(f"<path d='M8,2L18,12M18,2L8,12' stroke='{INK}' stroke-width='1.4'/>")
    if row.kind in ("whole", "flag"):
        return _swatch(f"<circle cx='13' cy='7' r='5.5' stroke='{FLAG if row.kind == 'flag' else GREY}'/>")
    radius = row.diameter * 2 / 3 if row.kind == "size" else _RADIUS
    path = corners(row.symbol, radius, (13.0, 7.0))
    shape = f"<path d='{path}'" if path else f"<circle cx='13' cy='7' r='{radius:.3g}'"
    rim = row.colour if row.kind == "group" else GREY
    return _swatch(f"{shape} fill='{'none' if row.hollow else row.colour}' stroke='{rim}'/>")


def _swatch(inside: str) -> str:
    return f'<svg viewBox="0 0 26 14" width="26" height="14" fill="none" aria-hidden="true">{inside}</svg>'
