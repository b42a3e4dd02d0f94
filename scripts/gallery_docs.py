"""Draw the pictures of docs/gallery.md by the commands that stand there: `.venv/bin/python scripts/gallery_docs.py`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner
from tests.docs_blocks import shown_commands

from rooflens.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
FOLDERS = {".png": ROOT / "docs" / "images", ".jsonl": ROOT / "out" / "gallery"}
"""Where the files are that a command names without a folder, by their suffix."""


def placed(command: str) -> list[str]:
    """The words of a command of the page, with its files in their folders."""
    words = shlex.split(command)[1:]
    folders = [FOLDERS.get(Path(word).suffix) if "/" not in word else None for word in words]
    return [str(folder / word) if folder else word for folder, word in zip(folders, words, strict=True)]


def main() -> None:
    os.chdir(ROOT)
    for command in shown_commands(PAGE):
        print(command, flush=True)
        result = CliRunner().invoke(cli, [*placed(command), "--quiet"], catch_exceptions=False)
        if result.exit_code:
            sys.exit(result.output)


if __name__ == "__main__":
    main()
