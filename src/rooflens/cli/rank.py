"""``rooflens rank``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rooflens as rl
from rooflens.cli.command_group import say
from rooflens.cli.completion import devices_option
from rooflens.cli.options import (
    RECORDS,
    TABLES,
    all_of,
    check_outputs,
    emit_text,
    end_if_failed,
    examples,
    format_option,
    limit_option,
    output_option,
    progress_bar,
    run_options,
)
from rooflens.cli.parameter_types import OneOf
from rooflens.cli.prices import price_option

if TYPE_CHECKING:
    from rooflens.report.render import Format

# Repeated here so that --help imports nothing; a test compares them with the originals.
ORDERS = ("throughput", "time", "energy", "cost")

_options = all_of(
    run_options("estimate", without=("price",)),
    devices_option(
        "devices",
        help="As of 'rooflens estimate', or 'all': the whole catalogue. Default: cards that clouds rent.",
    ),
    click.option(
        "--by",
        type=OneOf(ORDERS, meant={"price": "cost", "power": "energy", "latency": "time", "speed": "throughput"}),
        default="throughput",
        show_default=True,
        help="What decides: samples or tokens per second; time of the step; energy or cost of a sample or token.",
    ),
    price_option,
    limit_option("Seconds that one batch may take, if the model is in a file of your own."),
    format_option("csv and json hold every number, in base units."),
    output_option(*TABLES, RECORDS, help="Also write a file: .json .csv .md .tex .txt table; .jsonl estimates."),
)


@click.command(
    epilog=examples(
        "rooflens rank resnet50 --dtype bf16",
        "rooflens rank resnet50 --mode train -b 64,256 --device h100 --device l4",
        "rooflens rank llama-3-8b --mode decode --dtype bf16 --cuda-graph -b 1,64",
        "rooflens rank resnet50 --dtype fp16 --by cost --price t4=0.35 --price l4=0.7",
        "rooflens rank resnet50 --by cost --price prices.toml",
        "rooflens rank resnet50 --device all --dtype fp16 --by energy",
    )
)
@_options
def rank(
    model: str,
    devices: tuple[str, ...],
    prices: dict[str, float] | Path | None,
    format_: Format,
    outputs: tuple[Path, ...],
    **options: Any,
) -> None:
    """Tell which card suits a model, and at what batch.

    MODEL is that of 'rooflens estimate'. One row per device, the best first: the expected time of a step with its
    band, what it gives per second, what a sample or token costs in energy and money, and whether it fits. Without -b,
    batches 1, 8, 64 and 256 are tried, and each device stands there with its best one that fits.
    """
    check_outputs(outputs)
    with progress_bar(lines=True) as tell:
        ranking = rl.rank(model, device=devices or None, prices=prices, progress=tell, **options)
    tables = [path for path in outputs if path.suffix.lower() in TABLES]
    emit_text(lambda wanted, color: rl.table(ranking, format=wanted, color=color), format_, tables)
    for path in outputs:
        if path not in tables:
            ranking.records.save(path)
            say(f"wrote {path}")
    end_if_failed(ranking.records)
