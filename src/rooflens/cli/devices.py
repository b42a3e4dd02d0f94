"""``rooflens devices``: the catalogue, and what is known about one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooflens.cli.options import FORMATS, TABLES, OutputPath, examples, in_color

if TYPE_CHECKING:
    from rooflens.records import Ceiling, Device, Fact
    from rooflens.report.table import Entries, Entry, Table

    _View = Callable[[Sequence[Device]], Sequence[Table]]
    _Flat = Callable[[Sequence[Device]], Table]

# Repeated here so that --help imports nothing; a test compares them with the originals.
KINDS = ("gpu", "cpu", "tpu", "soc", "accelerator")

_FACTS = ("year", "units", "clock", "memory", "l2", "power")
"""Facts that data sheets state; the others come of calibrations."""
_UNVERIFIED = "? not verified: the source was not checked, or the rule behind the value is rough"
_CONVENTIONS = "Rates are dense and per torch device; one multiply-add is 2 FLOP."


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "rooflens devices                            all of them",
        "rooflens devices list --vendor amd          those of one maker",
        "rooflens devices show a100-sxm4-40gb        everything about one",
        "rooflens devices show t4 l4 --format json   for a program",
    ),
)
@click.pass_context
def devices(context: click.Context) -> None:
    """Devices that rooflens knows, with a source for every number."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


def _output_options(command: Any) -> Any:
    outputs = click.option(
        "-o",
        "--output",
        "outputs",
        type=OutputPath(*TABLES),
        multiple=True,
        help=f"Also write this file: {' '.join(TABLES)}. Repeatable.",
    )
    format_ = click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="json and csv hold numbers in base units: FLOP/s, B/s, B, Hz, W.",
    )
    return format_(outputs(command))


@devices.command(
    "list",
    epilog=examples(
        "rooflens devices list",
        "rooflens devices list --vendor nvidia --kind gpu",
        "rooflens devices list --format csv -o devices.csv",
    ),
)
@click.option("--vendor", metavar="NAME", help="Only devices of this maker, like nvidia.")
@click.option("--kind", type=click.Choice(KINDS), help="Only devices of this kind.")
@_output_options
def list_(
    vendor: str | None = None, kind: str | None = None, format_: str = "table", outputs: tuple[Path, ...] = ()
) -> None:
    """List the catalogue: main rates, bandwidth and memory."""
    from rooflens.api.catalogue import devices as catalogue

    _emit(catalogue(vendor=vendor, kind=kind), _overview, _flat, format_, outputs)


@devices.command(
    short_help="Show every rate of a device and its source.",
    epilog=examples(
        "rooflens devices show h100-sxm",
        'rooflens devices show "NVIDIA A100-SXM4-40GB" "2x v100-sxm2-16gb"',
        "rooflens devices show my-board.toml",
    ),
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_output_options
def show(names: tuple[str, ...], format_: str, outputs: tuple[Path, ...]) -> None:
    """Show every rate of a device, where it comes from, and what else is known.

    NAME is a name from 'rooflens devices list', a shorter one (t4, h100-sxm), a name that drivers report, '2x NAME' for
    two of them, or a device file of your own that ends in .toml. Case and separators do not matter.
    """
    from rooflens.api.catalogue import device

    show_sheets(tuple(map(device, names)), format_, outputs)


def show_sheets(found: Sequence[Device], format_: str, outputs: Sequence[Path]) -> None:
    """Print every rate of some devices and write each output; paths are told on stderr."""
    _emit(found, _sheets, _values, format_, outputs)


def _emit(found: Sequence[Device], view: _View, flat: _Flat, format_: str, outputs: Sequence[Path]) -> None:
    """Print the devices in the format asked for and write each output; paths are told on stderr."""
    from rooflens.records import write_atomically

    def text(wanted: Any, color: bool) -> str:
        from rooflens.report.render import render
        from rooflens.report.text_formats import as_json

        if wanted == "json":
            return as_json(list(map(_described, found)))
        return render(flat(found) if wanted == "csv" else view(found), wanted, color=color)

    click.echo(text(format_, color=in_color()), nl=False)
    for path in outputs:
        write_atomically(path, text(TABLES[path.suffix.lower()], color=False))
        click.echo(f"wrote {path}", err=True)


def _overview(found: Sequence[Device]) -> list[Table]:
    """One table per vendor, for people: a column for the vendor would leave too little room for the names."""
    from rooflens.report.table import Column, build

    columns = (
        Column(key="name", header="name", align="left"),
        Column(key="year", header="year", group="about", show="room"),
        Column(key="fp32", header="fp32 FLOP/s", unit="FLOP/s", group="about"),
        Column(key="matmul", header="16-bit FLOP/s", unit="FLOP/s", group="about"),
        Column(key="dram", header="DRAM B/s", unit="B/s", group="about"),
        Column(key="memory", header="size B", unit="B", group="about"),
    )
    notes = (
        "fp32 is vector.fp32; 16-bit is matmul.bf16, or matmul.fp16 where there is no bf16; size is that of memory.",
        _CONVENTIONS,
        _UNVERIFIED,
        "'rooflens devices show NAME' tells every rate and its source; short names like t4 or k80 work too.",
    )
    if not found:
        return [build("no device is of this vendor and kind", columns, ())]
    vendors = sorted({device.vendor for device in found}, key=str.lower)
    return [
        build(
            vendor,
            columns,
            [_overview_row(device) for device in found if device.vendor == vendor],
            notes=notes if vendor == vendors[-1] else (),
        )
        for vendor in vendors
    ]


def _overview_row(device: Device) -> Entries:
    from rooflens.report.table import Entry

    year = device.facts.get("year")
    return {
        "name": device.name,
        "year": Entry(None) if year is None else Entry(f"{year.value:.0f}", mark=_mark(year)),
        "fp32": _rate(device.ceiling("vector.fp32")),
        "matmul": _rate(device.ceiling("matmul.bf16") or device.ceiling("matmul.fp16")),
        "dram": _rate(device.ceiling("dram")),
        "memory": _amount(device.facts.get("memory")),
    }


def _flat(found: Sequence[Device]) -> Table:
    """One row per device, for files: every rate and fact in a column of its own."""
    from rooflens.report.table import Column, build

    resources = list(dict.fromkeys(ceiling.resource for device in found for ceiling in device.ceilings))
    keys = ("name", "title", "vendor", "kind", "arch", *_FACTS, *sorted(resources), "unverified")

    def row(device: Device) -> Entries:
        known: dict[str, Ceiling | Fact] = {**device.facts, **{c.resource: c for c in device.ceilings}}
        values = {row["quantity"]: row["value"] for row in _rows(device)}
        return {
            **{key: getattr(device, key) for key in ("name", "title", "vendor", "kind", "arch")},
            **values,
            "unverified": " ".join(name for name, value in known.items() if not value.verified),
        }

    return build("devices", [Column(key=key, header=key) for key in keys], map(row, found))


def _values(found: Sequence[Device]) -> Table:
    """One row per rate and fact, for files."""
    from rooflens.report.table import Column, build

    keys = ("device", "quantity", "value", "unit", "ridge", "silicon", "accumulate", "origin", "verified", "reference")
    rows = ({"device": device.name, **row} for device in found for row in _rows(device))
    return build("values", [Column(key=key, header=key) for key in keys], rows)


def _sheets(found: Sequence[Device]) -> list[Table]:
    return list(map(_sheet, found))


def _sheet(device: Device) -> Table:
    """Everything about one device, for people. References are numbered, and listed below."""
    from rooflens.report.table import Column, Entry, build
    from rooflens.units import show as quantity

    numbers: dict[str, int] = {}

    def sources(reference: str) -> str:
        return " ".join(str(numbers.setdefault(part, len(numbers) + 1)) for part in reference.split("; "))

    def row(values: dict[str, Any]) -> Entries:
        shown = quantity(values["value"], values["unit"]) if values["unit"] else str(values["value"])
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
    from rooflens.devices.files import FACTS
    from rooflens.report.columns import whole

    dram = device.ceiling("dram")
    for ceiling in device.ceilings:
        yield {
            "quantity": ceiling.resource,
            "value": whole(ceiling.rate),
            "unit": "FLOP/s" if ceiling.computes else "B/s",
            "ridge": _ridge(ceiling, dram),
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


def _described(device: Device) -> dict[str, Any]:
    """Everything about a device, for a program."""
    from dataclasses import asdict

    fields = asdict(device)
    dram = device.ceiling("dram")
    for described, ceiling in zip(fields["ceilings"], device.ceilings, strict=True):
        described["ridge"] = _ridge(ceiling, dram)
    return fields


def _ridge(ceiling: Ceiling, dram: Ceiling | None) -> float | None:
    """FLOP per DRAM byte at which a compute ceiling begins to bind; None for bandwidths."""
    from rooflens.roofline import ridge

    return ridge(ceiling, dram) if dram is not None and ceiling.computes else None


def _mark(known: Ceiling | Fact) -> str:
    return "" if known.verified else "?"


def _rate(ceiling: Ceiling | None) -> Entry:
    return _short(None if ceiling is None else ceiling.rate, ceiling)


def _amount(fact: Fact | None) -> Entry:
    return _short(None if fact is None else fact.value, fact)


def _short(value: float | None, known: Ceiling | Fact | None) -> Entry:
    """Three digits without a unit, which the header names: the longest names fit beside them into 80 columns."""
    from rooflens.report.table import Entry
    from rooflens.units import show as quantity

    return (
        Entry(None) if value is None or known is None else Entry(value, mark=_mark(known), label=quantity(value, "", 3))
    )
