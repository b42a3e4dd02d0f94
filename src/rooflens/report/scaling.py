"""Several devices beside one: scaling efficiency, and what the all-reduce of gradients reaches of its link."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.records import Device, Record
from rooflens.report.columns import CASE, case_cells
from rooflens.report.table import COUNT, PERCENT, Column, Entries, Table, build
from rooflens.results import RecordSet

_WITHIN_A_MACHINE = ("nvlink", "pcie")
"""Links between devices, the fastest first."""
_SCALING = (
    Column(key="devices", header="devices", unit=COUNT),
    Column(key="alone", header="step alone", unit="s"),
    Column(key="together", header="together", unit="s"),
    Column(key="efficiency", header="scaling efficiency", unit=PERCENT),
    Column(key="exposed", header="not hidden", unit="s"),
    Column(key="gradients", header="gradients", unit="B"),
    Column(key="reduce", header="all-reduce alone", unit="s"),
    Column(key="least_reduce", header="its bound", unit="s"),
    Column(key="bus", header="bus bandwidth", unit="B/s"),
    Column(key="link", header="of the link", unit=PERCENT),
    Column(key="link_name", header="link", align="left", show="room"),
    Column(key="peak_low", header="peak memory, least", unit="B", show="room"),
    Column(key="peak_high", header="peak memory, most", unit="B"),
)
_BUS_NOTE = (
    "bus bandwidth: 2 (n - 1) / n of the gradient bytes over the time of an all-reduce, in one direction; a link's"
    " ceiling counts both"
)


def scaling(rs: RecordSet) -> Table:
    """One row per measured case on several devices."""
    rows = [_row(record, rs.devices.get(record.case.device or "")) for record in rs if record.scaling is not None]
    notes = list(_notes(rows))
    return build("Scaling", (*CASE, *_SCALING), rows, notes=notes)


def _row(record: Record, device: Device | None) -> Entries:
    found = record.scaling
    assert found is not None
    link = next((c for name in _WITHIN_A_MACHINE if device and (c := device.ceiling(name)) is not None), None)
    peaks = [peak for peak in found.peaks if peak is not None]
    return case_cells(record.case) | {
        "devices": found.devices,
        "alone": found.alone.median,
        "together": found.together.median,
        "efficiency": found.efficiency,
        "exposed": found.exposed,
        "gradients": found.gradient_bytes,
        "reduce": found.reduce.median,
        "least_reduce": None if link is None else found.least_reduce(link.rate),
        "bus": found.bus_bandwidth,
        "link": None if link is None else found.least_reduce(link.rate) / found.reduce.median,
        "link_name": None if link is None else f"{link.resource} ({link.origin})",
        "peak_low": min(peaks, default=None),
        "peak_high": max(peaks, default=None),
    }


def _notes(rows: list[Entries]) -> Iterator[str]:
    if rows:
        yield "alone: the same step on one device while the others wait; each device has a whole batch"
        yield _BUS_NOTE
    if any(row["least_reduce"] is None for row in rows):
        yield "no link of the device is known: the bound of the all-reduce is unknown"
