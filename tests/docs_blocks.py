"""Blocks of documentation pages, and how a test runs them."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int


def blocks(page: Path, language: str) -> list[Block]:
    """The fenced blocks of one language, in order."""
    text = page.read_text()
    found = (Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in _FENCE.finditer(text))
    return [block for block in found if block.language == language]


def shown_commands(page: Path) -> list[str]:
    """The commands of rooflens in the sh and console blocks of a page, without prompt and comment."""
    lines = [line for language in ("sh", "console") for b in blocks(page, language) for line in b.text.splitlines()]
    return [match[1].strip() for line in lines if (match := re.match(r"(?:\$ )?(rooflens [^#]*)", line))]


def run_python(page: Path) -> dict[str, tuple[str, str]]:
    """Run the python blocks of a page in one namespace.

    Returns:
        By place, for every ``print(...)  # text``: the text that the page shows, and what was printed.
    """
    namespace: dict[str, Any] = {}
    compared = {}
    for block in blocks(page, "python"):
        lines = block.text.splitlines()
        for statement in ast.parse(block.text).body:
            code = compile(ast.Module([statement], []), f"{page.name}:{block.line}", "exec")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            for shown in _shown(statement, lines):
                compared[f"{page.name}, line {block.line + statement.lineno - 1}"] = shown, printed.getvalue().rstrip()
    return compared


def _shown(statement: ast.stmt, lines: list[str]) -> Iterator[str]:
    """The comment behind each print of a statement."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            line = lines[(node.end_lineno or node.lineno) - 1]
            comment = line[node.end_col_offset or 0 :].strip()
            if comment.startswith("# "):
                yield comment.removeprefix("# ")
