"""``rooflens measure``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

import rooflens as rl
from rooflens.cli.options import (
    RECORDS,
    Shown,
    estimate_option,
    examples,
    limit_option,
    output_options,
    progress_bar,
    roof_option,
    run_options,
)


@click.command(
    epilog=examples(
        "rooflens measure resnet18",
        "rooflens measure alexnet -b 1,16 --roof measured -o alexnet.html",
        "rooflens measure resnet18 -b 64 --mode train --dtype amp-bf16 --device cuda",
        "rooflens measure vit_b_16 -b 1 --dtype bf16 --cuda-graph --flush",
        "rooflens measure resnet50 -b 128 --mode train --dtype amp-bf16 --gpus 2",
        "rooflens measure my_model.py:build -b 1,8,64 --limit 120 -o run.jsonl",
    )
)
@run_options("measure")
@click.option("--device", type=click.Choice(("cpu", "cuda")), help="Where to run; default: the GPU if there is one.")
@click.option(
    "--budget", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds of sampling per batch."
)
@roof_option(" Default: the catalogue's entry for this machine.")
@click.option(
    "--largest-batch",
    is_flag=True,
    help="Find the largest batch that fits in memory: start at -b, double it until memory runs out, then narrow down.",
)
@click.option("--fresh", is_flag=True, help="Start a new worker process for each batch.")
@limit_option(
    "Seconds that one batch may take, building the model included. After that, rooflens kills its worker and"
    " begins the next batch."
)
@estimate_option
@output_options
def measure(model: str, shown: Shown, **options: Any) -> None:
    """Run a model on this machine and time it: forward, and in train mode backward and optimizer.

    Weights and inputs are random. rooflens keeps every sample, and keeps the first call and the warm-up apart. Batches
    run in a worker process: if one crashes, hangs or runs out of memory, the others still run. An estimate of the same
    step shows how near the time is to the bound.
    """
    with TemporaryDirectory(prefix="rooflens-") as folder:
        kept = _record_file(shown.outputs) or Path(folder) / f"kept{RECORDS}"
        already = kept.stat().st_mtime_ns if kept.exists() else None
        try:
            with progress_bar() as tell:
                records = rl.measure(model, progress=tell, save=kept, **options)
        except KeyboardInterrupt:
            if not kept.exists() or kept.stat().st_mtime_ns == already:
                raise
            click.echo("interrupted: what follows is what was measured until then", err=True)
            shown.emit(rl.RecordSet.load(kept))
            raise
    shown.emit(records)


def _record_file(outputs: tuple[Path, ...]) -> Path | None:
    """Return the file in which records are kept during the measurement."""
    return next((path for path in outputs if path.suffix.lower() == RECORDS), None)
