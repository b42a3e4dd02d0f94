"""``rooflens read``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rooflens.cli.options import check_outputs, emit, examples, output_options

if TYPE_CHECKING:
    from rooflens.api.tables import Format


@click.command(
    epilog=examples(
        "rooflens read report.csv",
        "rooflens read report.csv -o report.jsonl -o report.html",
        "rooflens read before.csv after.csv --device h100-sxm5-80gb --format md",
        "rooflens read trace.json.gz --by op -o trace.png",
        "rooflens read report.csv --work 'my_gemm*:flops=2*4096**3,dram=100663296'",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--device", help="Where it was taken; default: the device that the file names.")
@click.option(
    "--work",
    "statements",
    multiple=True,
    metavar="PATTERN:flops=...,dram=...",
    help="The algorithm's work of kernels by name; arithmetic on numbers. Repeatable.",
)
@output_options
def read(
    files: tuple[Path, ...],
    device: str | None,
    statements: tuple[str, ...],
    outputs: tuple[Path, ...],
    format_: Format,
    depth: int,
    by: str | None,
) -> None:
    """Read what other tools counted or timed: Nsight Compute's CSV or text, traces of PyTorch's profiler, and records.

    Each file is recognised by its content. Counters give FLOP by precision, bytes by level and time, per launch of a
    kernel; what the file does not hold stays unknown.
    """
    from rooflens import api
    from rooflens.sources.counters import parse_statement

    check_outputs(outputs)
    found = api.read(*files, device=device, work=[parse_statement(text) for text in statements])
    emit(found, format_=format_, outputs=outputs, depth=depth, by=by)
