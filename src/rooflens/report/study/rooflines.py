"""Rooflines: each device with its cases, and all devices on one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rooflens import units
from rooflens.records import Device, Source
from rooflens.report.case_names import SOURCE_WORDS
from rooflens.report.charts import Axis, Dot, Plot, Series
from rooflens.report.figures.labels import footnotes
from rooflens.report.figures.palette import GREY, SHAPES, ceiling_colour, ceiling_dash, group_colours
from rooflens.report.figures.roofline import devices_of, roofline_figure
from rooflens.report.figures.saving import Figure
from rooflens.report.study.content import FigureBlock, Section
from rooflens.report.study.view import StudyView
from rooflens.results import RecordSet

MOST_DEVICES = 12
"""Devices that have a roofline of their own, those with most cases."""


def rooflines(view: StudyView) -> Section | None:
    """All devices on one figure, then one figure for each."""
    devices = devices_of(view.records)
    if not devices or not any(record.work is not None for record in view.records):
        return None
    level = "dram"
    blocks = [
        _drawn("roofline", roofline_figure(view.records, by="model", level=level, title="All devices"))
        for _ in range(len(devices) > 1)
    ]
    blocks += [
        _drawn(
            f"roofline-{_as_name(device.name)}",
            roofline_figure(of, by="model", devices=[device], level=level, title=title),
        )
        for device, of, title in _each(view.records, devices)
    ]
    return Section(key="rooflines", title="Rooflines", blocks=tuple(blocks))


def _as_name(device: str) -> str:
    """A device in the name of a file and of a place on a page: ``2x-tesla-t4``."""
    return re.sub(r"[^\w.-]+", "-", device)


def _each(records: RecordSet, devices: Sequence[Device]) -> Iterator[tuple[Device, RecordSet, str]]:
    cases = {device.name: 0 for device in devices}
    for case in records.cases:
        if case.device in cases:
            cases[case.device] += 1
    for device in sorted(devices, key=lambda device: -cases[device.name])[:MOST_DEVICES]:
        yield device, records.where(device=device.name), device.title


def _drawn(key: str, figure: Figure) -> FigureBlock:
    return FigureBlock(chart=as_plot(key, figure), figure=figure)


def as_plot(key: str, figure: Figure) -> Plot:
    """A roofline as lines and points; what hovers over a mark is what the figure says of it."""
    x = Axis(label=figure.x.label, low=figure.x.low, high=figure.x.high)
    y = Axis(label="performance", low=figure.y.low, high=figure.y.high, unit="FLOP/s")
    series = (*_ceilings(figure), *_marks(figure))
    return Plot(key=key, title=figure.title, x=x, y=y, series=series, notes=tuple(_notes(figure)))


def _ceilings(figure: Figure) -> Iterator[Series]:
    """A line each; on a figure of one device those of the same height share their words."""
    several = len(figure.devices) > 1
    labels: dict[float, list[str]] = {}
    for line in figure.ceilings:
        labels.setdefault(line.rate, []).append(line.resource)
    for line in figure.ceilings:
        device = figure.devices[line.device]
        rate = units.show(line.rate, "B/s" if line.kind == "memory" else "FLOP/s", 3)
        words = "" if several or line.kind == "memory" else ", ".join(labels.pop(line.rate, ()))
        yield Series(
            name=device if several else "",
            colour=ceiling_colour(line.device, len(figure.devices), line.resource, hierarchical=False),
            dash=ceiling_dash(line.device, len(figure.devices), line.resource),
            path=(line.start, line.end),
            tip=(f"{device}: {line.resource}", rate, line.origin),
            label=f"{words} {rate}" if words else "",
        )


def _marks(figure: Figure) -> Iterator[Series]:
    """What a colour stands for, and below it what a shape does."""
    colours = group_colours(figure.groups)
    found: list[Source] = []
    for group in figure.groups:
        for source in SHAPES:
            marks = [mark for mark in figure.marks if mark.group == group and mark.source == source]
            if marks:
                found.append(source)
                dots = tuple(Dot(mark.x, mark.y, (mark.label, *mark.hover)) for mark in marks)
                yield Series(name=group, colour=colours[group], shape=SHAPES[source], dots=dots)
    sources = [source for source in SHAPES if source in found]
    if sources != ["estimate"]:
        for source in sources:
            yield Series(name=SOURCE_WORDS[source], colour=GREY, shape=SHAPES[source])


def _notes(figure: Figure) -> Iterator[str]:
    if figure.subtitle:
        yield figure.subtitle
    yield from footnotes(figure, 3)
