"""``rooflens counters``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import rooflens as rl
from rooflens.cli.options import (
    ASKED,
    FAILED,
    Shown,
    end_if_failed,
    estimate_option,
    examples,
    limit_option,
    load_what_prints,
    output_options,
    progress_bar,
    roof_option,
    run_options,
)
from rooflens.cli.parameter_types import OneOf

CACHES = ("all", "none")
_PROGRAM = "rooflens.program"
_COUNTING = ("cache", "limit", "every", "roof", "keep")
"""Options that hold for a program too, beside what is shown and where; all others are of a model."""
_SHOWN = ("outputs", "format_", *ASKED)


class ModelOrProgram(click.Command):
    """Takes a program after ``--``, else a model."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        model = next(param for param in self.params if param.name == "model")
        if "--" in args:
            end = args.index("--")
            ctx.meta[_PROGRAM] = args[end + 1 :]
            args = args[:end]
        model.required = _PROGRAM not in ctx.meta
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "MODEL | -- PROGRAM [ARGUMENTS]"]


@click.command(
    cls=ModelOrProgram,
    epilog=examples(
        "rooflens counters resnet18 -b 32",
        "rooflens counters vit_b_16 -b 64 --dtype bf16 --mode train -o vit.html",
        "rooflens counters resnet50 -b 64 --keep reports --limit 300",
        "rooflens counters --limit 900 -o run.jsonl -- python train.py --epochs 1",
    ),
)
@run_options("counters")
@click.option(
    "--cache",
    type=OneOf(CACHES),
    default="all",
    show_default=True,
    help="all empties the caches before each kernel, so that a repeat gives the same bytes; none leaves them.",
)
@limit_option(
    "Seconds of counting per batch. After that, rooflens stops ncu and keeps what it has counted.",
    "--time-limit",
    "limit",
)
@click.option(
    "--every",
    is_flag=True,
    help="Count each launch. By default, one of each kernel, grid, block and operands is counted for all.",
)
@roof_option()
@estimate_option
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Keep ncu's reports and the profiler's traces in this folder."
)
@click.option(
    "--allow-missing", is_flag=True, help="End with exit code 0 even where no counters could be read, and not with 3."
)
@output_options
@click.pass_context
def counters(ctx: click.Context, /, model: str | None, shown: Shown, allow_missing: bool, **options: Any) -> None:
    """Count FLOP and bytes of every kernel with Nsight Compute, in one warm step of a model or one step of a program.

    rooflens runs the step of a model under torch's profiler, for times, operations and modules, and under ncu, for
    counters. In a program, the step is what runs between torch.cuda.profiler.start() and stop(), or the first iteration
    of a rooflens.region after those that the region skips. If ncu is missing or the counters are locked, you get the
    estimate, the profiler's times, a note, and exit code 3.
    """
    program: list[str] | None = ctx.meta.get(_PROGRAM)
    load_what_prints(4.0)  # while ncu counts: before that, processes start
    with progress_bar() as tell:
        if program is None:
            records = rl.counters(model, progress=tell, **options)  # type: ignore[arg-type]
        else:
            _check_program(ctx, model, program)
            kept = {name: options[name] for name in _COUNTING}
            records = rl.count_program(program, progress=tell, echo=lambda line: click.echo(line, err=True), **kept)
    shown.emit(records)
    end_if_failed(records)
    if not allow_missing and any(without_counters(records)):
        click.echo("no counters were read; the notes say why, and --allow-missing makes this no failure", err=True)
        ctx.exit(FAILED)


def without_counters(records: rl.RecordSet) -> Iterator[rl.Case]:
    """Yield the cases that were run and not counted."""
    counted = {record.case for record in records if record.source == "counters"}
    yield from {record.case for record in records if record.source == "profile"} - counted


def _check_program(ctx: click.Context, model: str | None, program: list[str]) -> None:
    """Raise UsageError for a model, or options of one, beside a program."""
    if model is not None:
        raise click.UsageError(f"give a model ({model}) or a program (-- {' '.join(program)}), not both")
    if not program:
        raise click.UsageError("no program stands behind --; write 'rooflens counters -- python train.py'")
    for param in ctx.command.get_params(ctx):
        name = param.name or ""
        typed = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if typed and name not in (*_COUNTING, *_SHOWN):
            flag = _as_typed(param, ctx.params[name])
            raise click.UsageError(f"{flag} is of a model; a program says itself how it runs")


def _as_typed(param: click.Parameter, value: Any) -> str:
    """Return the flag of an option as it was given."""
    flags = param.secondary_opts if value is False and param.secondary_opts else param.opts
    return max(flags, key=len)
