"""Paragraphs and lines with labels, laid out in 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

WIDTH = 80
_GLUE = "\N{NO-BREAK SPACE}"
_TIME_UNIT = re.compile(r"(?<=\d) (?=[mnpu]?s\b)")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label and text beside it."""

    label: str
    text: str


TextBlock = Labelled | str
"""A paragraph, or a line with a label; an empty paragraph is an empty line."""


def laid_out(blocks: list[TextBlock]) -> Iterator[str]:
    """Lines of at most 80 columns, texts beside labels in one column."""
    column = 2 + max(len(block.label) for block in blocks if isinstance(block, Labelled)) + 2
    for block in blocks:
        if isinstance(block, Labelled):
            yield from wrapped(_glued(block.text), f"  {block.label}".ljust(column), " " * (column + 2))
        else:
            yield from wrapped(" ".join(block.split()), "  ", "  ") or [""]


def wrapped(text: str, first: str, others: str) -> list[str]:
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in lines]


def _glued(text: str) -> str:
    """Text that breaks only before an operator, and never between a number and its name or unit."""
    for sign in ("x", "/", "+", "-", "="):
        text = text.replace(f" {sign} ", f" {sign}{_GLUE}")
    for follower in ("(", "FLOP", "B"):
        text = text.replace(f" {follower}", f"{_GLUE}{follower}")
    return _TIME_UNIT.sub(_GLUE, text)


def number(n: float) -> str:
    return f"{int(n):,}" if n == int(n) else f"{n:,}"
