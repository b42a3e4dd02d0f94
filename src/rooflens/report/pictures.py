"""Charts of records that `rooflens plot --chart` draws instead of a roofline.

A new chart is a function from records to a `Chart` in a module of its own, and a line in `CHARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from rooflens.compare import sweeps
from rooflens.compare.timed_cases import timed_cases
from rooflens.errors import InvalidValue
from rooflens.report.charts import Chart
from rooflens.report.figures.saving import Picture
from rooflens.report.study.agreement import against_measured, pairs
from rooflens.report.study.causes import memory_by_cause, time_by_cause
from rooflens.report.study.latency import against
from rooflens.report.study.throughput import against_batch
from rooflens.results import RecordSet, join


@dataclass(frozen=True, slots=True)
class ChartPicture(Picture):
    """A chart that saves itself."""

    chart: Chart
    suffixes: ClassVar[tuple[str, ...]] = ("png", "svg", "pdf")

    def drawn(self, suffix: str, width: float | None = None) -> bytes:
        """Return the contents of a file; equal charts give equal files."""
        from rooflens.report.charts.with_matplotlib import render

        return render(self.chart, suffix, notes=True, width=width)


def agreement(records: RecordSet) -> Chart | None:
    """Return the bound of each step against its measured time; None where no step has both."""
    known = pairs(join(records))
    return against_measured(known) if known else None


def latency(records: RecordSet) -> Chart | None:
    """Return the time of each step against its FLOP, expected where none was measured; None for fewer than two."""
    known = timed_cases(records)
    if known and known[0].time == "bound":
        expected = [replace(case, time="predicted") for case in known]
        known = known if any(case.seconds is None for case in expected) else tuple(expected)
    return against(known, "flops")


def throughput(records: RecordSet) -> Chart | None:
    """Return samples per second against the batch; None where no model has several batches."""
    several = [sweep for sweep in sweeps(join(records), records.failures) if len(sweep.rates) > 1]
    return against_batch(several) if several else None


def spent_on(records: RecordSet) -> Chart | None:
    """Return the bound of each case by what it waits for; None where no case has a bound."""
    return time_by_cause(join(records))


def held_for(records: RecordSet) -> Chart | None:
    """Return the memory at the peak of each case by cause; None where no estimate knows it."""
    return memory_by_cause(join(records))


CHARTS: Mapping[str, tuple[Callable[[RecordSet], Chart | None], str]] = {
    "agreement": (agreement, "a step with an estimate on a device and a measured time"),
    "latency": (latency, "two steps with a time and FLOP"),
    "memory-by-cause": (held_for, "an estimate"),
    "throughput": (throughput, "a model with times at two batches or more"),
    "time-by-cause": (spent_on, "an estimate on a device"),
}
"""By name: a function, which returns None where the records hold nothing for its chart, and what the chart needs."""


def chart_of(name: str, records: RecordSet) -> ChartPicture:
    """Return the chart of this name.

    Raises:
        InvalidValue: there is no such chart, or the records hold nothing for it.
        Incomparable: no record of a whole step has a time.
    """
    if name not in CHARTS:
        raise InvalidValue(f"unknown chart {name!r}; known: {', '.join(CHARTS)}")
    draw, needs = CHARTS[name]
    drawn = draw(records)
    if drawn is None:
        raise InvalidValue(f"the records hold nothing for the chart {name!r}, which needs {needs}")
    return ChartPicture(drawn)
