"""Charts of records as data, and what draws them: SVG for a page, matplotlib for files."""

from rooflens.report.charts.chart import Bar, BarPiece, Bars, Chart, Dot, HeatCell, HeatMap, Limit, Plot, Series
from rooflens.report.figures.axes import Axis
