"""``rooflens check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import rooflens as rl
from rooflens.cli.options import examples, format_option, in_color, progress_bar
from rooflens.cli.parameter_types import OneOf

if TYPE_CHECKING:
    from rooflens.report.render import Format

# Repeated here so that --help imports nothing; a test compares them with the originals.
SEVERITIES = ("info", "warning", "error")
FOUND = 3
"""Exit code where something is at least as grave as --fail-on."""


@click.command(
    epilog=examples(
        "rooflens check run.jsonl",
        "rooflens check estimate.jsonl measure.jsonl --fail-on warning",
        "rooflens check figures.csv --format json",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--fail-on",
    type=OneOf(SEVERITIES),
    default="error",
    show_default=True,
    help="Exit with 3 if a finding is at least this severe.",
)
@format_option("csv and json hold evidence and remedy of each finding.")
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], fail_on: str, format_: Format) -> None:
    """Look for numbers that cannot be true and for known mistakes.

    FILES are record files, or CSV files of reported figures. A CSV file needs the columns quantity and value. It may
    also have report, model, device, batch, dtype, phase, unit and how. docs/check.md lists the quantities, and every
    finding.
    """
    from rooflens.report.findings import findings_text

    with progress_bar() as tell:
        findings = rl.check(*files, progress=tell)
    click.echo(findings_text(findings, format_, color=in_color()), nl=False)
    if format_ in ("json", "csv"):
        for note in findings.notes:
            click.echo(note, err=True)
    context.exit(FOUND if findings.at_least(fail_on) else 0)
