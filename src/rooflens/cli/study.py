"""``rooflens study``: run, resume, status, report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rooflens as rl
from rooflens.cli.cluster import cluster_options, progress_text, run_on_cluster
from rooflens.cli.command_group import CommandGroup, is_quiet, say, sayer
from rooflens.cli.options import FAILED, all_of, examples, open_option, open_page, progress_bar
from rooflens.cli.parameter_types import OneOf
from rooflens.progress import WAITING

if TYPE_CHECKING:
    from rooflens.study import CellNews, Status, StudyChange, StudyFolder

# Repeated here so that --help imports nothing; a test compares them with the originals.
SOURCES = ("estimate", "measure", "counters", "replay")


class _Study(CommandGroup):
    """Takes a word that is no command for a study file, or for the folder of a study."""

    def meant(self, ctx: click.Context, args: Sequence[str]) -> str:
        command = "run" if args[0].endswith(".toml") else "status" if os.path.isdir(args[0]) else None
        return " ".join([ctx.command_path, command, *args]) if command else super().meant(ctx, args)


@click.group(
    cls=_Study,
    epilog=examples(
        "rooflens study run study.toml",
        "rooflens study run study.toml --jobs 4 --source estimate",
        "rooflens study status out/study",
        "rooflens study resume out/study --retry",
        "rooflens study report out/study -o report.html",
    ),
)
def study() -> None:
    """Run a grid of cases from one file, and resume it at any moment.

    A study file (docs/study.md) names models, devices, batches, dtypes, modes and sources (estimate, measure ...).
    One case with one source is a cell. Each cell becomes a record file in the study's folder. These files are the whole
    state: you can kill the command at any moment and start it again, and no finished cell is lost or repeated. Several
    commands may work on one folder at once, on any nodes that share it.
    """


run_options = all_of(
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of worker processes for estimates. Measurements follow one by one, so that nothing disturbs them.",
    ),
    click.option("--retry", is_flag=True, help="Also run cells that failed or were skipped before."),
    click.option(
        "--source",
        "sources",
        type=OneOf(SOURCES),
        multiple=True,
        help="Run only cells of this source. Repeatable.",
    ),
    click.option("--device", "devices", multiple=True, help="Run only cells of this device. Repeatable."),
)
"""What is run of a study, and how."""


@study.command(
    epilog=examples(
        "rooflens study run study.toml",
        "rooflens study run study.toml -d out/first --jobs 2",
        "rooflens study run study.toml --source estimate --source replay",
        "rooflens study run study.toml --cluster slurm --partition gpu --gres gpu:1",
    )
)
@click.argument("file", metavar="STUDY.toml", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-d",
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the study.  [default: out/STUDY]",
)
@run_options
@cluster_options
@click.option(
    "--no-recorded", is_flag=True, help="Also run the cells that have a recorded file, instead of replaying it."
)
@click.pass_context
def run(context: click.Context, /, file: Path, folder: Path | None, no_recorded: bool, **options: Any) -> None:
    """Run a study, or what is left of it.

    The command skips cells that are done. So you can stop it at any moment and run it again. If the study file has
    changed, the new cells run; results that the file no longer asks for stay in the folder. Cells of a device that this
    machine does not have are left for a machine that has it.

    The exit code is 3 if cells have failed.
    """
    _run(context, file, folder=folder, recorded=not no_recorded, **options)


@study.command(epilog=examples("rooflens study resume out/study", "rooflens study resume out/study --retry --jobs 2"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@run_options
@cluster_options
@click.pass_context
def resume(context: click.Context, /, folder: Path, **options: Any) -> None:
    """Continue a study from its folder.

    It uses the study file of the last 'rooflens study run'. The exit code is 3 if cells have failed.
    """
    _run(context, folder, **options)


@study.command(epilog=examples("rooflens study status out/study", "rooflens study status out/study --format json"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--format", "format_", type=OneOf(("table", "json")), default="table", show_default=True)
@click.pass_context
def status(context: click.Context, /, folder: Path, format_: str) -> None:
    """Show which cells are done, skipped, failed, running and left.

    Also show how long one worker should need for the cells that are left, judged by the times of similar cells. The
    exit code is 3 if cells have failed.
    """
    from rooflens.study.status_text import status_json, status_text

    reached = rl.study_status(folder)
    click.echo(status_json(reached) if format_ == "json" else status_text(reached), nl=False)
    context.exit(FAILED if reached.count("failed") else 0)


@study.command(
    epilog=examples(
        "rooflens study report out/study -o report.html",
        "rooflens study report out/study -o report.md --tables out/t --figures out/f",
    )
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "-o",
    "--out",
    "out",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="Write: .html, .md (with images), .tex (tables) or .csv (results). Repeatable. [default: report.html]",
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each figure into this folder, as SVG and PDF.",
)
@click.option(
    "--tables", type=click.Path(path_type=Path, file_okay=False), help="Write each table into this folder, as CSV."
)
@open_option
def report(folder: Path, out: tuple[Path, ...], figures: Path | None, tables: Path | None, shown_at_once: bool) -> None:
    """Write the results of a study as one page, or as files for a paper.

    The page holds the question, the answers with their numbers, every case, figures, findings, failures and how to
    repeat the study. It loads nothing from other hosts, so it opens without a network. You can write the report at any
    moment; it says what is not done yet.
    """
    wanted = out or (() if figures or tables else (Path("report.html"),))
    rl.study_report(folder, wanted, figures=figures, tables=tables)
    for path in (*wanted, figures, tables):
        if path is not None and not is_quiet():
            click.echo(path)
    if shown_at_once:
        open_page(wanted)


def _run(context: click.Context, what: Path, *, cluster: Mapping[str, Any] | None, jobs: int, **options: Any) -> None:
    """Run what is left with progress on stderr; then print how far the study is."""
    from rooflens.study import device_notes
    from rooflens.study.status_text import status_text

    for note in device_notes(what) if os.path.isfile(what) else ():
        say(note)
    with _live() as live:
        if cluster is None:
            with _hint_on_interrupt(live):
                reached = rl.run_study(what, begun=live.begun, progress=live, jobs=jobs, **options)
        else:
            reached = run_on_cluster(what, cluster=cluster, begun=live.begun, progress=live.look, **options)
    click.echo(status_text(reached), nl=False)
    say(f"records are in {live.folder}")
    context.exit(FAILED if reached.count("failed") else 0)


class _Display:
    """Shows progress: a bar on a terminal, else a line for each finished cell.

    Args:
        bar: moves the bar.
    """

    def __init__(self, bar: Callable[[float, str], None], *, lines: bool) -> None:
        self._bar, self._lines = bar, lines
        self._say = sayer()  # cells end in threads
        self._total, self._failed = 0, 0
        self._over: set[str] = set()
        self._shares: dict[str, float] = {}
        self._last = ""
        self.folder = Path()

    def begun(self, folder: StudyFolder, change: StudyChange | None) -> None:
        from rooflens.study.status_text import change_text, too_few_models

        self.folder = folder.path
        self._total = len(folder.cells)
        self._over = {cell.key for cell in folder.cells if folder.has(cell) is not None}
        if change is not None:
            self._say(change_text(change))
        for line in too_few_models(folder.study, folder.cells):
            self._say(line)

    def __call__(self, step: CellNews) -> None:
        key = step.cell.key
        if step.what == "running":
            self._shares[key] = step.share
            if self._lines and step.text.startswith(WAITING):
                self._say(step.text)
        else:
            self._shares.pop(key, None)
            self._over |= {key} if step.what in ("done", "skipped", "failed") else set()
            self._failed += step.what == "failed"
            if self._lines and step.seconds is not None:
                self._say(self._line(step))
        share = (len(self._over) + sum(self._shares.values())) / max(1, self._total)
        failed = f", {self._failed} failed" if self._failed else ""
        self._bar(share, f"{len(self._over)} of {self._total}{failed}: {step.cell.label()}")

    def look(self, status: Status, jobs: Sequence[str]) -> None:
        """Show progress of a study that runs in jobs of a cluster."""
        text = progress_text(status, jobs)
        if self._lines and text != self._last:
            self._say(text)
        self._last = text
        self._bar(status.count("done") / max(1, self._total), text)

    def _line(self, step: CellNews) -> str:
        from rooflens.study.status_text import duration, plain

        label = plain(f"{step.cell.label()}: {step.text}" if step.text else step.cell.label())
        place = f"{len(self._over):>{len(str(self._total))}}/{self._total}"
        return f"{place}  {step.what:<7}  {duration(step.seconds or 0.0):>6}  {label}"


@contextmanager
def _hint_on_interrupt(live: _Display) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if live.folder != Path():
            say(f"what is done is kept; 'rooflens study resume {live.folder}' goes on")
        raise


@contextmanager
def _live() -> Iterator[_Display]:
    with progress_bar() as tell:
        yield _Display(tell, lines=not sys.stderr.isatty())
