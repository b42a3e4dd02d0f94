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
    from rooflens.report.table import Table
    from rooflens.results import RecordSet

# Repeated here so that --help imports nothing; a test compares them with the originals.
DTYPES = ("default", "fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
MODES = ("inference", "train")
OPTIMIZERS = ("none", "sgd", "adam", "adamw")
FORMATS = ("table", "json", "csv", "md", "tex")
GROUPINGS = ("model", "phase", "module", "family", "op")
FIGURES = (".png", ".svg", ".pdf", ".html")
TABLES = {".json": "json", ".csv": "csv", ".md": "md", ".tex": "tex", ".txt": "table"}
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
    """A file whose suffix says what is written."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        known = (RECORDS, *FIGURES, *TABLES)
        if path.suffix not in known:
            self.fail(f"{str(path)!r}: the suffix says what to write; known: {' '.join(known)}", param, ctx)
        return path


def model_options(command: Command) -> Command:
    """The model and how it is run."""
    for option in reversed(
        (
            click.argument("model"),
            click.option("-b", "--batch", type=IntList(), help="Samples per step, one or several: 1,64,256."),
            click.option("--dtype", type=click.Choice(DTYPES), default="fp32", show_default=True),
            click.option("--mode", type=click.Choice(MODES), default="inference", show_default=True),
            click.option(
                "--optimizer",
                type=click.Choice(OPTIMIZERS),
                default="sgd",
                show_default=True,
                help="Of a training step; none stops after backward.",
            ),
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
            click.option("--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True),
            click.option(
                "-o",
                "--output",
                "outputs",
                type=OutputPath(),
                multiple=True,
                help="Also write: .jsonl records; .png .svg .pdf .html figure; .json .csv .md .tex table. Repeatable.",
            ),
        )
    ):
        command = option(command)
    return command


def emit(records: RecordSet, *, format_: str, outputs: Sequence[Path], depth: int, by: Any) -> None:
    """Print the records in the format asked for and write each output; paths are told on stderr."""
    from rooflens.api import roofline
    from rooflens.records import write_atomically

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(_text(records, format_, depth, color), nl=False)
    for path in outputs:
        if path.suffix == RECORDS:
            records.save(path)
        elif path.suffix in FIGURES:
            roofline(records, by=by).save(path)
        else:
            write_atomically(path, _text(records, TABLES[path.suffix], depth, color=False))
        click.echo(f"wrote {path}", err=True)


def _text(records: RecordSet, format_: Any, depth: int, color: bool) -> str:
    from rooflens.report.promised import promised_json
    from rooflens.report.render import render
    from rooflens.report.text_formats import as_json

    if format_ == "json":
        return as_json(promised_json(records))
    return render(_tables(records, depth), format_, color=color)


def _tables(records: RecordSet, depth: int) -> list[Table]:
    """The summary; of a single case also families and modules, of failures also these."""
    from rooflens.report.breakdown import families
    from rooflens.report.summary import failures, memory, summary
    from rooflens.report.tree import module_tree

    tables = [summary(records)] if records.records else []
    estimates = records.where(source="estimate")
    if len(estimates.cases) == 1:
        tables += [families(estimates), module_tree(estimates, depth=depth)]
    if records.records:
        tables.append(memory(records))
    if records.failures:
        tables.append(failures(records))
    return tables


@contextmanager
def progress_bar() -> Iterator[Callable[[float, str], None]]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("building", total=1.0)

        def tell(share: float, what: str) -> None:
            bar.update(task, completed=share, description=escape(what))

        yield tell
