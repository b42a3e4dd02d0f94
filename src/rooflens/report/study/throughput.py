"""Throughput against batch, and the devices beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rooflens import units
from rooflens.compare import Sweep, sweeps
from rooflens.report.charts import Axis, Dot, Plot, Series
from rooflens.report.comparison import devices_tables
from rooflens.report.figures.palette import device_colour
from rooflens.report.series import sweep_table
from rooflens.report.study.cases import SHAPES, naming
from rooflens.report.study.content import FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView

MOST_LINES = 40
"""Sweeps that are drawn: those of the highest throughput."""


def throughput(view: StudyView) -> Section | None:
    """How throughput grows with the batch, and where it stops to."""
    found = [sweep for sweep in sweeps(view.evidence, view.records.failures) if len(sweep.rates) > 1]
    if not found:
        return None
    blocks = (FigureBlock(chart=against_batch(found)), TableBlock(key="throughput", table=sweep_table(found)))
    return Section(key="throughput", title="Throughput", blocks=blocks)


def against_batch(found: Sequence[Sweep]) -> Plot:
    """A line per model and device: colour and shape tell the device, dashes what only the bound allows."""
    devices = list(dict.fromkeys(sweep.case.device or "" for sweep in found))
    named = naming([sweep.case for sweep in found])
    shown = sorted(found, key=lambda sweep: -sweep.best[1])[:MOST_LINES]
    series = []
    for sweep in sorted(shown, key=lambda sweep: devices.index(sweep.case.device or "")):
        number = devices.index(sweep.case.device or "")
        name = named(sweep.case)
        at_bound = sweep.origin == "bound"
        tips = [
            Dot(batch, rate, (name, f"batch {batch}: {units.show(rate)} samples/s", "at its bound" if at_bound else ""))
            for batch, rate in sweep.rates
        ]
        series.append(
            Series(
                name=sweep.case.device or "",
                colour=device_colour(number, max(2, len(devices))),
                shape=SHAPES[number % len(SHAPES)],
                path=tuple((float(batch), rate) for batch, rate in sweep.rates),
                dash=(3, 2) if at_bound else (),
                width=1.2,
                dots=tuple(replace(dot, tip=tuple(filter(None, dot.tip))) for dot in tips),
            )
        )
    notes = ["dashed: the most that the bound allows"] if any(sweep.origin == "bound" for sweep in shown) else []
    if len(found) > MOST_LINES:
        notes.append(f"the {MOST_LINES} of highest throughput of {len(found)}; the table has all")
    return Plot(
        key="throughput-batch",
        title="Throughput against batch",
        x=Axis.around("batch", [float(batch) for sweep in shown for batch, _ in sweep.rates], margin=1.2),
        y=Axis.around("samples per second", [rate for sweep in shown for _, rate in sweep.rates]),
        series=tuple(series),
        notes=tuple(notes),
    )


def devices(view: StudyView) -> Section | None:
    """The same steps on several devices."""
    if view.devices is None:
        return None
    first, *others = devices_tables(view.devices)
    blocks = (
        TableBlock(key="devices", table=first),
        *(TableBlock(key="alone", table=table, folded=True) for table in others),
    )
    return Section(key="devices", title="Devices", blocks=blocks)
