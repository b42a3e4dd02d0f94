"""``rooflens compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rooflens as rl
from rooflens.cli.options import (
    FIGURES,
    TABLES,
    OutputPath,
    check_outputs,
    emit_text,
    examples,
    format_option,
    output_option,
    save_picture,
    write,
)
from rooflens.cli.parameter_types import OneOf, OptionType
from rooflens.cli.prices import price_option

if TYPE_CHECKING:
    from rooflens.compare import RunComparison
    from rooflens.report.render import Format

# Repeated here so that --help imports nothing; a test compares them with the originals.
QUESTIONS = ("runs", "evidence", "kernels", "devices", "correlation", "scaling", "phases", "throughput", "answers")
FIELDS = ("model", "device", "batch", "dtype", "mode", "options")
PIECES = ("case", "phase", "module", "family", "op")
TIMES = ("measured", "bound", "predicted")
PHASES = ("forward", "backward", "optimizer", "prefill", "decode")
SLOWER = 3
"""Exit code where a step is slower than --fail-if-slower allows, or failed."""
DOUBTFUL = 4
"""Exit code where nothing is slower, but --fail-if-slower cannot tell of a step, or --fail-if-doubtful finds doubts."""


class Percent(OptionType):
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


@click.command(
    epilog=examples(
        "rooflens compare before.jsonl after.jsonl",
        "rooflens compare before/ after/ --fail-if-slower 5% --junit gate.xml",
        "rooflens compare fp32.jsonl bf16.jsonl --across dtype",
        "rooflens compare estimate.jsonl measure.jsonl counters.csv --by module",
        "rooflens compare old.csv new.csv --question kernels",
        "rooflens compare counted.jsonl after.jsonl --by module",
        "rooflens compare a.jsonl --question devices --price t4=0.4 --price h200=3.5",
        "rooflens compare study.jsonl --question correlation -o correlation.tex",
        "rooflens compare a.jsonl --question throughput --chart throughput -o a.html",
        "rooflens compare bf16.jsonl int4.jsonl --question answers",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--question",
    type=OneOf(QUESTIONS),
    metavar="QUESTION",
    help=f"The question: {', '.join(QUESTIONS)}; default: runs for two files of the same measured or counted steps,"
    " kernels for two files of kernels, devices for estimates on several devices, else evidence.",
)
@click.option(
    "--fail-if-slower",
    "threshold",
    type=Percent(),
    help="Exit with 3 if a step is significantly slower on the second side, by more than this, or fails there; with 4"
    " if nothing can be said of a step (runs).",
)
@click.option(
    "--fail-if-doubtful",
    "doubtful",
    is_flag=True,
    help="Exit with 4 if notes or findings make the comparison doubtful, or if a step cannot be compared.",
)
@click.option("--junit", type=OutputPath(".xml"), help="Write the verdicts as JUnit XML (with --fail-if-slower).")
@click.option(
    "--across",
    metavar="FIELD",
    multiple=True,
    help=f"What may differ between the sides: {', '.join(FIELDS)}, or an option like channels_last. Repeatable.",
)
@click.option("--force", is_flag=True, default=None, help="Compare runs even if their environments are not comparable.")
@click.option("--by", type=OneOf(PIECES), help="The pieces to join (evidence); of kernels phase, module or family.")
@click.option("--baseline", help="The device that others are compared with (devices); default: the first.")
@price_option
@click.option("--time", type=OneOf(TIMES), help="Which time to use; default: measured if anything was.")
@click.option("--against", help="The quantity to correlate all others with (correlation).  [default: latency]")
@click.option(
    "--over", help="The quantity that time grows with: batch, flops ..., seq_len ... (scaling).  [default: batch]"
)
@click.option("--phase", type=OneOf(PHASES), help="One phase instead of the step (correlation, scaling).")
@click.option(
    "--chart",
    metavar="NAME",
    help="The chart for an -o of .png, .svg, .pdf or .html, by its name in 'rooflens plot --chart' or in a report;"
    " an unknown name prints the list.",
)
@format_option("csv holds the first table; csv and json hold numbers in base units.")
@output_option(
    *TABLES,
    *FIGURES,
    help="Also write this file: .json .csv .md .tex .txt, or a chart: .png .svg .pdf .html. Repeatable.",
)
@click.pass_context
def compare(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    threshold: float | None,
    doubtful: bool,
    junit: Path | None,
    format_: Format,
    outputs: tuple[Path, ...],
    prices: dict[str, float] | Path | None,
    chart: str | None,
    across: tuple[str, ...],
    **options: Any,
) -> None:
    """Compare runs, sources, kernels or devices, with intervals and tests.

    Two files of measurements are compared step by step: the ratio of medians, its 95 % interval, and whether the
    difference is more than chance. Two files of kernels are compared kernel by kernel, matched by name, then by order.
    Files of estimates on several devices are ranked, as 'rooflens rank' does.
    For all other files, rooflens joins evidence: it shows how far apart the estimate, measurement, profile and counters
    of the same case are.

    A FILE is a file that 'rooflens read' takes, or a folder of record files: repeated measurements of one side. An
    option with words in parentheses, such as (runs), is for these questions only.
    """
    from rooflens.compare import RunComparison
    from rooflens.report.escape import printable
    from rooflens.report.junit import gate_xml

    if junit is not None and threshold is None:
        raise click.UsageError("--junit needs --fail-if-slower: without a threshold there are no verdicts")
    check_outputs([*outputs, *([] if junit is None else [junit])])
    pictures = [path for path in outputs if path.suffix.lower() in FIGURES]
    if bool(pictures) != (chart is not None):
        raise click.UsageError("--chart NAME and an -o of .png, .svg, .pdf or .html go together")
    comparison = rl.compare(*files, across=across or None, prices=prices, **options)
    if threshold is not None and not isinstance(comparison, RunComparison):
        raise click.UsageError("--fail-if-slower needs two measured sides; add --question runs to see what is missing")
    tables = [path for path in outputs if path not in pictures]
    emit_text(lambda wanted, color: rl.table(comparison, format=wanted, color=color), format_, tables)
    if chart is not None:
        drawn = rl.chart(chart, *map(rl.read, files))
        for path in pictures:
            save_picture(drawn, path)
    doubts = (comparison[0] if isinstance(comparison, tuple) else comparison).doubts
    if threshold is not None and isinstance(comparison, RunComparison):
        if junit is not None:
            write(junit, gate_xml(comparison, threshold, doubtful=doubtful))
        verdict = _judge(comparison, threshold)
    else:
        verdict = 0
    judged = doubts if doubtful or threshold is not None else ()
    if judged and format_ == "table":  # whose notes hold them
        click.echo(f"doubtful for {len(judged)} {'reason' if len(judged) == 1 else 'reasons'}: see the notes", err=True)
    for doubt in () if format_ == "table" else judged:
        click.echo(f"doubtful: {printable(doubt)}", err=True)
    context.exit(verdict or (DOUBTFUL if doubtful and doubts else 0))


def _judge(comparison: RunComparison, threshold: float) -> int:
    """Print the steps that are too slow, failed, or cannot be judged; the exit code that follows from them."""
    from rooflens.report.escape import printable
    from rooflens.report.junit import sentence

    slower = comparison.slower_than(threshold)
    for row in slower:
        label = printable(row.after.label())
        click.echo(f"slower by more than {100 * threshold:g} %: {label}: {sentence(row)}", err=True)
    for failure in comparison.failed:
        text = printable(f"{failure.case.label()}: {failure.kind}, {failure.message}")
        click.echo(f"failed on the second side: {text}", err=True)
    failed = {failure.case for failure in comparison.failed}
    for case in comparison.only_before:
        if case not in failed:
            click.echo(f"not on the second side, so not judged: {printable(case.label())}", err=True)
    steps, unsure = len(comparison.steps), sum(row.significant is None for row in comparison.steps)
    if not slower:
        told = [f"nothing can be said of {unsure} of {steps} steps, so the gate stays closed"] if unsure else []
        if steps > unsure:
            others = "the others" if unsure else f"{steps} steps"
            told.append(f"none of {others} is shown to be slower by more than {100 * threshold:g} %")
        click.echo("; ".join(told), err=True)
    return SLOWER if slower or comparison.failed else DOUBTFUL if unsure else 0
