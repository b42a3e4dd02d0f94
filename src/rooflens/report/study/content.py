"""What a report is about, and what it is made of before anything renders it.

The api fills a :class:`StudyView` from the folder of a study. Each section is a function from the view to a
:class:`Section`: titles, sentences, tables and charts as data, which a page, Markdown and LaTeX then show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rooflens.checks import Findings
from rooflens.compare import Correlation, DeviceComparison, compare_devices, correlations
from rooflens.errors import Incomparable
from rooflens.records import Environment
from rooflens.report.charts import Chart
from rooflens.report.figures.saving import Figure
from rooflens.report.table import Table
from rooflens.reported import ComparedFigure
from rooflens.results import TIMES, Evidence, RecordSet, join


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A hypothesis and what became of it.

    Attributes:
        outcome: supported, rejected or not decidable.
        sentence: the outcome with its numbers.
        pairs: every comparison: group, left, right, their values, ratio, whether it holds, and why it cannot be told.
        unit: base unit of the values on the left side; right_unit: on the right one, which may be of another quantity.
    """

    text: str
    outcome: str
    sentence: str
    pairs: tuple[Mapping[str, str | float | bool | None], ...] = ()
    unit: str = ""
    right_unit: str = ""


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """A study and all that came of it.

    Attributes:
        axes: what was varied, in words: models, devices, batches ...
        counts: cells by state (done, failed, running, left).
        excluded: what was left out, and why.
        environments: each that records were made in, with the cells it stands for.
        reported: figures of somebody else beside ours.
        text: the study file.
        commands: what repeats the study.
    """

    title: str
    question: str
    method: str
    records: RecordSet
    axes: tuple[tuple[str, str], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    excluded: tuple[tuple[str, str], ...] = ()
    environments: tuple[tuple[Environment, int], ...] = ()
    judged: tuple[Judged, ...] = ()
    findings: Findings = field(default_factory=lambda: Findings(()))
    reported: tuple[ComparedFigure, ...] = ()
    text: str = ""
    commands: tuple[str, ...] = ()

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """Estimates beside the measurements of their cases, joined once for all sections."""
        return join(self.records)

    @cached_property
    def devices(self) -> DeviceComparison | None:
        """The same steps on several devices, by measured times or else by bounds; None where neither is on two."""
        for time in TIMES:
            try:
                return compare_devices(self.records, time=time)
            except Incomparable:
                continue
        return None

    @cached_property
    def correlations(self) -> tuple[Correlation, ...]:
        """What goes with latency over the models of each setting; none where no time is known."""
        try:
            return correlations(self.records)
        except Incomparable:
            return ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Findings in words, one each."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Text that is shown as it is."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBlock:
    """A table, and the name of its file and of its place on a page.

    Attributes:
        folded: it is opened on demand.
    """

    key: str
    table: Table
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureBlock:
    """A roofline: the chart that a page shows, and the figure that files are drawn from."""

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
class Report:
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
