"""Tables of devices: the catalogue, everything about one device, and what a calibration measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rooflens.devices.files import FACTS
from rooflens.records import Ceiling, Device, Fact
from rooflens.report.columns import whole
from rooflens.report.table import PERCENT, Column, Entries, Entry, Table, build
from rooflens.units import show

_FACTS = ("year", "units", "clock", "memory", "l2", "power")
"""Facts that data sheets state; the others come of calibrations."""
_UNVERIFIED = "? not verified: the source was not checked, or the rule behind the value is rough"
_CONVENTIONS = "Rates are dense and per torch device; one multiply-add is 2 FLOP."
_CALIBRATION = (
    "Ratio: measured over the catalogue's rate for this machine, where it has one.",
    "? not verified: the source was not checked, or a rule behind the value is rough.",
)


_OVERVIEW = (
    Column("name", "name", align="left"),
    Column("year", "year", read=lambda device: _year(device.facts.get("year")), group="about", show="room"),
    Column("fp32", "fp32 FLOP/s", "FLOP/s", lambda device: _short(device.ceiling("vector.fp32")), group="about"),
    Column(
        "matmul",
        "16-bit FLOP/s",
        "FLOP/s",
        lambda device: _short(device.ceiling("matmul.bf16") or device.ceiling("matmul.fp16")),
        group="about",
    ),
    Column("dram", "DRAM B/s", "B/s", lambda device: _short(device.ceiling("dram")), group="about"),
    Column("memory", "size B", "B", lambda device: _short(device.facts.get("memory")), group="about"),
)


def overview(listed: Sequence[Device]) -> list[Table]:
    """One table per vendor, for people: a column for the vendor would leave too little room for the names."""
    notes = (
        "fp32 is vector.fp32; 16-bit is matmul.bf16, or matmul.fp16 where there is no bf16; size is that of memory.",
        _CONVENTIONS,
        _UNVERIFIED,
        "'rooflens devices show NAME' tells every rate and its source; short names like t4 or k80 work too.",
    )
    if not listed:
        return [build("no device is of this vendor and kind", _OVERVIEW, ())]
    vendors = sorted({device.vendor for device in listed}, key=str.lower)
    return [
        build(
            vendor,
            _OVERVIEW,
            [device for device in listed if device.vendor == vendor],
            notes=notes if vendor == vendors[-1] else (),
        )
        for vendor in vendors
    ]


def _year(fact: Fact | None) -> Entry:
    return Entry(None) if fact is None else Entry(f"{fact.value:.0f}", mark=_mark(fact))


def values_by_device(listed: Sequence[Device]) -> Table:
    """One row per device, for files: every rate and fact in a column of its own."""
    resources = list(dict.fromkeys(ceiling.resource for device in listed for ceiling in device.ceilings))
    keys = ("name", "title", "vendor", "kind", "arch", *_FACTS, *sorted(resources), "unverified")

    def row(device: Device) -> Entries:
        known: dict[str, Ceiling | Fact] = {**device.facts, **{c.resource: c for c in device.ceilings}}
        values = {row["quantity"]: row["value"] for row in _rows(device)}
        return {
            **{key: getattr(device, key) for key in ("name", "title", "vendor", "kind", "arch")},
            **values,
            "unverified": " ".join(name for name, value in known.items() if not value.verified),
        }

    return build("devices", [Column(key=key, header=key) for key in keys], map(row, listed))


def values_by_line(listed: Sequence[Device]) -> Table:
    """One row per rate and fact, for files."""
    keys = ("device", "quantity", "value", "unit", "ridge", "silicon", "accumulate", "origin", "verified", "reference")
    rows = ({"device": device.name, **row} for device in listed for row in _rows(device))
    return build("values", [Column(key=key, header=key) for key in keys], rows)


def device_tables(listed: Sequence[Device]) -> list[Table]:
    return list(map(_sheet, listed))


def _sheet(device: Device) -> Table:
    """Everything about one device, for people. References are numbered, and listed below."""
    numbers: dict[str, int] = {}

    def sources(reference: str) -> str:
        return " ".join(str(numbers.setdefault(part, len(numbers) + 1)) for part in reference.split("; "))

    def row(values: dict[str, Any]) -> Entries:
        shown = show(values["value"], values["unit"]) if values["unit"] else str(values["value"])
        mark = "" if values["verified"] else "?"
        return {
            **values,
            "value": Entry(values["value"], mark=mark, label=shown),
            "sources": sources(values["reference"]),
        }

    columns = (
        Column(key="quantity", header="", align="left"),
        Column(key="value", header="value"),
        Column(key="ridge", header="ridge FLOP/B", unit="FLOP/B", group="about", show="room"),
        Column(key="silicon", header="silicon", align="left", group="about", show="room"),
        Column(key="accumulate", header="sums in", align="left", group="about", show="room"),
        Column(key="origin", header="origin", align="left", group="about", show="room"),
        Column(key="sources", header="sources", align="left", group="about"),
    )
    rows = [row(values) for values in _rows(device)]
    notes = (
        f"{_CONVENTIONS} Ridge: FLOP per DRAM byte from which compute binds. Times on one silicon add.",
        *([] if all(values["verified"] for values in _rows(device)) else [_UNVERIFIED]),
        *(f"source {number}: {part}" for part, number in numbers.items()),
        *([f"other names: {', '.join(device.aliases)}"] if device.aliases else []),
        *([device.notes] if device.notes else []),
    )
    about = ", ".join(filter(None, [device.title, device.vendor, device.kind, device.arch]))
    return build(f"{device.name}: {about}", columns, rows, notes=notes)


def _rows(device: Device) -> Iterator[dict[str, Any]]:
    """The rates and facts of a device in one shape."""
    for ceiling in device.ceilings:
        yield {
            "quantity": ceiling.resource,
            "value": whole(ceiling.rate),
            "unit": "FLOP/s" if ceiling.computes else "B/s",
            "ridge": device.ridge(ceiling.resource),
            "silicon": ceiling.silicon,
            "accumulate": ceiling.accumulate,
            "origin": ceiling.origin,
            "verified": ceiling.verified,
            "reference": ceiling.reference,
        }
    for name, fact in device.facts.items():
        yield {
            "quantity": name,
            "value": whole(fact.value),
            "unit": FACTS.get(name) or "",
            "origin": fact.origin,
            "verified": fact.verified,
            "reference": fact.reference,
        }


def described(device: Device) -> dict[str, Any]:
    """Everything about a device, for a program."""
    fields = asdict(device)
    for described, ceiling in zip(fields["ceilings"], device.ceilings, strict=True):
        described["ridge"] = device.ridge(ceiling.resource)
    return fields


def _mark(known: Ceiling | Fact) -> str:
    return "" if known.verified else "?"


def _short(known: Ceiling | Fact | None) -> Entry:
    """Three digits without a unit, which the header names: the longest names fit beside them into 80 columns."""
    if known is None:
        return Entry(None)
    value = known.rate if isinstance(known, Ceiling) else known.value
    return Entry(value, mark=_mark(known), label=show(value, "", 3))


def rates(device: Device, datasheet: Device | None) -> Table:
    """The ceilings that were measured, beside the catalogue's."""
    sheets = {} if datasheet is None else {ceiling.resource: ceiling for ceiling in datasheet.ceilings}

    def ratio(ceiling: Ceiling) -> float | None:
        sheet = sheets.get(ceiling.resource)
        return None if sheet is None else ceiling.rate / sheet.rate

    columns = (
        Column("resource", "resource", align="left"),
        Column("measured", "measured", read=_measured_rate),
        Column("datasheet", "catalogue", read=lambda ceiling: _measured_rate(sheets.get(ceiling.resource))),
        Column("ratio", "ratio", PERCENT, ratio),
        Column("how", "how", read=_how, align="left"),
    )
    measured = [ceiling for ceiling in device.ceilings if ceiling != sheets.get(ceiling.resource)]
    notes = [*(_CALIBRATION if sheets else ()), *([device.notes] if device.notes else [])]
    return build(device.title, columns, measured, notes=notes)


def amounts(device: Device) -> Table:
    """The facts that were measured: single bandwidths and overheads."""
    columns = (
        Column(key="fact", header="besides", align="left"),
        Column(key="value", header="measured"),
        Column(key="how", header="how", align="left"),
    )
    rows: list[Entries] = [
        {"fact": name, "value": Entry(fact.value, label=show(fact.value, FACTS.get(name) or "")), "how": fact.reference}
        for name, fact in device.facts.items()
        if fact.origin == "measured"
    ]
    return build("Not ceilings, but measured as well", columns, rows)


def _how(ceiling: Ceiling) -> str:
    return ceiling.reference if ceiling.origin == "measured" else f"{ceiling.origin}: {ceiling.reference}"


def _measured_rate(ceiling: Ceiling | None) -> Entry:
    if ceiling is None:
        return Entry(None)
    unit = "FLOP/s" if ceiling.computes else "B/s"
    return Entry(ceiling.rate, mark=_mark(ceiling), label=show(ceiling.rate, unit))
