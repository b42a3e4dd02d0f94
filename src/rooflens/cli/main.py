"""``rooflens``: the group of commands, and how errors end it."""

from __future__ import annotations

import signal
import sys
from importlib import import_module

import click

from rooflens import __version__
from rooflens.cli.command_group import CommandGroup
from rooflens.cli.options import examples
from rooflens.errors import ModelError, RooflensError
from rooflens.without_compiler import compiler_on_demand

COMMANDS = {
    "estimate": "Count a model's work and find the shortest time for it, on any device.",
    "rank": "Tell which card suits a model, and at what batch.",
    "advise": "Tell what would make a model faster on a single GPU.",
    "measure": "Run a model on this machine and time it.",
    "replay": "Time each distinct operation of a model alone on this GPU.",
    "counters": "Count FLOP and bytes of every kernel with Nsight Compute.",
    "calibrate": "Measure the ceilings of this machine.",
    "read": "Read what Nsight Compute or a profiler wrote.",
    "plot": "Draw records on a roofline.",
    "explore": "Make a page on which records are chosen, drawn, ranked and sorted.",
    "study": "Run a grid of cases from one file, and resume it at any moment.",
    "compare": "Compare runs, sources, kernels or devices, with intervals and tests.",
    "check": "Look for numbers that cannot be true, and for known mistakes.",
    "explain": "Show the formula of an operation with its numbers filled in.",
    "models": "List the well-known models that rooflens knows by name.",
    "devices": "Show the devices that rooflens knows, with a source for every number.",
}
"""Commands with their one-line help, so that `rooflens --help` imports none of them."""


class LazyGroup(CommandGroup):
    """Imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.add_command(getattr(import_module(f"rooflens.cli.{cmd_name}"), cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "rooflens estimate resnet18 -b 256 --device a100-sxm4-40gb",
        "rooflens measure resnet18 -b 1,16 -o resnet18.jsonl -o resnet18.html",
        "rooflens plot resnet18.jsonl -o resnet18.png",
        "rooflens devices show t4",
    ),
)
@click.version_option(__version__, message="rooflens %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """How fast a deep-learning model can run, how fast it does run, and what stands between the two."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors of rooflens end it with exit code 1 and one sentence, wrong usage with 2."""
    if arguments is None:  # this process is ours
        compiler_on_demand()
        signal.signal(signal.SIGTERM, _ended)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        cli.main(args=given, prog_name="rooflens")
    except OSError as error:
        if "--debug" in given[:1]:
            raise
        click.echo(f"error: {_plain(str(error))}", err=True)
        sys.exit(1)
    except RooflensError as error:
        if "--debug" in given[:1]:
            raise
        for line in (f"error: {error}", *getattr(error, "__notes__", ())):
            click.echo(_plain(line), err=True)
        if isinstance(error, ModelError) and error.__cause__ is not None:
            click.echo(f"'rooflens --debug {given[0]} ...' shows where", err=True)
        sys.exit(1)


def _ended(number: int, _: object) -> None:
    """End as by an error, so that all processes that were started end too."""
    sys.exit(128 + number)


def _plain(text: str) -> str:
    """Return text without control characters, since it may quote a file."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
