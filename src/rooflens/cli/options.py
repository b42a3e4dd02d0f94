"""Options that commands share, and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click

import rooflens as rl
from rooflens.cli.command_group import is_quiet, say, sayer
from rooflens.cli.completion import ModelName
from rooflens.cli.parameter_types import DtypeList, IntList, NamedSize, OneOf, OutputPath, WordList
from rooflens.progress import WAITING
from rooflens.runs.option import Option
from rooflens.runs.options import OPTIONS
from rooflens.runs.time_limits import LIMIT

if TYPE_CHECKING:
    from rooflens.report.figures.saving import Savable
    from rooflens.report.render import Format
    from rooflens.results import Fits, RecordSet

# Repeated here so that --help imports nothing; a test compares them with the originals.
DTYPES = ("default", "fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
AS_IS = "as-is"
MODES = ("inference", "train", "prefill", "decode", "generate")
FORMATS = ("table", "json", "csv", "md", "tex")
GROUPINGS = ("model", "phase", "module", "family", "module-family", "op", "operator", "kernel")
LEVELS = ("dram", "l2", "l1")
FIGURES = (".png", ".svg", ".pdf", ".html")
TABLES: dict[str, Format] = {".json": "json", ".csv": "csv", ".md": "md", ".tex": "tex", ".txt": "table"}
RECORDS = ".jsonl"

Command = TypeVar("Command", bound=Callable[..., Any])


def examples(*lines: str) -> str:
    """Return lines below the help text; the sign in front stops click from wrapping them."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Join options into one decorator; they keep their order in ``--help``."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def run_options(source: str, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Return MODEL, batch, dtype, mode, and the options of the table for a source, but for those of some concerns."""
    return all_of(
        click.argument("model", type=ModelName()),
        click.option("-b", "--batch", type=IntList(), help="Samples per step, one or several: 1,64,256."),
        click.option(
            "--dtype",
            type=DtypeList(*DTYPES, AS_IS),
            help="Precision, one or several: fp32,bf16. fp32: without TF32; default: torch's settings; amp: autocast;"
            " as-is: the types of a model of your own.  [default: fp32]",
        ),
        click.option(
            "--mode",
            type=OneOf(MODES),
            default="inference",
            show_default=True,
            help="Kind of step. train: forward with loss, backward and optimizer. prefill, decode: language models."
            " generate: a whole answer; its lengths alone ask for it too."
            + (" Counted are its prefill and its middle step of decode." if source == "counters" else ""),
        ),
        *(table_option(line) for line in OPTIONS.values() if source in line.sources and line.concerns not in without),
        *(_not_run(line) for line in OPTIONS.values() if line.concerns == "weights" and source not in line.sources),
    )


def _not_run(line: Option) -> Callable[[Command], Command]:
    """Return an option that says why a command has none of this name."""

    def refuse(ctx: click.Context, param: click.Parameter, given: str | None) -> None:
        if given is not None:
            raise click.UsageError(
                f"{param.opts[0]} is about weights that 'rooflens estimate' counts and rooflens does not run; name a"
                f" model that is quantised: 'rooflens {ctx.info_name} path/file.py:function'",
                ctx,
            )

    flag = "--" + line.name.replace("_", "-")
    return click.option(flag, hidden=True, expose_value=False, callback=refuse)


def table_option(line: Option) -> Callable[[Command], Command]:
    """Return the option of the command line for a line of the table."""
    flag = "--" + line.name.replace("_", "-")
    if line.kind is dict:
        return click.option(
            flag.removesuffix("s"), line.name, type=NamedSize(), multiple=True, callback=_as_dict, help=line.help
        )
    if line.kind is bool:
        return click.option(flag, is_flag=True, help=line.help)
    number = click.FloatRange(0, min_open=True) if line.kind is float else click.IntRange(line.least)
    plain = click.STRING if line.kind is str else number
    kind = OneOf(line.choices) if line.choices else IntList() if line.several else plain
    help = f"{line.help} One or several: 64,128." if line.several else line.help
    return click.option(flag, type=kind, default=line.default, show_default=line.default is not None, help=help)


def _as_dict(ctx: click.Context, param: click.Parameter, given: tuple[tuple[str, int], ...]) -> dict[str, int] | None:
    return dict(given) or None


def format_option(help: str) -> Callable[[Command], Command]:
    """Return the option for the printed format."""
    return click.option("--format", "format_", type=OneOf(FORMATS), default="table", show_default=True, help=help)


def output_option(*suffixes: str, help: str) -> Callable[[Command], Command]:
    """Return the option for output files."""
    return click.option("-o", "--output", "outputs", type=OutputPath(*suffixes), multiple=True, help=help)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of records, and where.

    Attributes:
        asked: options of a table by name, as :func:`rooflens.table` takes them.
    """

    format_: Format
    outputs: tuple[Path, ...]
    asked: Mapping[str, Any]

    @property
    def tables(self) -> list[Path]:
        """The outputs that are tables."""
        return [path for path in self.outputs if path.suffix.lower() in TABLES]

    def emit(self, records: RecordSet | Fits) -> None:
        """Write each output and print records in the format: records first, which took the work, and figures last."""
        self.save(records)
        emit_text(
            lambda wanted, color: rl.table(records, format=wanted, color=color, **self.asked), self.format_, self.tables
        )
        self.draw(records if isinstance(records, rl.RecordSet) else records.records)

    def save(self, records: RecordSet | Fits) -> None:
        """Write the outputs that are record files."""
        for path in self.outputs:
            if path.suffix.lower() == RECORDS:
                records.save(path)
                say(f"wrote {path}")

    def draw(self, records: RecordSet) -> None:
        """Write the outputs that are figures."""
        asked = {name: self.asked[name] for name in ("by", "top", "depth")}
        for path in self.outputs:
            if path.suffix.lower() in FIGURES:
                save_picture(rl.roofline(records, **asked), path)


def save_picture(picture: Savable, path: Path, width: float | None = None) -> None:
    """Draw to a file, and say so, with what it lacks."""
    picture.save(path, width)
    lacks = f", without a mark: {picture.without_marks}" if picture.without_marks else ""
    say(f"wrote {path}{lacks}")


open_option = click.option("--open", "shown_at_once", is_flag=True, help="Show the .html page in the browser.")


def open_page(paths: Sequence[Path]) -> None:
    """Show the first page among some files in the user's browser."""
    pages = [path for path in paths if path.suffix.lower() == ".html"]
    if not pages:
        raise click.UsageError("--open shows an .html page, and none is written; add -o page.html")
    if click.launch(str(pages[0])) != 0:
        say(f"no browser was found here; open {pages[0]} yourself")


FAILED = 3
"""Exit code where cells or cases have failed."""
_ANSWERS = ("unsupported", "out of memory")


def end_if_failed(records: RecordSet | Fits) -> None:
    """End with exit code 3 where a case crashed, hung or raised; what cannot run or does not fit is an answer."""
    if isinstance(records, rl.RecordSet) and any(failure.kind not in _ANSWERS for failure in records.failures):
        click.get_current_context().exit(FAILED)


def output_options(command: Command) -> Command:
    """Add options for what is shown of records; the command gets them as ``shown``.

    A file that cannot be written and a column that no table has end the command before its work.
    """

    @wraps(command)
    def called(*args: Any, format_: Format, outputs: tuple[Path, ...], **options: Any) -> Any:
        check_outputs(outputs)
        asked = {name: options.pop(name) for name in ASKED}
        if asked["columns"] or asked["sort"]:
            from rooflens.report.arranged import TableView
            from rooflens.report.asked_tables import check_columns

            check_columns(TableView(**asked))
        return command(*args, shown=Shown(format_=format_, outputs=outputs, asked=asked), **options)

    return _output_options(called)  # type: ignore[return-value]


ASKED = ("by", "depth", "sort", "top", "columns")
"""Options of a table."""
_output_options = all_of(
    click.option(
        "--by",
        type=OneOf(GROUPINGS),
        help="What a row of the table and a mark of a figure stands for: op is an operation with its shapes, operator"
        " all of a name. Default: an overview, and what the records allow.",
    ),
    click.option(
        "--depth",
        type=click.IntRange(0),
        help="Levels of the module tree, in tables and figures.  [default: 1; 3 with --by module]",
    ),
    click.option(
        "--sort",
        metavar="COLUMN",
        help="Sort the table by a column, the largest first; 'order' is that of the step. Without --by: the summary.",
    ),
    click.option("--top", type=click.IntRange(1), help="Show only so many rows, and marks: those that take most time."),
    click.option(
        "--columns",
        type=WordList(),
        default=(),
        help="Show these columns, by the keys of --format csv or by their headers. Without --by: of the summary.",
    ),
    format_option("Format of the output; csv and json hold numbers in base units."),
    output_option(
        RECORDS,
        *FIGURES,
        *TABLES,
        help="Also write a file: .jsonl records; .png .svg .pdf .html figure; .json .csv .md .tex .txt table."
        " Repeatable.",
    ),
)


def roof_option(more: str = "") -> Callable[[Command], Command]:
    """Return the option for the device whose ceilings apply."""
    return click.option(
        "--roof",
        help="The device whose ceilings the time is compared with: a name, a device file, or 'measured'. 'measured'"
        f" takes what 'rooflens calibrate' saved; if it saved nothing, it calibrates first (seconds).{more}",
    )


estimate_option = click.option(
    "--estimate/--no-estimate", default=True, show_default=True, help="Estimate the same step too."
)


def limit_option(help: str, *names: str) -> Callable[[Command], Command]:
    """Return the option for the seconds that one batch may take."""
    kind = click.FloatRange(0, min_open=True)
    return click.option("--limit", *names, type=kind, default=LIMIT, show_default=True, help=help)


def emit_text(text: Callable[[Format, bool], str], format_: Format, outputs: Sequence[Path]) -> None:
    """Write a text to files of tables and print it in a format.

    Args:
        text: takes the format, and whether there are colours.
    """
    for path in outputs:  # first, since whoever reads what is printed may stop to
        write(path, text(TABLES[path.suffix.lower()], False))
    click.echo(text(format_, in_color()), nl=False)


def write(path: Path, text: str | bytes) -> None:
    """Write a file and print its path on stderr."""
    from rooflens.records import write_atomically

    write_atomically(path, text)
    say(f"wrote {path}")


def in_color() -> bool:
    """True if what is printed has colours: on a terminal, unless its user wants none."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def check_outputs(outputs: Sequence[Path]) -> None:
    """Raise OutputError if a file cannot be written, before the work and not after it."""
    from rooflens.records import check_writable

    for path in outputs:
        check_writable(path)


def say_if_busy(where: str) -> None:
    """Advise on stderr to stop what disturbs a measurement on torch's device type that is about to begin."""
    from rooflens.sources.conditions import advice

    for line in advice(where):
        say(f"note: {line}")


def load_what_prints(after: float) -> None:
    """Load what prints results, so many seconds from now, beside a worker: at the end it takes a third of a second."""
    loading = Timer(after, import_module, ["rooflens.api.showing"])
    loading.daemon = True
    loading.start()


SILENT = 1.0
"""Seconds for which a task that tries many things says nothing where no bar is shown."""


@contextmanager
def progress_bar(*, lines: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar on stderr, if that is a terminal. What a user's model prints meanwhile goes there too.

    Args:
        lines: elsewhere say what is tried, a line each second.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    tell_line = sayer()
    hidden = is_quiet() or not console.is_terminal
    said = monotonic()
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar, redirect_stdout(sys.stderr):
        task = bar.add_task("building", total=1.0)

        def tell(share: float, what: str) -> None:
            nonlocal said
            if hidden and what.startswith(WAITING):
                tell_line(what)
            elif hidden and lines and monotonic() - said > SILENT:
                tell_line(f"{share:4.0%}  {what}")
                said = monotonic()
            bar.update(task, completed=share, description=escape(what))

        yield tell
