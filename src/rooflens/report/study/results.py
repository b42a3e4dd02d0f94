"""What came out: every case in a table, what became of the hypotheses, what failed, what the checks doubt."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens import units
from rooflens.checks import SEVERITIES
from rooflens.report.findings import findings as findings_table
from rooflens.report.reported_figures import figures_tables
from rooflens.report.study.cases import count
from rooflens.report.study.content import Block, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.summary import failures as failures_table
from rooflens.report.summary import summary
from rooflens.report.table import Column, Entry, Table, build
from rooflens.study import Verdict

_VERDICTS = (
    Column("hypothesis", "hypothesis", read="hypothesis.text", align="left"),
    Column("outcome", "outcome", align="left"),
    Column("sentence", "by which numbers", align="left"),
)
_HOLDS = {False: "no", None: "not told", True: "yes"}


def results(view: StudyView) -> Section | None:
    """One row per case."""
    if not view.records.records:
        return None
    return Section(key="results", title="Results", blocks=(TableBlock(key="results", table=summary(view.records)),))


def hypotheses(view: StudyView) -> Section | None:
    """What was expected, what became of it, and every comparison behind it."""
    if not view.verdicts:
        return None
    blocks: list[Block] = [TableBlock(key="hypotheses", table=hypotheses_table(view.verdicts))]
    blocks += [
        TableBlock(key=f"hypothesis-{number}", table=_comparisons(verdict), folded=True)
        for number, verdict in enumerate(view.verdicts, 1)
        if verdict.pairs
    ]
    return Section(key="hypotheses", title="Hypotheses", blocks=tuple(blocks))


def hypotheses_table(verdicts: Sequence[Verdict]) -> Table:
    """Return one row per hypothesis: what became of it, and by which numbers."""
    return build("Hypotheses", _VERDICTS, verdicts)


def _comparisons(verdict: Verdict) -> Table:
    """The comparisons of one claim; those against it first."""
    left, right = verdict.units
    columns = (
        Column("group", "for", align="left"),
        Column("left", "left", align="left"),
        Column("left_value", "value", read=lambda pair: _value(pair.left_value, left)),
        Column("right", "right", align="left"),
        Column("right_value", "value held against", read=lambda pair: _value(pair.right_value, right)),
        Column("ratio", "left over right"),
        Column("holds", "holds", read=lambda pair: _HOLDS[pair.holds], align="left"),
        Column("why", "why not told", align="left"),
    )
    pairs = (*verdict.against, *verdict.undecided, *verdict.supporting)
    return build(f"Comparisons: {verdict.hypothesis.text}", columns, pairs)


def _value(value: float | None, unit: str) -> Entry:
    return Entry(value, label=None if value is None else units.show(value, unit))


def reported(view: StudyView) -> Section | None:
    """Every figure that was reported, beside what the records say of the same step; those without a partner below."""
    if not view.reported:
        return None
    compared, rest = figures_tables(view.reported)
    tables = (TableBlock(key="reported", table=compared), TableBlock(key="not-computed", table=rest, folded=True))
    return Section(key="reported", title="Reported figures and ours", blocks=tuple(t for t in tables if t.table.rows))


def findings(view: StudyView) -> Section | None:
    """What cannot be true, and what a reader should doubt."""
    if not view.findings and not view.findings.notes:
        return None
    counted = [
        count(sum(f.severity == severity for f in view.findings), severity)
        for severity in reversed(SEVERITIES)
        if any(f.severity == severity for f in view.findings)
    ]
    intro = f"Every number was held against what arithmetic and the devices allow: {', '.join(counted) or 'no doubt'}."
    blocks: tuple[Block, ...] = (intro,)
    if view.findings:
        blocks = (*blocks, TableBlock(key="findings", table=findings_table(view.findings)))
    return Section(key="findings", title="Findings of the checks", blocks=blocks)


def failures(view: StudyView) -> Section | None:
    """Cells without a result, and why."""
    if not view.records.failures:
        return None
    table = failures_table(view.records)
    return Section(key="failures", title="Failures", blocks=(TableBlock(key="failures", table=table),))
