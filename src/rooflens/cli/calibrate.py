"""``rooflens calibrate``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rooflens.cli.options import OutputPath, examples, progress_bar

if TYPE_CHECKING:
    from rooflens.records import Ceiling, Device
    from rooflens.report.table import Entries, Entry, Table

_MARK = "?"
_NOTES = (
    "Ratio: measured over the catalogue's rate for this machine, where it has one.",
    f"{_MARK} not verified: the source was not checked, or a rule behind the value is rough.",
)


@click.command(
    epilog=examples(
        "rooflens calibrate",
        "rooflens calibrate --device cpu --quick",
        "rooflens calibrate -o my-machine.toml",
        "rooflens estimate resnet18 --device measured",
    )
)
@click.option(
    "--device", type=click.Choice(("cpu", "cuda")), help="What to calibrate; default: the GPU if there is one."
)
@click.option(
    "-o",
    "--output",
    type=OutputPath(".toml"),
    help="Write this device file; default: a file in your cache, which --device measured reads.",
)
@click.option("--budget", type=click.FloatRange(1.0), help="Seconds for all of it; default: 90, or 30 with --quick.")
@click.option("--quick", is_flag=True, help="Fewer shapes and sizes.")
def calibrate(device: str | None, output: Path | None, budget: float | None, quick: bool) -> None:
    """Measure the ceilings of this machine: matrix, vector and special rates, memory, caches, links, overheads.

    They are written as a device file. 'rooflens estimate --device measured' and 'rooflens measure --roof measured' use
    it on this machine, and figures draw it beside the data sheet's. Let nothing else run meanwhile.
    """
    from rooflens.api import calibrate as call
    from rooflens.machine import identity
    from rooflens.report.render import render

    here = identity(device)
    with progress_bar() as tell:
        found = call(device, output=output, budget=budget, quick=quick, progress=tell)
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(render([rates(found, here.known), amounts(found)], "table", color=color), nl=False)
    click.echo(f"wrote {output or here.stored}", err=True)


def rates(device: Device, datasheet: Device | None) -> Table:
    """The ceilings that were measured, beside the catalogue's."""
    from rooflens.report.table import PERCENT, Column, build

    columns = (
        Column(key="resource", header="resource", align="left"),
        Column(key="measured", header="measured"),
        Column(key="datasheet", header="catalogue"),
        Column(key="ratio", header="ratio", unit=PERCENT),
        Column(key="how", header="how", align="left"),
    )
    sheets = {} if datasheet is None else {ceiling.resource: ceiling for ceiling in datasheet.ceilings}
    found = [ceiling for ceiling in device.ceilings if ceiling != sheets.get(ceiling.resource)]
    notes = [*(_NOTES if sheets else ()), *([device.notes] if device.notes else [])]
    return build(device.title, columns, [_row(c, sheets.get(c.resource)) for c in found], notes=notes)


def amounts(device: Device) -> Table:
    """The facts that were measured: single bandwidths and overheads."""
    from rooflens.devices.files import FACTS
    from rooflens.report.table import Column, Entry, build
    from rooflens.units import show

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


def _row(ceiling: Ceiling, sheet: Ceiling | None) -> Entries:
    return {
        "resource": ceiling.resource,
        "measured": _cell(ceiling),
        "datasheet": None if sheet is None else _cell(sheet),
        "ratio": None if sheet is None else ceiling.rate / sheet.rate,
        "how": ceiling.reference if ceiling.origin == "measured" else f"{ceiling.origin}: {ceiling.reference}",
    }


def _cell(ceiling: Ceiling) -> Entry:
    from rooflens.report.table import Entry
    from rooflens.units import show

    unit = "FLOP/s" if "." in ceiling.resource else "B/s"
    return Entry(ceiling.rate, mark="" if ceiling.verified else _MARK, label=show(ceiling.rate, unit))
