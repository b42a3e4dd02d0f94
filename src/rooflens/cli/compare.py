"""``rooflens compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rooflens as rl
from rooflens.cli.options import (
    TABLES,
    OutputPath,
    check_outputs,
    emit_text,
    examples,
    format_option,
    output_option,
    write,
)

if TYPE_CHECKING:
    from rooflens.compare import RunComparison
    from rooflens.report.render import Format

# Repeated here so that --help imports nothing; a test compares them with the originals.
QUESTIONS = ("runs", "evidence", "kernels", "devices", "correlation", "scaling", "phases", "throughput")
FIELDS = ("model", "device", "batch", "dtype", "mode", "options")
PIECES = ("case", "phase", "module", "family", "op")
TIMES = ("measured", "bound")
PHASES = ("forward", "backward", "optimizer")
SLOWER = 3
"""Exit code where a step is slower than --fail-if-slower allows, or failed."""


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A share in percent."""

    name = "n%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        if not text.endswith("%") or not 0 <= share < float("inf"):
            self.fail(f"{value!r} is no percentage; write 5%", param, ctx)
        return share


class Price(click.ParamType):  # type: ignore[type-arg]
    """A device and its price."""

    name = "device=price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        device, _, price = str(value).rpartition("=")
        try:
            amount = float(price) if device else None
        except ValueError:
            amount = None
        if amount is None:
            self.fail(f"{value!r} is no price; write h200=3.5", param, ctx)
        return device, amount


@click.command(
    epilog=examples(
        "rooflens compare before.jsonl after.jsonl",
        "rooflens compare before/ after/ --fail-if-slower 5% --junit gate.xml",
        "rooflens compare fp32.jsonl bf16.jsonl --across dtype",
        "rooflens compare estimate.jsonl measure.jsonl counters.csv --by module",
        "rooflens compare old.csv new.csv --question kernels",
        "rooflens compare a.jsonl --question devices --price t4=0.4 --price h200=3.5",
        "rooflens compare study.jsonl --question correlation -o correlation.tex",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--question",
    type=click.Choice(QUESTIONS),
    metavar="QUESTION",
    help=f"The question: {', '.join(QUESTIONS)}; default: runs for two measured files,"
    " kernels for two files of kernels, else evidence.",
)
@click.option(
    "--fail-if-slower",
    "threshold",
    type=Percent(),
    help="Exit with 3 if a step is significantly slower by more than this, or fails on the second side (runs).",
)
@click.option("--junit", type=OutputPath(".xml"), help="Write the verdicts as JUnit XML (with --fail-if-slower).")
@click.option(
    "--across", type=click.Choice(FIELDS), multiple=True, help="A field that may differ between the sides. Repeatable."
)
@click.option("--force", is_flag=True, default=None, help="Compare runs although their environments forbid it.")
@click.option("--by", type=click.Choice(PIECES), help="The pieces that are joined (evidence).  [default: case]")
@click.option("--baseline", help="The device that others are compared with (devices); default: the first.")
@click.option("--price", "prices", type=Price(), multiple=True, help="Price of a device, in any unit. Repeatable.")
@click.option("--time", type=click.Choice(TIMES), help="Which time to use; default: measured if anything was.")
@click.option("--against", help="The quantity that all others are correlated with.  [default: latency]")
@click.option("--over", help="What time grows with: batch, flops ..., seq_len ... (scaling).  [default: batch]")
@click.option("--phase", type=click.Choice(PHASES), help="One phase instead of the step (correlation, scaling).")
@format_option("csv holds the first table; csv and json hold numbers in base units.")
@output_option(*TABLES, help="Also write this file: .json .csv .md .tex .txt. Repeatable.")
@click.pass_context
def compare(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    threshold: float | None,
    junit: Path | None,
    format_: Format,
    outputs: tuple[Path, ...],
    prices: tuple[tuple[str, float], ...],
    across: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare runs, sources, kernels or devices, with intervals and tests.

    Two measurements are compared run against run: the ratio of medians, its 95 % interval, and whether it is more than
    chance. Two files of kernels are compared by name, then by order. Everything else joins evidence: estimate,
    measurement, profile and counters of the same case, and how far they are apart. A FILE is whatever 'rooflens read'
    takes, or a folder of record files: several runs of one side.
    """
    from rooflens.compare import RunComparison

    if junit is not None and threshold is None:
        raise click.UsageError("--junit needs --fail-if-slower: without a threshold there are no verdicts")
    check_outputs([*outputs, *([] if junit is None else [junit])])
    comparison = rl.compare(*files, across=across or None, prices=dict(prices) or None, **options)
    if threshold is not None and not isinstance(comparison, RunComparison):
        raise click.UsageError("--fail-if-slower needs two measured sides; add --question runs to see what is missing")
    emit_text(lambda wanted, color: rl.table(comparison, format=wanted, color=color), format_, outputs)
    if threshold is not None and isinstance(comparison, RunComparison):
        _judge(context, comparison, threshold, junit)


def _judge(context: click.Context, comparison: RunComparison, threshold: float, junit: Path | None) -> None:
    """Print steps that are too slow, write the verdicts, and exit with the code of the gate."""
    from rooflens.report.escape import printable
    from rooflens.report.junit import gate_xml, sentence

    if junit is not None:
        write(junit, gate_xml(comparison, threshold))
    slower = comparison.slower_than(threshold)
    for row in slower:
        label = printable(row.after.label())
        click.echo(f"slower by more than {100 * threshold:g} %: {label}: {sentence(row)}", err=True)
    for failure in comparison.failed:
        text = printable(f"{failure.case.label()}: {failure.kind}, {failure.message}")
        click.echo(f"failed on the second side: {text}", err=True)
    if not slower:
        unsure = sum(row.significant is None for row in comparison.steps)
        rest = f"; of {unsure} nothing can be said" if unsure else ""
        click.echo(
            f"none of {len(comparison.steps)} steps is slower by more than {100 * threshold:g} %{rest}", err=True
        )
    context.exit(SLOWER if slower or comparison.failed else 0)
