"""``rooflens devices``: the catalogue, and what is known about one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import rooflens as rl
from rooflens.cli.command_group import CommandGroup
from rooflens.cli.completion import DeviceName
from rooflens.cli.options import TABLES, all_of, emit_text, examples, format_option, output_option
from rooflens.cli.parameter_types import OneOf

if TYPE_CHECKING:
    from rooflens.records import Device
    from rooflens.report.render import Format
    from rooflens.report.table import Table

# Repeated here so that --help imports nothing; a test compares them with the originals.
KINDS = ("gpu", "cpu", "tpu", "soc", "accelerator")


class _Devices(CommandGroup):
    """Takes a word that is no command for the name of a device."""

    def meant(self, ctx: click.Context, args: Sequence[str]) -> str:
        return super().meant(ctx, args) or " ".join([ctx.command_path, "show", *args])


@click.group(
    cls=_Devices,
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


_output_options = all_of(
    format_option("json and csv hold numbers in base units: FLOP/s, B/s, B, Hz, W."),
    output_option(*TABLES, help=f"Also write this file: {' '.join(TABLES)}. Repeatable."),
)


@devices.command(
    "list",
    epilog=examples(
        "rooflens devices list",
        "rooflens devices list --vendor nvidia --kind gpu",
        "rooflens devices list --format csv -o devices.csv",
    ),
)
@click.option("--vendor", metavar="NAME", help="Only devices of this maker, like nvidia.")
@click.option("--kind", type=OneOf(KINDS), help="Only devices of this kind.")
@_output_options
def list_(
    vendor: str | None = None, kind: str | None = None, format_: Format = "table", outputs: tuple[Path, ...] = ()
) -> None:
    """List the catalogue: main rates, bandwidth and memory."""
    from rooflens.report.device_tables import overview, values_by_device

    _emit(rl.devices(vendor=vendor, kind=kind), overview, values_by_device, format_, outputs)


@devices.command(
    short_help="Show every rate of a device and its source.",
    epilog=examples(
        "rooflens devices show h100-sxm",
        'rooflens devices show "NVIDIA A100-SXM4-40GB" "2x v100-sxm2-16gb"',
        "rooflens devices show my-board.toml",
    ),
)
@click.argument("names", type=DeviceName(), metavar="NAME...", nargs=-1, required=True)
@_output_options
def show(names: tuple[str, ...], format_: Format, outputs: tuple[Path, ...]) -> None:
    """Show every rate of a device, where it comes from, and what else is known.

    NAME is a name from 'rooflens devices list', a shorter one (t4, h100-sxm), a name that drivers report, '2x NAME' for
    two of them, or a device file of your own that ends in .toml. Case and separators do not matter.
    """
    show_devices(tuple(map(rl.device, names)), format_, outputs)


def show_devices(devices: Sequence[Device], format_: Format, outputs: Sequence[Path]) -> None:
    """Print every rate of some devices and write each output."""
    from rooflens.report.device_tables import device_tables, values_by_line

    _emit(devices, device_tables, values_by_line, format_, outputs)


def _emit(
    devices: Sequence[Device],
    for_people: Callable[[Sequence[Device]], Sequence[Table]],
    for_files: Callable[[Sequence[Device]], Table],
    format_: Format,
    outputs: Sequence[Path],
) -> None:
    """Print the devices in the format asked for and write each output."""
    from rooflens.report.device_tables import described
    from rooflens.report.render import render
    from rooflens.report.text_formats import as_json

    def text(wanted: Format, color: bool) -> str:
        if wanted == "json":
            return as_json(list(map(described, devices)))
        return render(for_files(devices) if wanted == "csv" else for_people(devices), wanted, color=color)

    emit_text(text, format_, outputs)
