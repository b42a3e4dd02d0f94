"""``rooflens advise``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import rooflens as rl
from rooflens.cli.completion import devices_option
from rooflens.cli.options import (
    TABLES,
    all_of,
    check_outputs,
    emit_text,
    examples,
    format_option,
    limit_option,
    output_option,
    progress_bar,
    run_options,
)
from rooflens.runs.run import is_evidence

if TYPE_CHECKING:
    from rooflens.report.render import Format

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_OF_FILES = ("device", "batch", "limit")
_options = all_of(
    run_options("estimate", without=("price",)),
    devices_option("device", help="A name, or a .toml file; of a record file: the steps on it. Several with commas."),
    limit_option("Seconds that one estimate may take, if the model is in a file of your own."),
    format_option("csv and json hold numbers in base units."),
    output_option(*TABLES, help="Also write this file: .json .csv .md .tex .txt. Repeatable."),
)


@click.command(
    epilog=examples(
        "rooflens advise resnet50 -b 32 --device h100",
        "rooflens advise resnet50 -b 64 --mode train --device a100-sxm4-80gb",
        "rooflens advise llama-3-8b --mode decode --dtype bf16 --device h100",
        "rooflens advise measured.jsonl -b 64",
    )
)
@_options
@click.pass_context
def advise(context: click.Context, /, model: str, format_: Format, outputs: tuple[Path, ...], **options: Any) -> None:
    """Tell what would make a step faster on a single GPU, by how much, and what that costs.

    MODEL is that of 'rooflens estimate', or a record file: of a measured step the time is taken as it is, and changes
    in proportion; of a profile the busy time, if the device hardly ever waited. Each change that applies is estimated
    alone, then the best of them together: lower precision, channels last, compiling, fused attention, CUDA graphs, a
    static cache, a fused optimizer, weights or a cache in fewer bits, a larger batch.
    """
    check_outputs(outputs)
    if is_evidence(model):
        given = [name for name in options if context.get_parameter_source(name) in _GIVEN and name not in _OF_FILES]
        if given:
            flag = "--" + given[0].replace("_", "-")
            raise click.UsageError(f"{flag} is an option of a model, and {model!r} is a file of what ran")
        options = {name: options[name] for name in _OF_FILES}
    with progress_bar(lines=True) as tell:
        advice = rl.advise(model, progress=tell, **options)
    emit_text(lambda wanted, color: rl.table(advice, format=wanted, color=color), format_, outputs)
