"""Figures that somebody else reported beside ours, with the ratio and what the checks say of them."""

from __future__ import annotations

from rooflens.report.reported_figures import figures_tables
from rooflens.report.study.content import Section, StudyView, TableBlock


def reported(view: StudyView) -> Section | None:
    """Every figure that was typed in, beside what the records say of the same step; those without a partner below."""
    if not view.reported:
        return None
    compared, rest = figures_tables(view.reported)
    tables = (TableBlock(key="reported", table=compared), TableBlock(key="not-computed", table=rest, folded=True))
    return Section(key="reported", title="Reported beside ours", blocks=tuple(t for t in tables if t.table.rows))
