"""docs/glossary.md: one word, one meaning; the types, flags and commands that it names exist."""

from __future__ import annotations

import ast
import re

import pytest
from scripts import cli_docs
from tests.docs_blocks import ROOT

PAGE = ROOT / "docs" / "glossary.md"
TEXT = PAGE.read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]


def members() -> dict[str, set[str]]:
    """By public class or capitalised alias of the package: its fields, properties and methods."""
    known: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "rooflens").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                fields = {
                    item.target.id
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
                known[node.name] = fields | {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                known.setdefault(node.targets[0].id, set())
    return known


def test_a_word_has_one_meaning() -> None:
    words = [word.strip() for row in ROWS if row[0] != "word" for word in row[0].split(",")]
    assert len(words) > 60
    assert len(words) == len(set(words))


def test_the_types_and_their_fields_exist() -> None:
    known = members()
    named = re.findall(r"`([A-Z][a-z]+[A-Za-z]*)(?:\.(\w+))?`", TEXT)
    assert len(named) > 20
    for name, field in named:
        assert name in known, name
        assert not field or field in known[name], f"{name}.{field}"


def test_the_flags_and_commands_exist() -> None:
    flags, commands = re.findall(r"`(--[\w-]+)`", TEXT), re.findall(r"`(rooflens \w+)`", TEXT)
    help_texts = (ROOT / "docs" / "cli.md").read_text()
    assert [flag for flag in flags if not re.search(rf"{flag}\b", help_texts)] == []
    assert commands
    assert set(commands) <= {path for path, _ in cli_docs.commands()}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/design.md"])
def test_the_page_is_linked(name: str) -> None:
    assert re.search(r"\]\((docs/)?glossary\.md\)", (ROOT / name).read_text())
