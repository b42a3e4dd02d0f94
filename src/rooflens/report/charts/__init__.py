"""Charts of a report as data, and what draws them: SVG for a page, matplotlib for files."""

from rooflens.report.charts.chart import (
    Axis,
    Bar,
    Bars,
    Chart,
    Dot,
    HeatCell,
    HeatMap,
    Part,
    Plot,
    Scale,
    Series,
    Shape,
)

__all__ = ["Axis", "Bar", "Bars", "Chart", "Dot", "HeatCell", "HeatMap", "Part", "Plot", "Scale", "Series", "Shape"]
