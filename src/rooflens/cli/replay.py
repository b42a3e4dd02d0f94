"""``rooflens replay``."""

from __future__ import annotations

from typing import Any

import click

import rooflens as rl
from rooflens.cli.options import Shown, examples, output_options, progress_bar, run_options, say_if_busy
from rooflens.records import is_record_file


@click.command(
    epilog=examples(
        "rooflens replay resnet50 -b 64 --dtype bf16 --channels-last",
        "rooflens replay estimate.jsonl -o replayed.jsonl",
    )
)
@run_options("estimate")
@output_options
def replay(model: str, shown: Shown, **options: Any) -> None:
    """Time each distinct operation of a model alone on this GPU, without the model's code or weights.

    MODEL is that of 'rooflens estimate', or a record file with estimates for this GPU. The sum of the operations' times
    stands beside the bound, and the expected time of the step is 'replayed'. Times are kept: operations that another
    model has had are not timed again.
    """
    given = {} if is_record_file(model) else {name: value for name, value in options.items() if value is not None}
    say_if_busy("cuda")
    with progress_bar() as tell:
        records = rl.replay(model, progress=tell, **given)
    shown.emit(records)
