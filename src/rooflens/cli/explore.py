"""``rooflens explore``."""

from __future__ import annotations

from pathlib import Path

import click

import rooflens as rl
from rooflens.cli.options import OutputPath, check_outputs, examples, open_option, open_page, save_picture


@click.command(
    epilog=examples(
        "rooflens explore resnet18.jsonl -o page.html",
        "rooflens explore estimate.jsonl measure.jsonl report.csv -o page.html --open",
        "rooflens explore out/study -o page.html --title 'Ten models on ten devices'",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--title", help="Title; default: how many models and devices there are.")
@click.option("-o", "--output", type=OutputPath(".html"), required=True, help="The page: an .html file.")
@open_option
def explore(files: tuple[Path, ...], title: str | None, output: Path, shown_at_once: bool) -> None:
    """Make a page on which a person chooses among records and sees roofline, ranking, memory and tables of them.

    FILES are record files and all other files that 'rooflens read' takes, and folders of them. The page is one file
    that loads nothing; its address holds what is chosen, so that a view can be shared.
    """
    check_outputs([output])
    save_picture(rl.explore(rl.read(*files), title=title), output)
    if shown_at_once:
        open_page([output])
