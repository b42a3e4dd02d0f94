"""Charts as SVG inside a page: small, with colours for light and for dark paper, and a text on each mark.

The text of a mark is its ``data-t``; the script of the page shows it. Sizes are in the units of the view box, which a
phone shows at about two thirds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from rooflens import units
from rooflens.report.charts.bar_rows import BarRows, bar_rows
from rooflens.report.charts.chart import Bars, Chart, HeatMap, Plot, Series, legend_names, shortened
from rooflens.report.charts.colours import diverging, ink_on, on_dark
from rooflens.report.charts.labels import chart_labels
from rooflens.report.escape import printable
from rooflens.report.figures.axes import XY, Axis, place, tick_text, ticks
from rooflens.report.figures.palette import FAINT, Symbol

WIDTH, HEIGHT = 560.0, 370.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 76.0, 14.0, 26.0, 46.0
_LETTER, _WIDE_LETTER = 6.6, 8.4
"""Width of an average letter of a tick or a label."""
_LABEL = 13.0
"""Size of the type of a label on a phone; elsewhere it is smaller."""
_ROW, _BAR, _EDGE, _LINE = 22.0, 15.0, 6.0, 16.0
_NAME = 8.2
"""Width of an average letter beside a bar, as large as on a phone."""
_CELL, _HEAD = 30.0, 36.0
_REACH: Mapping[Symbol, float] = {
    "circle": 4.6,
    "diamond": 5.6,
    "square": 4.2,
    "triangle-up": 5.4,
    "triangle-down": 5.4,
    "cross": 5.4,
}
_CORNERS: Mapping[Symbol, tuple[XY, ...]] = {
    "diamond": ((0, -1), (1, 0), (0, 1), (-1, 0)),
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle-up": ((0, -1), (1, 0.8), (-1, 0.8)),
    "triangle-down": ((0, 1), (1, -0.8), (-1, -0.8)),
    "cross": (
        *((-0.33, -1), (0.33, -1), (0.33, -0.33), (1, -0.33), (1, 0.33), (0.33, 0.33)),
        *((0.33, 1), (-0.33, 1), (-0.33, 0.33), (-1, 0.33), (-1, -0.33), (-0.33, -0.33)),
    ),
}


def shapes() -> str:
    """Return the symbols that every chart of a page refers to."""
    circle = f'<circle id="circle" r="{_REACH["circle"]}"/>'
    others = (f'<path id="{name}" d="{corners(name, _REACH[name])}"/>' for name in _CORNERS)
    return f"<defs>{circle}{''.join(others)}</defs>"


def corners(symbol: Symbol, radius: float, middle: XY = (0.0, 0.0)) -> str:
    """Return the path of a symbol, "" for a circle."""
    points = _CORNERS.get(symbol, ())
    return f"M{' '.join(f'{middle[0] + radius * x:.3g},{middle[1] + radius * y:.3g}' for x, y in points)}z" * bool(
        points
    )


def draw(chart: Chart) -> str:
    """Return the chart as an ``svg`` element."""
    if isinstance(chart, Plot):
        height, parts = HEIGHT, _plot(chart)
    elif isinstance(chart, Bars):
        rows = bar_rows(chart, WIDTH, lambda text: _NAME * len(text), line=_LINE, row=_ROW)
        height, parts = _EDGE + rows.height + _BOTTOM, _bars(chart, rows)
    else:
        height, parts = _HEAD + _CELL * len(chart.rows) + 6, _heat(chart)
    name = escape(printable(chart.title), quote=True)
    return f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{name}" tabindex="0">{"".join(parts)}</svg>'


def legend(chart: Chart) -> list[tuple[str, str]]:
    """Return the entries of the legend: a swatch and its text."""
    names = legend_names(chart)
    if isinstance(chart, Bars):
        swatches = [f'<rect x="1" y="4" width="18" height="11" {_ink(chart.groups[n])} class="c f"/>' for n in names]
        swatches += ['<path d="M10,1V17" class="limit"/>' for _ in chart.limits]
        names += [f"{limit.label} {units.show(limit.value, chart.unit)}" for limit in chart.limits]
    else:
        first = {series.name: series for series in reversed(chart.series)} if isinstance(chart, Plot) else {}
        swatches = [_swatch(first[name]) for name in names]
    keys = (f'<svg class="key" viewBox="0 0 20 18" aria-hidden="true">{swatch}</svg>' for swatch in swatches)
    return list(zip(keys, names, strict=True))


def _swatch(series: Series) -> str:
    line = f'<path d="M0,9H20" {_ink(series.colour)} class="c l" {_dashed(series)}/>' if series.path else ""
    if series.path and not series.dots:
        return line
    return f'{line}<use href="#{series.shape}" x="10" y="9" {_ink(series.colour)} class="c d"/>'


def _ink(colour: str) -> str:
    """Return the style of a colour on light and on dark paper."""
    return f'style="--l:{colour};--k:{on_dark(colour)}"'


def _dashed(series: Series) -> str:
    dash = f' stroke-dasharray="{" ".join(f"{n * series.width:g}" for n in series.dash)}"' if series.dash else ""
    return f'stroke-width="{series.width:g}"{dash}'


def _tip(rows: Iterable[str]) -> str:
    text = "&#10;".join(escape(printable(row), quote=True) for row in rows)
    return f' data-t="{text}"' if text else ""


def _text(x: float, y: float, text: str, *, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}"{more}>{escape(printable(text))}</text>'


def _plot(chart: Plot) -> Iterator[str]:
    left = _left(chart.y)
    width, height = WIDTH - left - _RIGHT, HEIGHT - _TOP - _BOTTOM
    foot = _TOP + height

    def at(point: XY) -> XY:
        return left + width * place(chart.x, point[0]), _TOP + height * (1 - place(chart.y, point[1]))

    yield from _grid(chart.x, chart.y, left, width, height)
    for series in chart.series:
        marks, line = "", ""
        for dot in series.dots:
            x, y = at((dot.x, dot.y))
            if dot.bar is not None:
                marks += f'<path d="{_corners(map(at, dot.bar))}" class="l" stroke-width="3" opacity=".35"/>'
            if dot.size == 1:
                where = f'x="{x:.1f}" y="{y:.1f}"'
            else:
                where = f'transform="translate({x:.1f} {y:.1f}) scale({dot.size:.3g})"'
            marks += f'<use href="#{series.shape}" {where} class="d"{_tip(dot.tip)}/>'
            if dot.crossed:
                cross = f"M{x - 5:.1f},{y - 5:.1f}l10,10m0,-10l-10,10"
                marks += f'<path d="{cross}" stroke="currentColor" stroke-width="1.4" fill="none"/>'
        if series.path:
            line = f'<path d="{_corners(map(at, series.path))}" class="l" {_dashed(series)}{_tip(series.tip)}/>'
        yield f'<g class="c" {_ink(series.colour)}>{line}{marks}</g>'
    for label in chart_labels(chart, width, height, _LABEL):
        for x0, y0, x1, y1 in label.leaders:
            yield f'<path d="M{left + x0:.1f},{foot - y0:.1f}L{left + x1:.1f},{foot - y1:.1f}" class="leader"/>'
        yield _text(left + label.left, foot - label.middle + 4, label.text, anchor="start", more=' class="label"')


def _corners(points: Iterable[XY]) -> str:
    return "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _grid(x: Axis, y: Axis, left: float, width: float, height: float) -> Iterator[str]:
    foot = _TOP + height
    for tick in ticks(x, _room(x, width)):
        at = left + width * place(x, tick)
        yield f'<path d="M{at:.1f},{_TOP}V{foot}" class="grid"/>' + _text(at, foot + 16, tick_text(x, tick))
    for tick in ticks(y):
        at = _TOP + height * (1 - place(y, tick))
        yield f'<path d="M{left},{at:.1f}H{left + width}" class="grid"/>'
        yield _text(left - 6, at + 4, tick_text(y, tick), anchor="end")
    yield f'<path d="M{left},{_TOP}V{foot}H{left + width}" class="axis"/>'
    yield _text(left + width / 2, foot + 38, x.label)
    yield _text(4, _TOP - 12, y.label, anchor="start")


def _left(axis: Axis) -> float:
    """Return the room left of a plane: for its longest tick, in the larger letters of a phone."""
    return max(_LEFT, _WIDE_LETTER * max((len(tick_text(axis, tick)) for tick in ticks(axis)), default=1) + 8)


def _room(axis: Axis, width: float) -> int:
    """Return how many ticks have room below an axis, with the larger letters of a phone."""
    longest = max((len(tick_text(axis, tick)) for tick in ticks(axis)), default=1)
    return max(2, min(8, int(width / (1.2 * _LETTER * (longest + 1)))))


def _bars(chart: Bars, rows: BarRows) -> Iterator[str]:
    left = 12 + rows.left
    width, height = WIDTH - left - max(_RIGHT + 10, rows.right + 12), rows.height
    axis = chart.scale
    for tick in ticks(axis, _room(axis, width)):
        x = left + width * place(axis, tick)
        yield f'<path d="M{x:.1f},{_EDGE}V{_EDGE + height}" class="grid"/>'
        yield _text(x, _EDGE + height + 16, tick_text(axis, tick))
    for row, bar in zip(rows.rows, chart.bars, strict=True):
        x, y = left, _EDGE + row.middle - _BAR / 2
        yield _text(left + width + 6, y + 12, row.amount, anchor="start") if row.amount else ""
        for part in bar.parts:
            long = width * place(axis, part.value)
            if long > 0:
                size = f'x="{x:.1f}" y="{y:.1f}" width="{max(long, 0.3):.1f}" height="{_BAR:g}"'
                yield f'<rect {size} class="c f" {_ink(chart.groups[part.group])}{_tip(part.tip)}/>'
            x += long
    for limit in chart.limits:
        x = left + width * place(axis, limit.value)
        yield f'<path d="M{x:.1f},{_EDGE}V{_EDGE + height}" class="limit"{_tip([limit.label])}/>'
    at, anchor = (left, "start") if rows.above else (left - 6, "end")
    for row, bar in zip(rows.rows, chart.bars, strict=True):
        for line, middle in row.lines:  # above the lines, which would strike them out
            yield _text(at, _EDGE + middle + 4.5, line, anchor=anchor, more=f' class="over"{_tip([bar.label])}')
    yield _text(left + width / 2, _EDGE + height + 38, chart.axis)


def _wide(text: str) -> float:
    return 1.04 * _LETTER * len(text)


def _heat(chart: HeatMap) -> Iterator[str]:
    left = 12 + max((_wide(shortened(label)) for label, _ in chart.rows), default=0.0)
    wide = (WIDTH - left - 4) / max(1, len(chart.columns))
    for number, column in enumerate(chart.columns):
        for line, text in enumerate(reversed(column.split(" ", 1))):
            yield _text(left + wide * (number + 0.5), _HEAD - 9 - 14 * line, text, more=' class="row"')
    for row, (label, cells) in enumerate(chart.rows):
        y = _HEAD + _CELL * row
        yield _text(left - 6, y + _CELL / 2 + 4, shortened(label), anchor="end", more=' class="row"' + _tip([label]))
        for number, cell in enumerate(cells):
            x = left + wide * number
            ground = FAINT if cell.value is None else diverging(cell.value)
            size = f'width="{wide - 2:.1f}" height="{_CELL - 2:g}"'
            yield f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{ground}"{_tip(cell.tip)}/>'
            ink = f' style="fill:{ink_on(ground)}" pointer-events="none"'
            yield _text(x + wide / 2 - 1, y + _CELL / 2 + 4, cell.text, more=ink)
