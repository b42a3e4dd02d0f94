"""What came out: every case in a table, what became of the hypotheses, what failed, what the checks doubt."""

from __future__ import annotations

from rooflens import units
from rooflens.checks import SEVERITIES
from rooflens.report.findings import findings as findings_table
from rooflens.report.reported_figures import figures_tables
from rooflens.report.study.cases import count
from rooflens.report.study.content import Block, Section, TableBlock
from rooflens.report.study.view import StudyView
from rooflens.report.summary import failures as failures_table
from rooflens.report.summary import summary
from rooflens.report.table import Column, Entries, Entry, Table, build
from rooflens.study import Verdict

_VERDICTS = (
    Column(key="hypothesis", header="hypothesis", align="left"),
    Column(key="outcome", header="outcome", align="left"),
    Column(key="sentence", header="by which numbers", align="left"),
)
_PAIRS = (
    Column(key="group", header="for", align="left"),
    Column(key="left", header="left", align="left"),
    Column(key="left_value", header="value"),
    Column(key="right", header="right", align="left"),
    Column(key="right_value", header="value held against"),
    Column(key="ratio", header="left over right"),
    Column(key="holds", header="holds", align="left"),
    Column(key="why", header="why not told", align="left"),
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
    rows: list[Entries] = [
        {"hypothesis": verdict.hypothesis.text, "outcome": verdict.outcome, "sentence": verdict.sentence}
        for verdict in view.verdicts
    ]
    blocks: list[Block] = [TableBlock(key="hypotheses", table=build("Hypotheses", _VERDICTS, rows))]
    blocks += [
        TableBlock(key=f"hypothesis-{number}", table=_comparisons(verdict), folded=True)
        for number, verdict in enumerate(view.verdicts, 1)
        if verdict.pairs
    ]
    return Section(key="hypotheses", title="Hypotheses", blocks=tuple(blocks))


def _comparisons(verdict: Verdict) -> Table:
    """The comparisons of one claim; those against it first."""
    left, right = verdict.units
    rows: list[Entries] = [
        {
            "group": pair.group,
            "left": pair.left,
            "left_value": _value(pair.left_value, left),
            "right": pair.right,
            "right_value": _value(pair.right_value, right),
            "ratio": pair.ratio,
            "holds": _HOLDS[pair.holds],
            "why": pair.why,
        }
        for pair in (*verdict.against, *verdict.undecided, *verdict.supporting)
    ]
    return build(f"Comparisons: {verdict.hypothesis.text}", _PAIRS, rows)


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
