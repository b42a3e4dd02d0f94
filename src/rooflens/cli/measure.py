"""``rooflens measure``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

import rooflens as rl
from rooflens.cli.options import (
    RECORDS,
    Shown,
    end_if_failed,
    estimate_option,
    examples,
    limit_option,
    load_what_prints,
    output_options,
    progress_bar,
    roof_option,
    run_options,
)
from rooflens.cli.parameter_types import OneOf
from rooflens.runs.time_limits import BUDGET
from rooflens.stopwatch import CALL, END, PRINT, START, Stopwatch, process_began


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
@click.option("--device", type=OneOf(("cpu", "cuda")), help="Where to run; default: the GPU if there is one.")
@click.option(
    "--budget", type=click.FloatRange(0.1), default=BUDGET, show_default=True, help="Seconds of sampling per batch."
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
@click.option("--timings", is_flag=True, help="Also print the parts of the wall time, on stderr.")
@estimate_option
@output_options
def measure(model: str, shown: Shown, timings: bool, **options: Any) -> None:
    """Run a model on this machine and time it: forward, and in train mode backward and optimizer.

    Weights and inputs are random. rooflens keeps every sample, and keeps the first call and the warm-up apart. Batches
    run in a worker process: if one crashes, hangs or runs out of memory, the others still run. An estimate of the same
    step shows how near the time is to the bound.
    """
    watch = Stopwatch(since=process_began())
    spent: dict[str, float] = {}
    with TemporaryDirectory(prefix="rooflens-") as folder:
        kept = _record_file(shown.outputs) or Path(folder) / f"kept{RECORDS}"
        already = kept.stat().st_mtime_ns if kept.exists() else None
        try:
            load_what_prints(0.5)  # while the worker loads torch
            with progress_bar() as tell:
                watch.enter(CALL)
                records = rl.measure(model, progress=tell, save=kept, timings=spent, **options)
                watch.enter(PRINT)
        except KeyboardInterrupt:
            if not kept.exists() or kept.stat().st_mtime_ns == already:
                raise
            click.echo("interrupted: what follows is what was measured until then", err=True)
            shown.emit(rl.RecordSet.load(kept))
            raise
    shown.emit(records)
    if timings:
        watch.enter(END)
        click.echo(_timings(watch.seconds, spent), err=True, nl=False)
    end_if_failed(records)


def _timings(around: Mapping[str, float], within: Mapping[str, float]) -> str:
    """Return lines with the seconds of each part: what the program does around a call, and the parts of the call."""
    before = around[START] + around[CALL] - sum(within[part] for part in within if part != START)
    parts = {START: before, **{part: within[part] for part in within if part != START}, PRINT: around[PRINT]}
    lines = {**parts, "in all": sum(parts.values())}
    return "".join(f"{part:<12}{seconds:8.2f} s\n" for part, seconds in lines.items())


def _record_file(outputs: tuple[Path, ...]) -> Path | None:
    """Return the file in which records are kept during the measurement."""
    return next((path for path in outputs if path.suffix.lower() == RECORDS), None)
