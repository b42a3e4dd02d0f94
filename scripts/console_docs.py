"""Put the real output below the commands that the pages show: `.venv/bin/python scripts/console_docs.py`.

A command is in a block of language ``console``, after ``$``. A command without output stays without, and an output with
a line ``...`` stays as it is. Tests fail if an output, or what a cell of the notebook shows, is stale.
"""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

from click.testing import CliRunner

from rooflens.cli.main import cli

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "docs" / "extending.md"
"""Its files and commands are tried together, in a scratch copy: tests/test_extending.py."""
PAGES = (ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page != RECIPES))
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^\$ (?P<command>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)


def refreshed(text: str) -> str:
    """A page with the output of each command as it is now."""
    return _BLOCK.sub(lambda block: f"```console\n{_SESSION.sub(_answered, block[1])}```", text)


def _answered(session: re.Match[str]) -> str:
    if not session["output"] or "...\n" in session["output"]:
        return session[0]
    return f"$ {session['command']}\n{output_of(session['command'])}"


def output_of(command: str) -> str:
    """What a command of rooflens prints into a pipe."""
    program, *words = shlex.split(command)
    if program != "rooflens":
        raise ValueError(f"cannot check {command!r}: only commands of rooflens are run")
    result = CliRunner(env={"COLUMNS": "80"}).invoke(cli, words, catch_exceptions=False)
    if result.exit_code:
        raise ValueError(f"{command!r} ended with {result.exit_code}: {result.output}")
    return result.stdout


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text()
        after = refreshed(before)
        if after != before:
            page.write_text(after)
            print(page)
    runpy.run_path(str(ROOT / "scripts" / "notebook_docs.py"), run_name="__main__")
