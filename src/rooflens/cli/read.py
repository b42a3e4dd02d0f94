"""``rooflens read``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import rooflens as rl
from rooflens.cli.completion import DeviceName
from rooflens.cli.devices import show_devices
from rooflens.cli.options import AS_IS, DTYPES, MODES, Shown, all_of, examples, output_options, table_option
from rooflens.cli.parameter_types import Dtype, OneOf
from rooflens.runs.options import OF_STEP, OPTIONS


@click.command(
    epilog=examples(
        "rooflens read report.csv",
        "rooflens read report.csv -o report.jsonl -o report.html",
        "rooflens read before.csv after.csv --device h100-sxm5-80gb --format md",
        "rooflens read trace.json.gz --by op -o trace.png",
        "rooflens read report.csv --work 'my_gemm*:flops=2*4096**3,dram=100663296'",
        "rooflens read report.csv estimate.jsonl --model resnet18 -b 32 --dtype tf32",
        "rooflens read trace.json est.jsonl --model resnet18 -b 32 --img-size 160",
        "rooflens read counters.csv --trace trace.json.gz --device instinct-mi250x",
        "rooflens read profile.sqlite",
        "rooflens read Results.mine/Run.001/roofline.json",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--device",
    type=DeviceName(),
    help="The device that ran the kernels, by name or as a file of its ceilings; default: the one that the file names.",
)
@click.option(
    "--work",
    "statements",
    multiple=True,
    metavar="PATTERN:flops=...,dram=...",
    help="Algorithmic work in one launch of the kernels that match PATTERN. Arithmetic such as 2*4096**3 is"
    " allowed. Repeatable.",
)
@click.option("--model", help="The model that ran, if the file does not name it. Its estimate can then be joined.")
@click.option("-b", "--batch", type=click.IntRange(1), help="The batch that ran.")
@click.option("--dtype", type=Dtype(*DTYPES, AS_IS), help="The dtype that ran.")
@click.option(
    "--mode",
    type=OneOf(MODES),
    help="The mode that ran; default: train if the file has backward or optimizer work.",
)
@all_of(*(table_option(replace(OPTIONS[name], several=False)) for name in OF_STEP))
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="A trace of PyTorch's profiler of the same step: counted launches take time, operation and module from it.",
)
@output_options
def read(
    files: tuple[Path, ...],
    device: str | None,
    statements: tuple[str, ...],
    trace: Path | None,
    shown: Shown,
    **case: Any,
) -> None:
    """Read what other tools counted or timed.

    FILES are reports of Nsight Compute and what it prints, exports of Nsight Systems (SQLite), traces of PyTorch's
    profiler, kernel times of nsys stats, nvprof and rocprof (CSV), roofs of ERT and NERSC, and record files. rooflens
    recognises each file by its content.

    Counters give three things for each launch of a kernel: FLOP by precision, bytes by level, and time. What the file
    does not hold stays unknown.
    """
    from rooflens.sources.counters import parse_statement

    work = [parse_statement(text) for text in statements]
    records = rl.read(*files, device=device, work=work, case=case, trace=trace)
    if records.records or records.failures:
        shown.emit(records)
    else:  # files that hold only roofs
        show_devices(tuple(records.devices.values()), shown.format_, shown.tables)
        shown.save(records)
        shown.draw(records)
