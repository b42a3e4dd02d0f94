"""Rooflines: each device with its cases, and all devices on one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rooflens import units
from rooflens.records import Source
from rooflens.report.case_names import SOURCE_WORDS
from rooflens.report.charts import Dot, Plot, Series
from rooflens.report.figures.drawn_marks import DrawnMark, drawn_marks
from rooflens.report.figures.labels import footnotes
from rooflens.report.figures.palette import GREY, OTHER, SHAPES, ceiling_colour, ceiling_dash, group_colours
from rooflens.report.figures.roofline import devices_of, evidence_figure
from rooflens.report.figures.saving import Figure
from rooflens.report.study.content import FigureBlock, Section
from rooflens.report.study.view import StudyView

_USUAL = 10.0
"""Points across a mark of the usual size."""
MOST_DEVICES = 12
"""Devices that have a roofline of their own, those with most cases."""


def rooflines(view: StudyView) -> Section | None:
    """All devices on one figure, then one figure for each."""
    devices = devices_of(view.records)
    if not devices or not any(record.work is not None for record in view.records):
        return None
    figures = {}
    if len(devices) > 1:
        figures["roofline"] = evidence_figure(view.evidence, devices, by="model", title="All devices")
    cases = Counter(case.device for case in view.records.cases)
    for device in sorted(devices, key=lambda device: -cases[device.name])[:MOST_DEVICES]:
        own = [item for item in view.evidence if item.case.device == device.name]
        figures[f"roofline-{name_in_files(device.name)}"] = evidence_figure(
            own, [device], by="model", title=device.title
        )
    blocks = (FigureBlock(chart=as_plot(key, figure), figure=figure) for key, figure in figures.items())
    return Section(key="rooflines", title="Rooflines", blocks=tuple(blocks))


def name_in_files(device: str) -> str:
    """Return the name of a device as it stands in names of files and of places on a page."""
    return re.sub(r"[^\w.-]+", "-", device)


def as_plot(key: str, figure: Figure) -> Plot:
    """A roofline as lines and points; what hovers over a mark is what the figure says of it."""
    series = (*_ceilings(figure), *_marks(figure))
    batches = [mark.batch for mark in figure.marks if mark.batch is not None] if figure.sizes == "batch" else []
    sizes = [f"size of a mark: batch {min(batches)} to {max(batches)}"] if batches else []
    notes = (*filter(None, [figure.subtitle]), *sizes, *footnotes(figure, 3))
    return Plot(key=key, title=figure.title, x=figure.x, y=figure.y, series=series, notes=notes)


def _ceilings(figure: Figure) -> Iterator[Series]:
    """A line each; on a figure of one device those of the same height share a label."""
    several = len(figure.devices) > 1
    labels: dict[float, list[str]] = {}
    for line in figure.ceilings:
        labels.setdefault(line.rate, []).append(line.resource)
    for line in figure.ceilings:
        device = figure.devices[line.device]
        rate = units.show(line.rate, "B/s" if line.kind == "memory" else "FLOP/s", 3)
        label = "" if several or line.kind == "memory" else ", ".join(labels.pop(line.rate, ()))
        yield Series(
            name=device if several else "",
            colour=ceiling_colour(line.device, len(figure.devices), line.resource, by_level=False),
            dash=ceiling_dash(line.device, len(figure.devices), line.resource),
            path=(line.start, line.end),
            tip=(f"{device}: {line.resource}", rate, line.origin),
            label=f"{label} {rate}" if label else "",
        )


def _marks(figure: Figure) -> Iterator[Series]:
    """The lines between marks, the marks of each group and source, and what a symbol stands for."""
    colours = group_colours(figure.groups)
    for ends, dash, group in (
        *((trail.points, (4, 2), trail.group) for trail in figure.trails),
        *(((link.start, link.end), (), link.group) for link in figure.links),
    ):
        yield Series(name="", colour=colours.get(group, GREY), path=ends, dash=dash, width=0.8)
    shown: set[Source] = set()
    drawn = drawn_marks(figure, colours)
    for group in figure.groups:
        for source in SHAPES:
            marks = [one for one in drawn if (one.mark.group, one.mark.source) == (group, source)]
            if marks:
                shown.add(source)
                dots = tuple(_dot(one, len(figure.devices)) for one in marks)
                name = f"{len(figure.rest)} more, see note" if group == OTHER and figure.rest else group
                yield Series(name=name, colour=colours[group], shape=SHAPES[source], dots=dots)
    sources = [source for source in SHAPES if source in shown]
    if sources != ["estimate"]:
        for source in sources:
            yield Series(name=SOURCE_WORDS[source], colour=GREY, shape=SHAPES[source])


def _dot(drawn: DrawnMark, devices: int) -> Dot:
    """A mark as large as in a file; of several devices the lines are named, and marks under the pointer."""
    mark = drawn.mark
    label = "" if devices > 1 else mark.label
    return Dot(
        mark.x, mark.y, (mark.label, *mark.hover), label=label, size=drawn.diameter / _USUAL, crossed=mark.too_large
    )
