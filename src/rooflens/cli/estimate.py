"""``rooflens estimate``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

import rooflens as rl
from rooflens.cli.completion import devices_option
from rooflens.cli.options import (
    Shown,
    end_if_failed,
    examples,
    limit_option,
    output_options,
    progress_bar,
    run_options,
)

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


@click.command(
    epilog=examples(
        "rooflens estimate resnet18",
        "rooflens estimate resnet18 -b 1,64,256 --device a100-sxm4-40gb --device t4",
        "rooflens estimate timm:convnext_tiny --mode train --device h100-sxm",
        "rooflens estimate hf:llama --seq-len 2048 --dtype bf16 -o llama.jsonl",
        "rooflens estimate my_model.py:build -b 8 --depth 3",
        "rooflens estimate model.onnx -b 1,8 --device t4",
        "rooflens estimate decoder.onnx --seq-len 1 --dim past_sequence_length=512",
        "rooflens estimate llama-3-8b --prompt-len 512 --output-len 64 --device l4",
        "rooflens estimate resnet18 --mode train --device t4 --largest-batch",
        "rooflens estimate llama-3-8b -b 8 --longest-context --device l4 --dtype bf16",
    )
)
@run_options("estimate")
@devices_option("devices", help="A name, '2x NAME', 'measured' (see calibrate), or a .toml file; several with commas.")
@click.option(
    "--largest-batch",
    "largest",
    is_flag=True,
    help="Find the largest batch that fits each device's memory, instead of the tables. --device all: the whole"
    " catalogue.",
)
@click.option(
    "--longest-context",
    "longest",
    is_flag=True,
    help="Find the longest context of a language model that fits each device's memory at a batch, in tokens. Without"
    " --mode: decode.",
)
@click.option(
    "--reserve",
    help="Memory that --largest-batch and --longest-context keep free, like '2 GB'; default: room for context and"
    " workspaces.",
)
@click.option(
    "--max-time-per-token",
    help="With --largest-batch or --longest-context: the most that a token of the output may take, like '50 ms', by the"
    " expected time; what the bound allows is told too.",
)
@click.option("--max-time-to-first-token", help="Likewise: the most that the first token may take.")
@limit_option(
    "Seconds that one batch may take, if the model is in a file of your own, which runs in a worker process. After"
    " that, rooflens kills the worker and begins the next batch. With --largest-batch: seconds for the search."
)
@output_options
@click.pass_context
def estimate(
    context: click.Context,
    /,
    model: str,
    devices: tuple[str, ...],
    shown: Shown,
    largest: bool,
    longest: bool,
    reserve: str | None,
    max_time_per_token: str | None,
    max_time_to_first_token: str | None,
    **options: Any,
) -> None:
    """Count a model's work and find the shortest time for it, on any device.

    MODEL is one of: a torchvision name (resnet18); a name of 'rooflens models' or of the hub (llama-3.1-8b,
    meta-llama/Llama-3.1-8B); timm:NAME; hf:FAMILY or hf:config.json; path/file.py:function, where the function returns
    (module, inputs); path/file.onnx. An ONNX file keeps its own types. If they are fp32, --dtype
    may be fp32, tf32 or default, and chooses the unit for matrix products.

    An estimate computes no values. It needs no weights and no GPU. Without --device it gives counts and no times.
    'rooflens rank MODEL' tells which card suits a model, and at what batch.
    """
    if largest and longest:
        raise click.UsageError("--largest-batch and --longest-context are two searches; give one")
    if (largest or longest) and not devices:
        flag = "--largest-batch" if largest else "--longest-context"
        raise click.UsageError(f"{flag} needs --device: a name, or 'all' for the whole catalogue")
    limits = {
        "reserve": reserve,
        "max_time_per_token": max_time_per_token,
        "max_time_to_first_token": max_time_to_first_token,
    }
    call: Callable[..., Any] = rl.estimate
    if largest:
        if options.pop("batch") is not None:
            raise click.UsageError("--largest-batch looks for the batch; leave --batch out")
        call, options = rl.largest_batch, options | limits
    elif longest:
        call, options = rl.longest_context, _at_a_batch(context, options) | limits
    elif given := next((name for name, value in limits.items() if value is not None), None):
        flag = f"--{given.replace('_', '-')}"
        raise click.UsageError(f"{flag} limits what --largest-batch or --longest-context finds; give both")
    with progress_bar() as tell:
        records = call(model, device=devices, progress=tell, **options)
    shown.emit(records)
    end_if_failed(records)


def _at_a_batch(context: click.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a search for the longest context; those that name a length make no sense there."""
    known = inspect.signature(rl.longest_context).parameters
    for name in options:
        if name not in known and context.get_parameter_source(name) in _GIVEN:
            flag = f"--{name.removesuffix('s') if name == 'dims' else name}".replace("_", "-")
            raise click.UsageError(f"--longest-context looks for the tokens of a language model; leave {flag} out")
    taken = {name: value for name, value in options.items() if name in known}
    decoding = context.get_parameter_source("mode") not in _GIVEN
    return taken | {"batch": taken["batch"] or 1} | ({"mode": "decode"} if decoding else {})
