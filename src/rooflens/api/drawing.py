"""Pictures of any records: the roofline, and the other charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rooflens.machine import datasheet_of, find, listed
from rooflens.records import Device
from rooflens.results import RecordSet

if TYPE_CHECKING:
    from rooflens.report.figures.case_pieces import By
    from rooflens.report.figures.saving import Figure
    from rooflens.report.pictures import ChartPicture


def roofline(
    *records: RecordSet,
    by: By | None = None,
    device: str | Device | Sequence[str | Device] | None = None,
    level: str | Sequence[str] | None = None,
    title: str | None = None,
    top: int | None = None,
) -> Figure:
    """The roofline of estimates and measurements: ``rl.roofline(est, time).save("resnet18.html")``.

    Args:
        records: sets of any sources; the estimated and the measured point of the same thing are joined by a line.
        by: one mark per ``model``, ``phase``, ``module``, ``family``, ``op`` or ``kernel``; default: what the records
            allow.
        device: draw these devices' ceilings too, or instead of none; a name in the records or the catalogue. Beside
            measured ceilings, those of the catalogue's entry for the same machine are drawn in any case.
        level: memory levels of the intensities: ``dram``, ``l2``, ``l1`` or several. Default: all whose bytes are
            known, so that counters give the hierarchical roofline.
        title: default: what the records have in common.
        top: how many kernels, modules ... of a case to draw, those that take most time. Default: 12 of kernels, and of
            anything on several levels; else all.

    Raises:
        InvalidValue: an unknown `by` or `level`, or a `top` below 1.
        UnknownDevice: nobody knows a device of this name.
    """
    from rooflens.report.figures.roofline import devices_of, roofline_figure

    together = _together(records)
    extra = [together.devices.get(d) or find(d) if isinstance(d, str) else d for d in listed(device)]
    shown = [*devices_of(together), *extra]
    datasheets = [sheet for sheet in map(datasheet_of, shown) if sheet is not None]
    return roofline_figure(together, by=by, devices=[*shown, *datasheets], level=level, title=title, top=top)


def chart(name: str, *records: RecordSet) -> ChartPicture:
    """Return a chart of estimates and measurements: ``rl.chart("throughput", est, time).save("resnet18.svg")``.

    Args:
        name: ``agreement`` (bound against measured time), ``latency`` (time against FLOP) or ``throughput`` (samples
            per second against the batch).
        records: sets of any sources.

    Raises:
        InvalidValue: an unknown `name`, or the records hold nothing for this chart.
        Incomparable: no record of a whole step has a time.
    """
    from rooflens.report.pictures import chart_of

    return chart_of(name, _together(records))


def _together(records: Sequence[RecordSet]) -> RecordSet:
    return sum(records[1:], start=records[0]) if records else RecordSet(())
