"""Charts of records that `rooflens plot --chart` draws instead of a roofline.

A new chart is a function from records to a `Chart` in a module of its own, and a line in `CHARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rooflens.compare import correlations, sweeps
from rooflens.compare.timed_cases import timed_cases
from rooflens.errors import InvalidValue, meant
from rooflens.report.charts import Chart
from rooflens.report.figures.roofline import devices_of, roofline_figure
from rooflens.report.figures.saving import Figure, Picture
from rooflens.report.study.agreement import achieved, against_measured, pairs
from rooflens.report.study.breakdown import By, shares
from rooflens.report.study.cases import device_order
from rooflens.report.study.causes import memory_by_cause, time_by_cause
from rooflens.report.study.content import FigureBlock, Report, Section
from rooflens.report.study.latency import against, heat_map
from rooflens.report.study.rooflines import as_plot, name_in_files
from rooflens.report.study.throughput import against_batch
from rooflens.results import RecordSet, join


@dataclass(frozen=True, slots=True)
class ChartPicture(Picture):
    """A chart that saves itself; a roofline is drawn as such."""

    chart: Chart
    figure: Figure | None = None
    suffixes: ClassVar[tuple[str, ...]] = ("png", "svg", "pdf", "html")

    def drawn(self, suffix: str, width: float | None = None) -> bytes:
        """Return the contents of a file; equal charts give equal files."""
        if self.figure is not None:
            return self.figure.drawn(suffix, width)
        if suffix == "html":
            from rooflens.report.study.html import render as page

            section = Section(key="chart", title="", blocks=(FigureBlock(chart=self.chart),))
            return page(Report(title=self.chart.title, subtitle="", sections=(section,))).encode()
        from rooflens.report.charts.with_matplotlib import render

        return render(self.chart, suffix, notes=True, width=width)


def agreement(records: RecordSet) -> Chart | None:
    """Return the bound of each step against its measured time; None where no step has both."""
    known = pairs(join(records))
    return against_measured(known, device_order(records)) if known else None


def latency(records: RecordSet) -> Chart | None:
    """Return the time of each step against its FLOP, expected where none was measured; None for fewer than two."""
    return against(timed_cases(records), "flops", device_order(records))


def throughput(records: RecordSet) -> Chart | None:
    """Return samples or tokens per second against the batch; None where no model has several batches."""
    known = sweeps(join(records), records.failures)
    several = [sweep for sweep in known if len(sweep.rates) > 1]
    return against_batch(several, device_order(records)) if several else None


def spent_on(records: RecordSet) -> Chart | None:
    """Return the bound of each case by what it waits for; None where no case has a bound."""
    return time_by_cause(join(records))


def held_for(records: RecordSet) -> Chart | None:
    """Return the memory at the peak of each case by cause; None where no estimate knows it."""
    return memory_by_cause(join(records))


def reached(records: RecordSet) -> Chart | None:
    """Return FLOP/s that were reached against what the bound allows; None where no step has both."""
    known = pairs(join(records))
    return achieved(known, device_order(records)) if known else None


def latency_by_parameters(records: RecordSet) -> Chart | None:
    """Return the time of each step against its parameters; None for fewer than two steps with both."""
    return against(timed_cases(records), "parameters", device_order(records))


def correlation(records: RecordSet) -> Chart | None:
    """Return how quantities go with latency; None where no setting has models enough."""
    known = correlations(records)
    return heat_map(known) if known else None


def shares_by(key: str, by: By, records: RecordSet) -> Chart | None:
    """Return what some pieces have of an amount of each case; None where no case has that amount."""
    return shares(join(records), key, by)


_SHARES = ("flops", "bytes", "bound", "time", "memory")
_BY: tuple[By, ...] = ("family", "phase")
_NEEDS: Mapping[str, str] = {
    "bound": "an estimate on a device",
    "time": "a profile, or phases that were measured",
}

CHARTS: Mapping[str, tuple[Callable[[RecordSet], Chart | None], str]] = {
    "achieved": (reached, "a step with an estimate on a device and a measured time"),
    "agreement": (agreement, "a step with an estimate on a device and a measured time"),
    "correlation": (correlation, "a time of several models with the same batch, dtype and mode"),
    "latency": (latency, "two steps with a time and FLOP"),
    "latency-parameters": (latency_by_parameters, "two steps with a time and parameters"),
    "memory-by-cause": (held_for, "an estimate"),
    "throughput": (throughput, "a model with times at two batches or more"),
    "time-by-cause": (spent_on, "an estimate on a device"),
    **{
        f"{key}-by-{by}": (
            partial(shares_by, key, by),
            f"{_NEEDS.get(key, 'an estimate')}{' of several phases' if by == 'phase' else ''}",
        )
        for by in _BY
        for key in _SHARES
    },
}
"""By name: a function, which returns None where the records hold nothing for its chart, and what the chart needs."""
IN_REPORTS: Mapping[str, str] = {
    "achieved-attainable": "achieved",
    "bound-measured": "agreement",
    "predicted-measured": "agreement",
    "latency-flops": "latency",
    "throughput-batch": "throughput",
}
"""Names of charts in a report of a study that have another one here; both are understood."""


def chart_of(name: str, records: RecordSet) -> ChartPicture:
    """Return the chart of this name, or a roofline: ``roofline`` of all devices, ``roofline-NAME`` of one.

    Raises:
        InvalidValue: there is no such chart, or the records hold nothing for it.
        Incomparable: no record of a whole step has a time.
    """
    name = IN_REPORTS.get(name, name)
    devices = devices_of(records)
    rooflines = {"roofline": devices, **{f"roofline-{name_in_files(its.name)}": (its,) for its in devices}}
    if name in rooflines:
        only = rooflines[name]
        own = records if name == "roofline" else records.where(device=only[0].name)
        figure = roofline_figure(own, by="model", devices=only)
        return ChartPicture(as_plot(name, figure), figure)
    if name not in CHARTS:
        known = [*CHARTS, *rooflines]
        raise InvalidValue(f"unknown chart {name!r}{meant(name, known)} (known: {', '.join(known)})")
    draw, needs = CHARTS[name]
    drawn = draw(records)
    if drawn is None:
        raise InvalidValue(f"the records hold nothing for the chart {name!r}, which needs {needs}")
    return ChartPicture(drawn)
