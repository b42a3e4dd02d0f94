"""Throughput against batch, and the devices beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rooflens import units
from rooflens.compare import Sweep
from rooflens.report.charts import Axis, Dot, Plot
from rooflens.report.comparison import devices_tables
from rooflens.report.series import sweep_table
from rooflens.report.study.cases import CaseLooks, naming
from rooflens.report.study.content import FigureBlock, Section, TableBlock
from rooflens.report.study.view import StudyView

_MOST_NAMED, _NAMES = 3, 0.4
MOST_LINES = 40
"""Sweeps that are drawn: those of the highest throughput."""


def throughput(view: StudyView) -> Section | None:
    """How throughput grows with the batch, and where it stops growing."""
    known = [sweep for sweep in view.sweeps if len(sweep.rates) > 1]
    if not known:
        return None
    blocks = (FigureBlock(chart=against_batch(known)), TableBlock(key="throughput", table=sweep_table(known)))
    return Section(key="throughput", title="Throughput", blocks=blocks)


def against_batch(known: Sequence[Sweep]) -> Plot:
    """A line per model, dtype and device, named beside it; dashes are what only the bound allows."""
    named = naming([sweep.case for sweep in known])
    shown = sorted(known, key=lambda sweep: -(sweep.best or (0, 0.0))[1])[:MOST_LINES]
    looks = CaseLooks.of([sweep.case for sweep in shown])
    series = []
    for sweep in shown:
        at_bound = sweep.origin == "bound"
        tips = ((named(sweep.case), f"batch {batch}: {units.show(rate)} samples/s") for batch, rate in sweep.rates)
        series.append(
            replace(
                looks.series(sweep.case),
                path=tuple((float(batch), rate) for batch, rate in sweep.rates),
                dash=(3, 2) if at_bound else (),
                width=1.2,
                dots=tuple(
                    looks.dot(sweep.case, Dot(batch, rate, (*tip, *_said(sweep, batch))))
                    for (batch, rate), tip in zip(sweep.rates, tips, strict=True)
                ),
            )
        )
    series += looks.legend()
    notes = ["dashed: the most that the bound allows"] if any(sweep.origin == "bound" for sweep in shown) else []
    notes += looks.notes()
    too_large = [sweep for sweep in shown if sweep.too_large]
    for sweep in too_large[:_MOST_NAMED]:
        batches = ", ".join(map(str, sweep.too_large))
        notes.append(f"{named(sweep.case)}: batch {batches} does not fit into the device's memory")
    if len(too_large) > _MOST_NAMED:
        notes.append(f"{len(too_large) - _MOST_NAMED} more lines have batches that do not fit; the table names them")
    if len(known) > MOST_LINES:
        notes.append(f"the {MOST_LINES} of highest throughput of {len(known)}; the table has all")
    return Plot(
        key="throughput-batch",
        title="Throughput against batch",
        x=_batches([float(batch) for sweep in shown for batch, _ in sweep.rates]),
        y=Axis.around("samples per second", [rate for sweep in shown for _, rate in sweep.rates]),
        series=tuple(series),
        notes=tuple(notes),
    )


def _said(sweep: Sweep, batch: int) -> Iterator[str]:
    """What a dot must say of itself."""
    if sweep.origin == "bound":
        yield "at its bound"
    if batch in sweep.too_large:
        yield "does not fit into the memory"


def _batches(batches: list[float]) -> Axis:
    """Return an axis with room for names at the right ends of lines."""
    around = Axis.around("batch", batches, margin=1.2)
    return replace(around, high=around.high * (around.high / around.low) ** _NAMES)


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
