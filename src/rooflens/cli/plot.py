"""``rooflens plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import rooflens as rl
from rooflens.cli.command_group import say
from rooflens.cli.completion import devices_option
from rooflens.cli.options import FIGURES, GROUPINGS, LEVELS, examples, open_option, open_page, save_picture
from rooflens.cli.parameter_types import Millimetres, OneOf
from rooflens.errors import FileError


@click.command(
    epilog=examples(
        "rooflens plot resnet18.jsonl -o resnet18.png",
        "rooflens plot estimate.jsonl measure.jsonl -o both.html",
        "rooflens plot run.jsonl --by module -o modules.svg",
        "rooflens plot report.csv --device measured -o hierarchical.html",
        "rooflens plot report.csv --level dram --by module -o dram.png",
        "rooflens plot counted.jsonl --by module-family --depth 1 -o model.png",
        "rooflens plot estimate.jsonl --width 85 -o column.pdf",
        "rooflens plot --device a100-sxm4-40gb --device t4 -o roofs.pdf",
        "rooflens plot run.jsonl --chart throughput -o throughput.svg",
    )
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@devices_option(
    "device",
    help="Also draw the ceilings of this device; 'measured' is this machine, calibrated. Several with commas.",
)
@click.option(
    "--by", type=OneOf(GROUPINGS), help="The piece that one mark stands for; default: what the records allow."
)
@click.option("--depth", type=click.IntRange(0), help="Levels of modules, with --by module.  [default: 3]")
@click.option(
    "--level",
    type=OneOf(LEVELS),
    multiple=True,
    help="Memory level of the intensity; default: all whose bytes are known. Repeatable.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="Draw only this many pieces (kernels, modules ...) of a case: those that take most time. Default: 12 if the"
    " marks are kernels or lie on several memory levels, else all.",
)
@click.option(
    "--chart",
    metavar="NAME",
    help="Draw another chart instead of the roofline, by its name here or in the report of a study. An unknown name"
    " prints the list of charts. Of the options, only -o, --width and --format work with it.",
)
@click.option(
    "--width",
    type=Millimetres(),
    help="Width of a .png, .svg or .pdf in millimetres, 85 for one column of a paper, where letters have 7 points.",
)
@click.option("--title", help="Title; default: what the records have in common.")
@click.option(
    "--format",
    "format_",
    type=OneOf([s.removeprefix(".") for s in FIGURES]),
    help="Format of an -o without a suffix; default: the suffix of -o.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    required=True,
    help="png, svg, pdf or html. Repeatable.",
)
@open_option
def plot(
    files: tuple[Path, ...],
    chart: str | None,
    format_: str | None,
    outputs: tuple[Path, ...],
    shown_at_once: bool,
    width: float | None,
    **roofline: Any,
) -> None:
    """Draw records on a roofline. A line joins the estimated and the measured mark of the same piece.

    FILES are record files and all other files that 'rooflens read' takes. If hardware counters counted bytes at several
    memory levels, a piece has a mark for each level, under the roof of that level: the hierarchical roofline.
    """
    given = [name for name, value in roofline.items() if value not in (None, ())]
    if chart is not None and given:
        raise click.UsageError(f"--chart goes without --{given[0]}, which is of rooflines")
    if not files and not roofline["device"]:
        raise click.UsageError("nothing to draw: name record files, or devices with --device")
    targets = [_target(path, format_) for path in outputs]
    sets = [rl.read(file) for file in files]
    roofline["level"] = roofline["level"] or None
    for file, found in zip(files, sets, strict=True):
        if found.failures and not found.records:
            raise FileError(
                f"{str(file)!r} holds nothing to draw, only {len(found.failures)} failures: {found.failures[0].message}"
            )
        if not found.records:
            say(f"{str(file)!r} holds no records: of it only ceilings can be drawn")
    picture = rl.roofline(*sets, **roofline) if chart is None else rl.chart(chart, *sets)
    for path in targets:
        save_picture(picture, path, None if path.suffix == ".html" else width)
    if shown_at_once:
        open_page(targets)


def _target(path: Path, format_: str | None) -> Path:
    """Return the path to write; --format adds a suffix to a path without one."""
    suffix = path.suffix.lower()
    if suffix in FIGURES:
        if format_ is not None and suffix != f".{format_}":
            raise click.UsageError(f"--format is {format_}, but {str(path)!r} says {suffix.removeprefix('.')}")
        return path
    if format_ is None:
        raise click.UsageError(f"{str(path)!r}: the suffix says how to draw; known: {' '.join(FIGURES)}")
    return path.with_name(f"{path.name}.{format_}")
