"""``rooflens measure``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooflens.cli.options import check_outputs, emit, examples, model_options, output_options, progress_bar

if TYPE_CHECKING:
    from rooflens.api.tables import Format


@click.command(
    epilog=examples(
        "rooflens measure resnet18",
        "rooflens measure alexnet -b 1,16 --roof measured -o alexnet.html",
        "rooflens measure resnet18 -b 64 --mode train --dtype amp-bf16 --device cuda",
        "rooflens measure my_model.py:build -o run.jsonl",
    )
)
@model_options
@click.option("--device", type=click.Choice(("cpu", "cuda")), help="Where to run; default: the GPU if there is one.")
@click.option(
    "--budget", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds of sampling per batch."
)
@click.option(
    "--roof",
    help="Whose ceilings hold here: a device name, a device file, or 'measured' to measure them first (seconds)."
    " Default: the catalogue's entry for this machine.",
)
@click.option("--estimate/--no-estimate", default=True, show_default=True, help="Estimate the same step beside it.")
@output_options
def measure(
    model: str,
    outputs: tuple[Path, ...],
    format_: Format,
    depth: int,
    by: str | None,
    **options: Any,
) -> None:
    """Run a model on this machine and time it: forward, and in train mode backward and optimizer.

    Weights are random. Every sample is kept; the cold first call and warm-up stand apart. The estimate beside the
    measurement tells how near the time is to its bound.
    """
    from rooflens.api import measure as call

    check_outputs(outputs)
    # What a user's model prints is no part of the result.
    with progress_bar() as tell, redirect_stdout(sys.stderr):
        records = call(model, progress=tell, **options)
    emit(records, format_=format_, outputs=outputs, depth=depth, by=by)
