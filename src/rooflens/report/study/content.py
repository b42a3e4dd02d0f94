"""What a report is made of before anything renders it: sections of sentences, tables and charts as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rooflens.notebook import Displayed
from rooflens.report.charts import Chart
from rooflens.report.figures.saving import Figure
from rooflens.report.table import Table


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    kind: ClassVar = "facts"
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Findings in words, one each."""

    kind: ClassVar = "sentences"
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Text that is shown as it is."""

    kind: ClassVar = "code"
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBlock:
    """A table, and the name of its file and of its place on a page.

    Attributes:
        folded: it is opened on demand.
    """

    kind: ClassVar = "table"
    key: str
    table: Table
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureBlock:
    """A roofline: the chart that a page shows, and the figure that files are drawn from."""

    kind: ClassVar = "figure"
    chart: Chart
    figure: Figure | None = None


Block = str | Facts | Sentences | Code | TableBlock | FigureBlock
"""A paragraph, or one of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Displayed):
    """A whole report."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    @property
    def tables(self) -> tuple[TableBlock, ...]:
        """Every table, in order."""
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, TableBlock))

    @property
    def charts(self) -> tuple[FigureBlock, ...]:
        """Every figure, in order."""
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, FigureBlock))
