"""The figure of any records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rooflens.api.machine import datasheet_of, find
from rooflens.records import Device
from rooflens.results import RecordSet

if TYPE_CHECKING:
    from rooflens.report.drawing import Figure
    from rooflens.report.pieces import By


def roofline(
    *records: RecordSet,
    by: By | None = None,
    device: str | Device | Sequence[str | Device] | None = None,
    level: str = "dram",
    title: str | None = None,
) -> Figure:
    """The roofline of estimates and measurements: ``rl.roofline(est, time).save("resnet18.html")``.

    Args:
        records: sets of any sources; the estimated and the measured point of the same thing are joined by a line.
        by: one mark per ``model``, ``phase``, ``module``, ``family`` or ``op``; default: what the records allow.
        device: draw these devices' ceilings too, or instead of none. Beside measured ceilings, those of the catalogue's
            entry for the same machine are drawn in any case.
        level: memory level of the intensity.
        title: default: what the records have in common.
    """
    from rooflens.report.figure import roofline_figure

    wanted = [] if device is None else [device] if isinstance(device, str | Device) else list(device)
    extra = [find(d) if isinstance(d, str) else d for d in wanted]
    together = sum(records[1:], start=records[0]) if records else RecordSet(())
    shown = [*together.devices.values(), *extra]
    datasheets = [sheet for sheet in map(datasheet_of, shown) if sheet is not None]
    devices = [*shown, *datasheets] if extra or datasheets else None
    return roofline_figure(together, by=by, devices=devices, level=level, title=title)
