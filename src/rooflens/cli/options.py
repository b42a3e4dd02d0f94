"""Options that commands share, and how results leave them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rooflens.api.tables import Format
    from rooflens.results import Fits, RecordSet

# Repeated here so that --help imports nothing; a test compares them with the originals.
DTYPES = ("default", "fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
MODES = ("inference", "train", "prefill", "decode")
FUSIONS = ("none", "pointwise", "attention")
OPTIMIZERS = ("none", "sgd", "adam", "adamw")
FORMATS = ("table", "json", "csv", "md", "tex")
GROUPINGS = ("model", "phase", "module", "family", "op", "kernel")
LEVELS = ("dram", "l2", "l1")
FIGURES = (".png", ".svg", ".pdf", ".html")
TABLES: dict[str, Format] = {".json": "json", ".csv": "csv", ".md": "md", ".tex": "tex", ".txt": "table"}
RECORDS = ".jsonl"

Command = TypeVar("Command", bound=Callable[..., Any])


def examples(*lines: str) -> str:
    """Lines below the help text that click leaves as they are (the sign in front asks for that)."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


class IntList(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers of at least 1, separated by commas."""

    name = "n,n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            numbers = [int(word) for word in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is no list of whole numbers; write 64 or 1,64,256", param, ctx)
        wrong = [n for n in numbers if n < 1]
        if wrong:
            self.fail(f"{wrong[0]} cannot be run; a batch has at least 1 sample", param, ctx)
        return numbers


class OutputPath(click.ParamType):  # type: ignore[type-arg]
    """A file whose suffix says what is written.

    Args:
        known: the suffixes that can be written.
    """

    name = "file"

    def __init__(self, *known: str) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.suffix.lower() not in self.known:
            self.fail(f"{str(path)!r}: the suffix says what to write; known: {' '.join(self.known)}", param, ctx)
        if path.is_dir():
            self.fail(f"{str(path)!r} is a folder; name a file", param, ctx)
        return path


def model_options(command: Command) -> Command:
    """The model and how it is run."""
    for option in reversed(
        (
            click.argument("model"),
            click.option("-b", "--batch", type=IntList(), help="Samples per step, one or several: 1,64,256."),
            click.option(
                "--dtype",
                type=click.Choice(DTYPES),
                help="fp32 has TF32 off, tf32 on, default as torch has it; amp is autocast.  [default: fp32]",
            ),
            click.option(
                "--mode",
                type=click.Choice(MODES),
                default="inference",
                show_default=True,
                help="train is forward with loss, backward and optimizer.",
            ),
            click.option(
                "--optimizer",
                type=click.Choice(OPTIMIZERS),
                default="sgd",
                show_default=True,
                help="Of a training step; none stops after backward.",
            ),
            click.option("--fused", is_flag=True, help="The optimizer in its fused form instead of foreach."),
            click.option("--compile", is_flag=True, help="Through torch.compile; an estimate fuses element-wise work."),
            click.option(
                "--img-size", type=click.IntRange(1), help="Height and width of images; default: the model's own."
            ),
            click.option("--seq-len", type=click.IntRange(1), help="Tokens per sequence."),
            click.option("--channels-last", is_flag=True, help="Lay images out with channels last."),
        )
    ):
        command = option(command)
    return command


def output_options(command: Command) -> Command:
    """What is shown, and where."""
    for option in reversed(
        (
            click.option(
                "--depth",
                type=click.IntRange(0),
                default=1,
                show_default=True,
                help="Depth of the module tree (tables of one case).",
            ),
            click.option(
                "--by", type=click.Choice(GROUPINGS), help="What one mark of a figure stands for; default: what fits."
            ),
            click.option(
                "--format",
                "format_",
                type=click.Choice(FORMATS),
                default="table",
                show_default=True,
                help="Of what is printed; csv and json hold numbers in base units.",
            ),
            click.option(
                "-o",
                "--output",
                "outputs",
                type=OutputPath(RECORDS, *FIGURES, *TABLES),
                multiple=True,
                help="Also write: .jsonl records; .png .svg .pdf .html figure; .json .csv .md .tex table. Repeatable.",
            ),
        )
    ):
        command = option(command)
    return command


def emit(found: RecordSet | Fits, *, format_: Format, outputs: Sequence[Path], depth: int, by: Any) -> None:
    """Print what was found in the format asked for and write each output; paths are told on stderr."""
    from rooflens.api import roofline, table
    from rooflens.records import write_atomically
    from rooflens.results import RecordSet

    click.echo(table(found, format=format_, depth=depth, color=in_color()), nl=False)
    for path in outputs:
        suffix = path.suffix.lower()
        if suffix == RECORDS:
            found.save(path)
        elif suffix in FIGURES:
            roofline(found if isinstance(found, RecordSet) else found.records, by=by).save(path)
        else:
            write_atomically(path, table(found, format=TABLES[suffix], depth=depth))
        click.echo(f"wrote {path}", err=True)


def in_color() -> bool:
    """Whether what is printed has colours: on a terminal, unless its user wants none."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def check_outputs(outputs: Sequence[Path]) -> None:
    """Fail before the work and not after it if a file cannot be written."""
    from rooflens.records import check_writable

    for path in outputs:
        check_writable(path)


@contextmanager
def progress_bar() -> Iterator[Callable[[float, str], None]]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("building", total=1.0)

        def tell(share: float, what: str) -> None:
            bar.update(task, completed=share, description=escape(what))

        yield tell
