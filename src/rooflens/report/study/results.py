"""What came out: every case in a table, what became of the hypotheses, what failed, what the checks doubt."""

from __future__ import annotations

from rooflens import units
from rooflens.checks import SEVERITIES
from rooflens.report.findings import findings as findings_table
from rooflens.report.study.cases import count
from rooflens.report.study.content import Block, Judged, Section, StudyView, TableBlock
from rooflens.report.summary import failures as failures_table
from rooflens.report.summary import summary
from rooflens.report.table import Column, Entries, Entry, Table, build

_JUDGED = (
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


def results(view: StudyView) -> Section | None:
    """One row per case."""
    if not view.records.records:
        return None
    return Section(key="results", title="Results", blocks=(TableBlock(key="results", table=summary(view.records)),))


def hypotheses(view: StudyView) -> Section | None:
    """What was expected, what became of it, and every comparison behind it."""
    if not view.judged:
        return None
    rows: list[Entries] = [
        {"hypothesis": item.text, "outcome": item.outcome, "sentence": item.sentence} for item in view.judged
    ]
    blocks: list[Block] = [TableBlock(key="hypotheses", table=build("Hypotheses", _JUDGED, rows))]
    blocks += [
        TableBlock(key=f"hypothesis-{number}", table=_pairs(item), folded=True)
        for number, item in enumerate(view.judged, 1)
        if item.pairs
    ]
    return Section(key="hypotheses", title="Hypotheses", blocks=tuple(blocks))


def _pairs(item: Judged) -> Table:
    """The comparisons of one claim; those against it first."""
    order = {False: 0, None: 1, True: 2}
    rows: list[Entries] = []
    for pair in sorted(item.pairs, key=lambda pair: order[pair["holds"]]):  # type: ignore[index]
        row: Entries = dict(pair)
        row["holds"] = {False: "no", None: "not told", True: "yes"}[pair["holds"]]  # type: ignore[index]
        for side, unit in (("left_value", item.unit), ("right_value", item.right_unit)):
            value = pair[side]
            row[side] = Entry(value, label=units.show(value, unit) if isinstance(value, float | int) else None)
        rows.append(row)
    return build(f"Comparisons: {item.text}", _PAIRS, rows)


def findings(view: StudyView) -> Section | None:
    """What cannot be true, and what a reader should doubt."""
    found = view.findings
    if not found and not found.notes:
        return None
    counted = [
        count(sum(f.severity == severity for f in found), severity)
        for severity in reversed(SEVERITIES)
        if any(f.severity == severity for f in found)
    ]
    intro = f"Every number was held against what arithmetic and the devices allow: {', '.join(counted) or 'no doubt'}."
    blocks: tuple[Block, ...] = (intro,)
    if found:
        blocks = (*blocks, TableBlock(key="findings", table=findings_table(found)))
    return Section(key="findings", title="Findings of the checks", blocks=blocks)


def failures(view: StudyView) -> Section | None:
    """Entries without a result, and why."""
    if not view.records.failures:
        return None
    table = failures_table(view.records)
    return Section(key="failures", title="Failures", blocks=(TableBlock(key="failures", table=table),))
