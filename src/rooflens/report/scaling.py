"""Several devices beside one: scaling efficiency, and what the all-reduce of gradients reaches of its link."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.records import Case, Ceiling, Device, Scaling
from rooflens.report.columns import CASE
from rooflens.report.table import COUNT, PERCENT, Column, Table, build
from rooflens.results import RecordSet

_WITHIN_A_MACHINE = ("nvlink", "pcie")
"""Links between devices, the fastest first."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A case that was measured on several devices, and the fastest link between them."""

    case: Case
    scaling: Scaling
    link: Ceiling | None

    @property
    def least_reduce(self) -> float | None:
        """Seconds of the bound of the all-reduce."""
        return None if self.link is None else self.scaling.least_reduce(self.link.rate)

    @property
    def peaks(self) -> list[int]:
        """Peak bytes of the devices that tell them."""
        return [peak for peak in self.scaling.peaks if peak is not None]


_SCALING = (
    *CASE,
    Column("devices", "devices", COUNT, "scaling.devices"),
    Column("alone", "step alone", "s", "scaling.alone.median"),
    Column("together", "together", "s", "scaling.together.median"),
    Column("efficiency", "scaling efficiency", PERCENT, "scaling.efficiency"),
    Column("exposed", "not hidden", "s", "scaling.exposed"),
    Column("gradients", "gradients", "B", "scaling.gradient_bytes"),
    Column("reduce", "all-reduce alone", "s", "scaling.reduce.median"),
    Column("least_reduce", "its bound", "s"),
    Column("bus", "bus bandwidth", "B/s", "scaling.bus_bandwidth"),
    Column("link", "of the link", PERCENT, lambda row: row.link and row.least_reduce / row.scaling.reduce.median),
    Column(
        "link_name",
        "link",
        read=lambda row: row.link and f"{row.link.resource} ({row.link.origin})",
        align="left",
        show="room",
    ),
    Column("peak_low", "peak memory, least", "B", lambda row: min(row.peaks, default=None), show="room"),
    Column("peak_high", "peak memory, most", "B", lambda row: max(row.peaks, default=None)),
)
_BUS_NOTE = (
    "bus bandwidth: 2 (n - 1) / n of the gradient bytes over the time of an all-reduce, in one direction; a link's"
    " ceiling counts both"
)


def scaling(rs: RecordSet) -> Table:
    """Return one row per measured case on several devices."""
    rows = [
        _Row(record.case, record.scaling, _link(rs.devices.get(record.case.device or "")))
        for record in rs
        if record.scaling is not None
    ]
    notes = ["alone: the same step on one device while the others wait; each device has a whole batch", _BUS_NOTE]
    if any(row.link is None for row in rows):
        notes.append("no link of the device is known: the bound of the all-reduce is unknown")
    return build("Scaling", _SCALING, rows, notes=notes if rows else ())


def _link(device: Device | None) -> Ceiling | None:
    """Return the fastest link between devices of a machine, None where none is known."""
    links = (None if device is None else device.ceiling(name) for name in _WITHIN_A_MACHINE)
    return next((link for link in links if link is not None), None)
