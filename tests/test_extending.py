"""Every recipe of docs/extending.md is followed, file by file and command by command, in a scratch copy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.docs_blocks import ROOT, Block, blocks

PAGE = ROOT / "docs" / "extending.md"
FILE = re.compile(r"(?:#|//|--) (?P<path>[\w./-]+\.\w+)\n")
COPIED = ("src", "tests/calls.py")
LANGUAGES = ("python", "toml", "csv", "diff", "console")


def recipes() -> dict[str, list[Block]]:
    """The blocks below each heading of the page, in order."""
    text = PAGE.read_text(encoding="utf-8")
    starts = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r"^## (.*)$", text, re.MULTILINE)]
    found: dict[str, list[Block]] = {title: [] for _, title in starts}
    for block in sorted((b for language in LANGUAGES for b in blocks(PAGE, language)), key=lambda block: block.line):
        found[[title for line, title in starts if line < block.line][-1]].append(block)
    return {title: steps for title, steps in found.items() if steps}


def write(block: Block, folder: Path) -> None:
    """Write the file of a block: its path stands in the first line."""
    named = FILE.match(block.text)
    assert named is not None, f"line {block.line}: the block names no file in its first line"
    path = folder / named["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    # CSV has no comments: there the line that names the file is no part of it.
    path.write_text(block.text[named.end() :] if block.language == "csv" else block.text, encoding="utf-8")
    if path.name == "pyproject.toml":
        install(path)


def install(project: Path) -> None:
    """What pip does for an editable package: the entry points of a project are put where Python looks for them."""
    tables = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    information = project.parent / f"{tables['name'].replace('-', '_')}-{tables['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {tables['name']}\nVersion: {tables['version']}\n"
    )
    groups: Mapping[str, Mapping[str, str]] = tables["entry-points"]
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")


def change(block: Block, folder: Path) -> None:
    """Replace lines of a file as a diff shows it: unchanged and removed lines stand there once, next to each other."""
    first, _, rest = block.text.partition("\n")
    path = folder / first.removeprefix("+++ ").strip()
    lines = rest.splitlines()
    old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    new = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"line {block.line}: {path.name} holds these lines {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(block: Block, folder: Path) -> None:
    """Run the commands of a block; what they print is what the page shows. A line of three dots is any lines."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", block.text, re.MULTILINE):
        words = shlex.split(command)
        program = {"python": [sys.executable], "rooflens": [sys.executable, "-m", "rooflens"]}[words[0]]
        installed = [folder / "src", folder, *(project.parent for project in folder.rglob("pyproject.toml"))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, installed)), "COLUMNS": "80"}
        done = subprocess.run(
            [*program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        wanted = r"(?:.*\n)*?".join(map(re.escape, re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)))
        assert re.fullmatch(wanted, done.stdout), f"$ {command}\n{done.stdout}\ninstead of\n{shown}"


STEPS = {"diff": change, "console": run}


@pytest.mark.parametrize("title", recipes())
def test_a_recipe_works_as_it_is_written(title: str, tmp_path: Path) -> None:
    for name in COPIED:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target)
    for block in recipes()[title]:
        STEPS.get(block.language, write)(block, tmp_path)


def test_there_is_a_recipe_for_each_kind_of_addition() -> None:
    assert [re.sub("^An? ", "", title) for title in recipes()] == [
        "operation", "device", "metric set", "reader", "picture", "study runner",
    ]  # fmt: skip
