"""``rooflens calibrate``."""

from __future__ import annotations

from pathlib import Path

import click

import rooflens as rl
from rooflens.cli.command_group import say
from rooflens.cli.options import emit_text, examples, progress_bar, say_if_busy
from rooflens.cli.parameter_types import OneOf, OutputPath


@click.command(
    epilog=examples(
        "rooflens calibrate",
        "rooflens calibrate --device cpu --quick",
        "rooflens calibrate -o my-machine.toml",
        "rooflens calibrate --suite",
        "rooflens estimate resnet18 --device measured",
    )
)
@click.option("--device", type=OneOf(("cpu", "cuda")), help="What to calibrate; default: the GPU if there is one.")
@click.option(
    "-o",
    "--output",
    type=OutputPath(".toml"),
    help="Write this device file; default: a file in your cache, which --device measured reads.",
)
@click.option(
    "--budget", type=click.FloatRange(1.0), help="Seconds for the whole calibration; default: 90, or 30 with --quick."
)
@click.option("--quick", is_flag=True, help="Try fewer shapes and sizes.")
@click.option(
    "--suite",
    is_flag=True,
    help="Then also time a suite of operations, for up to 90 s: the expected time on this device becomes 'calibrated'.",
)
def calibrate(device: str | None, output: Path | None, budget: float | None, quick: bool, suite: bool) -> None:
    """Measure the ceilings of this machine: rates of matrix, vector and special units, bandwidths of memory, caches and
    links. Also measure overheads.

    The result is a device file. 'rooflens estimate --device measured' and 'rooflens measure --roof measured' use it on
    this machine. Figures draw its ceilings beside those of the data sheet. Run nothing else meanwhile.
    """
    from rooflens.machine import lacks, this_machine
    from rooflens.report.device_tables import amounts, rates
    from rooflens.report.render import render

    here = this_machine(device)
    say_if_busy(here.where)
    with progress_bar() as tell:
        measured = rl.calibrate(device, output=output, budget=budget, quick=quick, suite=suite, progress=tell)
    tables = [rates(measured, here.known), amounts(measured)]
    emit_text(lambda wanted, color: render(tables, wanted, color=color), "table", ())
    say(f"wrote {output or here.stored}")
    if lacking := lacks(measured):
        click.echo(
            f"no rate of {lacking}: with this file no fp32 step has a bound, so 'measure --roof' refuses it; calibrate"
            " again when nothing else runs, or with a larger --budget",
            err=True,
        )
