"""Write docs/cli.md from the command line's own help: `.venv/bin/python scripts/cli_docs.py`.

A test fails if the page is stale.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import click

from rooflens.cli.main import cli
from rooflens.runs.options import OPTIONS

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 80
_MANY = 8
"""A command with so many options of a run refers to their table."""
INTRODUCTION = """\
# Command line

`scripts/cli_docs.py` writes this page from the help texts. To change the page, change a help text, then run the script.
Each command has a [function in Python](python.md).

- **Results go to stdout, everything else to stderr:** `rooflens estimate resnet18 --format json | jq` works, and a
  progress bar appears only where stderr is a terminal.
- **The suffix of `-o` decides what is written**; `-o` may be repeated. Folders are made, and a file appears whole or
  not at all. [Record files](design.md#files) (`.jsonl`) hold everything; `rooflens plot` and `rl.read` read them.
- **Exit code** 0; 1 after an error, which is one sentence; 2 after wrong usage; 3 where `check` has findings, a step is
  slower than `--fail-if-slower` allows, cells of a `study` failed, `counters` read none, or cases of `estimate`,
  `measure` or `counters` crashed, hung or raised (what a device lacks, and memory that runs out, are answers); 4 where
  that option cannot tell of a step, or where a comparison is doubtful and `--fail-if-doubtful` is given.
  `rooflens --debug COMMAND ...` shows the traceback.
- **Width and colour:** tables fit the terminal, 80 columns in a pipe; columns without room are named below the table.
  `NO_COLOR=1` switches colour off.
- **Quiet:** `-q` prints results and errors alone, without progress and names of files.
- **A shell completes** commands, options, models and devices:
  `eval "$(_ROOFLENS_COMPLETE=bash_source rooflens)"` in `~/.bashrc`,
  `eval "$(_ROOFLENS_COMPLETE=zsh_source rooflens)"` in `~/.zshrc`,
  `_ROOFLENS_COMPLETE=fish_source rooflens | source` in `~/.config/fish/completions/rooflens.fish`.
- **Dtypes** have the names of torch too: `float16`, `half`, `torch.bfloat16`.
- **Words** are explained in the [glossary](glossary.md), names of devices [here](devices.md). The shape of
  `--format json` is [promised](json.md).
"""


OF_A_RUN = """\
## Options of a run

A run also has a batch, a dtype and a mode. The flag of `seq_len` is `--seq-len`, that of `dims` is `--dim`. An option
applies to the sources in its row (`rank`, `advise` and `replay` take those of `estimate` or `measure`); the help of a
command lists its own. Two cases are of the same step if they differ only in options that concern how it is
*counted* or *run*, or its *price*.

"""


def page() -> str:
    """The text of docs/cli.md."""
    return "\n".join([INTRODUCTION, OF_A_RUN + options(), *(_section(path, command) for path, command in commands())])


def options() -> str:
    """The table of options of a run."""
    lines = ["| option | default | sources | concerns | |", "|---|---|---|---|---|"]
    for name, line in OPTIONS.items():
        default = "" if line.default in (None, ()) else f"`{str(line.default).lower()}`"
        said = {
            "answer": "whole answer",
            "graph": "ONNX file",
            "counting": "counted",
            "launching": "run",
            "running": "run",
        }
        concerns = said.get(line.concerns, line.concerns)
        concerns += f", {', '.join(line.modes)} only" if line.modes else ""
        choices = f" One of {', '.join(line.choices)}." if line.choices else ""
        lines.append(f"| `{name}` | {default} | {', '.join(line.sources)} | {concerns} | {line.help}{choices} |")
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by the words that call it, groups before what is in them."""
    yield from _below("rooflens", cli)


def _below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _below(f"{path} {name}", found)


def _section(path: str, command: click.Command) -> str:
    level = "#" * (1 + len(path.split()))
    shown, of_a_run = copy.copy(command), [param for param in command.params if param.name in OPTIONS]
    if len(of_a_run) >= _MANY:
        shown.params = [param for param in command.params if param not in of_a_run]
    context = click.Context(shown, info_name=path, terminal_width=WIDTH, help_option_names=["-h", "--help"])
    text = shown.get_help(context)
    if shown.params != command.params:
        text = text.replace("\nOptions:\n", "\nOptions, beside those of a run that its sources take:\n")
    return f"{level} {path}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
