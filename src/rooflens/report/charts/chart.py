"""What a chart is before anything draws it: points, bars and cells in the units of the data."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.report.figures.axes import XY, Axis
from rooflens.report.figures.palette import Symbol


@dataclass(frozen=True, slots=True)
class Dot:
    """One mark, and the lines that a pointer shows of it.

    Attributes:
        bar: the ends of its error bar.
        label: a name beside it; marks of one name share it.
        size: of its symbol, as a multiple of the usual one.
        crossed: what it stands for cannot run: it does not fit into the memory.
    """

    x: float
    y: float
    tip: tuple[str, ...] = ()
    bar: tuple[XY, XY] | None = None
    label: str = ""
    size: float = 1.0
    crossed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Marks and a line that belong together; without either, an entry of the legend that explains a symbol.

    Attributes:
        name: its entry in the legend; "" has none.
        path: corners of a line.
        dash: lengths of line and gap.
        tip: the lines that a pointer shows of it.
        label: text beside the line.
    """

    name: str
    colour: str
    shape: Symbol = "circle"
    dots: tuple[Dot, ...] = ()
    path: tuple[XY, ...] = ()
    dash: tuple[float, ...] = ()
    width: float = 1.6
    tip: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Points and lines between two axes.

    Attributes:
        key: name of its file and of its place on a page.
        notes: what a reader must know to read it.
    """

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BarPiece:
    """A piece of a bar."""

    group: str
    value: float
    tip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: its label and its pieces."""

    label: str
    parts: tuple[BarPiece, ...]

    @property
    def length(self) -> float:
        """The sum of the pieces."""
        return sum(part.value for part in self.parts)


@dataclass(frozen=True, slots=True)
class Limit:
    """What no bar should pass: a line across all bars."""

    label: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars of pieces, one below the other.

    Attributes:
        groups: names of the pieces to colours, in the order in which they are stacked.
        unit: base unit of the values; ``%`` for shares.
        limits: lines across the bars.
    """

    key: str
    title: str
    axis: str
    unit: str
    bars: tuple[Bar, ...]
    groups: dict[str, str]
    notes: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def scale(self) -> Axis:
        """The axis along the bars: up to all of it for shares, else up to the longest bar or limit."""
        ends = [*(bar.length for bar in self.bars), *(1.02 * limit.value for limit in self.limits)]
        longest = 1.0 if self.unit == "%" else max(ends, default=0.0) or 1.0
        return Axis(label=self.axis, low=0.0, high=longest, unit=self.unit, scale="linear")


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A value from -1 to 1, None where it is unknown."""

    value: float | None
    text: str
    tip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Values by row and column, as colours and as numbers."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    notes: tuple[str, ...] = ()


Chart = Plot | Bars | HeatMap
_LONGEST = 38


def legend_names(chart: Chart) -> list[str]:
    """Return the entries of the legend, in the order of the chart."""
    if isinstance(chart, HeatMap):
        return []
    if isinstance(chart, Bars):
        shown = {part.group for bar in chart.bars for part in bar.parts if part.value}
        return [group for group in chart.groups if group in shown]
    return list(dict.fromkeys(series.name for series in chart.series if series.name))


def shortened(label: str) -> str:
    """Return a label that has room beside a bar; its end tells the batch and the device."""
    half = (_LONGEST - 1) // 2
    return label if len(label) <= _LONGEST else f"{label[:half]}…{label[-half:]}"
