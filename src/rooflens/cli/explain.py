"""``rooflens explain``."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

import rooflens as rl
from rooflens.cli.completion import devices_option
from rooflens.cli.options import DTYPES, MODES, examples, progress_bar
from rooflens.cli.parameter_types import Dtype, IntList, NamedSize, OneOf
from rooflens.errors import meant
from rooflens.runs.options import OPTIONS

# Repeated here so that --help imports nothing; a test compares them with the originals.
PHASES = ("forward", "backward", "optimizer", "prefill", "decode")
_WORD = re.compile(r"\w+(::\w+)?")
"""An operation or a model by its name, and no file."""


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=examples(
        "rooflens explain convolution --input 8x3x32x32 --weight 64x3x3x3 --padding 1",
        "rooflens explain mm --shape 1024x512 --shape 512x256 --device a100-sxm4-40gb",
        "rooflens explain attention --shape 8x12x1024x64 --is-causal --phase backward",
        "rooflens explain lstm --input 35x20x512 --hidden-size 1024 --num-layers 2",
        "rooflens explain resnet18 -b 256 --path layer1.0.conv1 --mode train",
        "rooflens explain resnet18.jsonl --path conv1 --device t4",
        "rooflens explain --list",
    ),
)
@click.argument("words", metavar="WHAT [--ARGUMENT VALUE]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    help="Shape of a tensor of the operation: 64x3x7x7, 32x128:int64. Repeatable, in the tensors' order.",
)
@click.option(
    "--path", help="Explain this module of a model or file, and the modules inside it; '' is the whole model."
)
@click.option("--in-full", is_flag=True, help="Explain every operation of a module that has many, not only their sum.")
@click.option(
    "--phase", type=OneOf(PHASES), help="Default: forward for an operation, every phase for a model or a file."
)
@devices_option("device", help="Also show bound and expected time on this device; several with commas.")
@click.option(
    "--dtype",
    type=Dtype(*DTYPES),
    help="Type of an operation or a model.  [default: fp32; for an ONNX file, its own]",
)
@click.option("-b", "--batch", type=IntList(), help="For a model: samples per step.")
@click.option(
    "--mode",
    metavar=f"[{'|'.join(MODES)}]",
    help="For a model: its mode. For an operation: its argument mode.  [default: inference]",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N | VALUE",
    help="For an ONNX file: a size that it leaves open, NAME=N, repeatable. For an operation: its argument dim.",
)
@click.option(
    "--format",
    "format_",
    type=OneOf(("text", "json")),
    default="text",
    show_default=True,
    help="json holds numbers in base units.",
)
@click.option("--list", "listed", is_flag=True, help="List the operations that have a formula, by family.")
def explain(
    words: tuple[str, ...],
    batch: list[int] | None,
    mode: str | None,
    dims: tuple[str, ...],
    format_: str,
    listed: bool,
    **options: Any,
) -> None:
    """Show the formula of an operation in words and with its numbers filled in.

    WHAT is an operation, a record file or a model. An operation is convolution, mm, attention, lstm, or any operator of
    torch; give the shapes of its tensors and its other arguments, each by its name. A model is estimated first, so
    options of 'rooflens estimate' work too.
    """
    if listed:
        click.echo(_listing(words, format_), nl=False)
        return
    if not words or words[0].startswith("-"):
        raise click.UsageError("name an operation, a record file or a model first; --list shows the operations")
    arguments: dict[str, Any] = dict(_pairs(words[1:]))
    if taken := {"what", *options} & {*arguments}:
        alien = min(taken)
        near = meant(alien, ["shape", "path", "device", "dtype", "phase"])
        raise click.UsageError(f"no operation or model has an argument --{alien}{near}; --help lists what is known")
    arguments |= {} if batch is None else {"batch": batch}
    arguments |= {} if mode is None else dict([_named("mode", mode)])
    arguments |= _dims(words[0], dims) if dims else {}
    with progress_bar():
        explanation = rl.explain(words[0], **options, **arguments)
    click.echo(explanation.text if format_ == "text" else json.dumps(explanation.data, indent=1))


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str | bool | float]]:
    """Yield further arguments: of ``--stride 2``, ``--stride=2``, and ``--is-causal``, which is True."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise click.UsageError(
                f"{word!r} stands alone; write an argument by its name, --input 32x784, and --shape before each shape"
                " that has none"
            )
        name, sign, value = word.removeprefix("--").partition("=")
        if sign:
            yield _named(name, value)
        elif rest and not rest[0].startswith("--"):
            yield _named(name, rest.pop(0))
        else:
            yield _named(name, True)


def _named(flag: str, value: str | bool) -> tuple[str, str | bool | float]:
    """Return an argument with its name in Python.

    Whole numbers and a time limit are converted, and ``true`` and ``false`` for options of a model. The operation reads
    other text by the type of its argument.
    """
    name = flag.replace("-", "_")
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return name, int(value)
    if name == "limit" and isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value):
        return name, float(value)
    if name in OPTIONS and OPTIONS[name].kind is float and isinstance(value, str) and re.fullmatch(r"\d*\.\d+", value):
        return name, float(value)
    if name in OPTIONS and OPTIONS[name].kind is bool and value in ("true", "false"):
        return name, value == "true"
    return name, value


def _dims(what: str, given: Sequence[str]) -> dict[str, Any]:
    """Return the sizes that an ONNX file leaves open, by name, or the argument ``dim`` of an operation."""
    if _WORD.fullmatch(what) and "=" not in given[-1]:
        return dict([_named("dim", given[-1])])
    return {"dims": dict(NamedSize().convert(size, None, None) for size in given)}


def _listing(words: Sequence[str], format_: str) -> str:
    """Return families and their operations as text."""
    from rooflens.costs import families
    from rooflens.errors import UnknownName

    known = families()
    for word in words:
        if word not in known:
            raise UnknownName("family", word, known)
    shown = {family: names for family, names in known.items() if not words or family in words}
    if format_ == "json":
        return json.dumps(shown, indent=1) + "\n"
    width = max(map(len, shown)) + 2
    return "".join(
        textwrap.fill(", ".join(names), 80, initial_indent=f"{family:{width}}", subsequent_indent=" " * width) + "\n"
        for family, names in shown.items()
    )
