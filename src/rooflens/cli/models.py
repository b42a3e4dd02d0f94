"""``rooflens models``: the well-known models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import rooflens as rl
from rooflens.cli.options import TABLES, emit_text, examples, format_option, output_option

if TYPE_CHECKING:
    from rooflens.report.render import Format


@click.command(
    epilog=examples(
        "rooflens models                              all of them",
        "rooflens models llama 8b                     those with both words in a name",
        "rooflens models qwen3-8b --format json       the whole configuration",
        "rooflens estimate llama-3.1-8b --mode decode --dtype bf16",
    )
)
@click.argument("words", metavar="[WORD]...", nargs=-1)
@format_option("json holds the configurations too.")
@output_option(*TABLES, help=f"Also write this file: {' '.join(TABLES)}. Repeatable.")
def models(words: tuple[str, ...], format_: Format, outputs: tuple[Path, ...]) -> None:
    """List the well-known models whose shapes rooflens knows: no weights, no network.

    Their names, and those of the hub, are a MODEL of estimate, measure and counters.
    """
    from rooflens.report.model_tables import described_model, model_table
    from rooflens.report.render import render
    from rooflens.report.text_formats import as_json

    listed = rl.models(*words)

    def text(wanted: Format, color: bool) -> str:
        if wanted == "json":
            return as_json(list(map(described_model, listed)))
        return render([model_table(listed)] if wanted != "csv" else model_table(listed), wanted, color=color)

    emit_text(text, format_, outputs)
