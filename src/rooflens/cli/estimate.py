"""``rooflens estimate``."""

from __future__ import annotations

from typing import Any

import click

import rooflens as rl
from rooflens.cli.options import Shown, examples, limit_option, output_options, progress_bar, run_options


@click.command(
    epilog=examples(
        "rooflens estimate resnet18",
        "rooflens estimate resnet18 -b 1,64,256 --device a100-sxm4-40gb --device t4",
        "rooflens estimate timm:convnext_tiny --mode train --device h100-sxm",
        "rooflens estimate hf:llama --seq-len 2048 --dtype bf16 -o llama.jsonl",
        "rooflens estimate my_model.py:build -b 8 --depth 3",
        "rooflens estimate model.onnx -b 1,8 --device t4",
        "rooflens estimate decoder.onnx --seq-len 1 --dim past_sequence_length=512",
        "rooflens estimate resnet18 --mode train --device t4 --largest-batch",
    )
)
@run_options("estimate")
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="A name, '2x NAME', 'measured' (see calibrate), or a .toml file. Repeatable.",
)
@click.option(
    "--largest-batch",
    "largest",
    is_flag=True,
    help="Find the largest batch that fits each device's memory, instead of the tables. --device all: the whole"
    " catalogue.",
)
@click.option(
    "--reserve",
    help="Memory that --largest-batch keeps free, like '2 GB'; default: room for context and workspaces.",
)
@limit_option(
    "Seconds that one batch may take, if the model is in a file of your own, which runs in a worker process. After"
    " that, rooflens kills the worker and begins the next batch. With --largest-batch: seconds for the search."
)
@output_options
def estimate(
    model: str,
    devices: tuple[str, ...],
    shown: Shown,
    largest: bool,
    reserve: str | None,
    **options: Any,
) -> None:
    """Count a model's work and find the shortest time for it, on any device.

    MODEL is one of: a torchvision name (resnet18); a name of 'rooflens models' or of the hub (llama-3.1-8b,
    meta-llama/Llama-3.1-8B); timm:NAME; hf:FAMILY or hf:config.json; path/file.py:function, where the function returns
    (module, inputs); path/file.onnx. An ONNX file keeps its own types. If they are fp32, --dtype
    may be fp32, tf32 or default, and chooses the unit for matrix products.

    An estimate computes no values. It needs no weights and no GPU. Without --device it gives counts and no times.
    """
    if largest:
        if options.pop("batch") is not None:
            raise click.UsageError("--largest-batch looks for the batch; leave --batch out")
        if not devices:
            raise click.UsageError("--largest-batch needs --device: a name, or 'all' for the whole catalogue")
        options["reserve"] = reserve
    elif reserve is not None:
        raise click.UsageError("--reserve is memory that --largest-batch leaves free; give both")
    call = rl.largest_batch if largest else rl.estimate
    with progress_bar() as tell:
        records = call(model, device=devices, progress=tell, **options)
    shown.emit(records)
