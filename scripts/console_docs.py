"""Put the real output below the commands that the pages show: `.venv/bin/python scripts/console_docs.py`.

A command is in a block of language ``console``, after ``$``. A command without output stays without, and a line ``...``
stands for what a page leaves out. Tests fail if a whole output, or what a cell of the notebook shows, is stale; those
with ``...``, some of which take long, are made anew by this script alone.
"""

from __future__ import annotations

import re
import runpy
import shlex
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path

from click.testing import CliRunner

from rooflens.cli.main import cli

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "docs" / "extending.md"
"""Its files and commands are tried together, in a scratch copy: tests/test_extending.py."""
PAGES = (ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page != RECIPES))
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^\$ (?P<command>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)


_CUT = "..."


def refreshed(text: str, *, cut: bool = False) -> str:
    """A page with the output of each command as it is now; `cut` ones too, or only those that are shown whole."""

    def answered(session: re.Match[str]) -> str:
        shown = session["output"].splitlines()
        if not shown or (_CUT in shown and not cut):
            return session[0]
        output = output_of(session["command"])
        if _CUT in shown:
            output = "\n".join(cut_as(shown, output.splitlines())) + "\n"
        return f"$ {session['command']}\n{output}"

    return _BLOCK.sub(lambda block: f"```console\n{_SESSION.sub(answered, block[1])}```", text)


def cut_as(shown: list[str], now: list[str]) -> list[str]:
    """Return the lines of an output that a page shows of it, with ``...`` where it leaves lines out.

    What stands before the first ``...`` is as many lines of the beginning; what stands behind each begins with the line
    that is most like its first one.
    """
    cuts = [number for number, line in enumerate(shown) if line == _CUT]
    found, place = now[: cuts[0]], cuts[0]
    for start, end in pairwise((*cuts, len(shown))):
        part, found = shown[start + 1 : end], [*found, _CUT]
        if part:
            starts = range(place, max(place, len(now) - len(part)) + 1)
            place = max(starts, key=lambda n: SequenceMatcher(None, part[0], now[n]).ratio())
            found += now[place : place + len(part)]
            place += len(part)
    return found


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
        after = refreshed(before, cut=True)
        if after != before:
            page.write_text(after)
            print(page)
    runpy.run_path(str(ROOT / "scripts" / "notebook_docs.py"), run_name="__main__")
