"""An explanation, as text and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rooflens.explanation.chapters import Chapter, Explained
from rooflens.explanation.plain import plain
from rooflens.explanation.text import lines_of


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The formulas of some operations with their numbers filled in: ``print(rl.explain("mm", shapes=...))``.

    Attributes:
        chapters: the operations, by case.
    """

    chapters: tuple[Chapter, ...]

    @property
    def operations(self) -> tuple[Explained, ...]:
        """Every operation that is explained."""
        return tuple(operation for chapter in self.chapters for operation in chapter.operations)

    @property
    def text(self) -> str:
        """The explanation for a person, 80 columns wide."""
        return "\n".join(lines_of(self.chapters))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Explanation({', '.join(operation.calculation.call.name for operation in self.operations)})"

    @property
    def data(self) -> list[dict[str, Any]]:
        """The explanation for a program: one object per operation, numbers in FLOP, bytes and seconds."""
        return [
            {"case": chapter.title or None, **plain(operation)}
            for chapter in self.chapters
            for operation in chapter.operations
        ]
