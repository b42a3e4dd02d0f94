"""``rooflens estimate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rooflens.cli.options import FUSIONS, check_outputs, emit, examples, model_options, output_options, progress_bar

if TYPE_CHECKING:
    from rooflens.api.tables import Format


@click.command(
    epilog=examples(
        "rooflens estimate resnet18",
        "rooflens estimate resnet18 -b 1,64,256 --device a100-sxm4-40gb --device t4",
        "rooflens estimate timm:convnext_tiny --mode train --device h100-sxm",
        "rooflens estimate hf:llama --seq-len 2048 --dtype bf16 -o llama.jsonl",
        "rooflens estimate my_model.py:build -b 8 --depth 3",
    )
)
@model_options
@click.option("--device", "devices", multiple=True, help="A name, '2x NAME', or a device file (.toml). Repeatable.")
@click.option("--causal", is_flag=True, help="Count causal attention as the half that its kernel executes.")
@click.option(
    "--fusion",
    type=click.Choice(FUSIONS),
    default="none",
    show_default=True,
    help="Operations that share a kernel keep what passes between them on the chip.",
)
@output_options
def estimate(
    model: str,
    devices: tuple[str, ...],
    outputs: tuple[Path, ...],
    format_: Format,
    depth: int,
    by: str | None,
    **options: Any,
) -> None:
    """Count a model's work and find the shortest time for it, on any device.

    MODEL is a torchvision name (resnet18), timm:NAME, hf:FAMILY or hf:config.json, or path/file.py:function, where the
    function returns (module, inputs). Nothing is computed, no weights and no GPU are needed; without --device there are
    counts and no times.
    """
    from rooflens.api import estimate as call

    check_outputs(outputs)
    with progress_bar() as tell:
        records = call(model, device=devices, progress=tell, **options)
    emit(records, format_=format_, outputs=outputs, depth=depth, by=by)
