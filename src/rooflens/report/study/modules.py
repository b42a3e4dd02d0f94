"""The module tree of each kind of step, with the times of a profile where there is one."""

from __future__ import annotations

from rooflens.report.module_tables import module_tree
from rooflens.report.study.breakdown import representatives
from rooflens.report.study.content import Section, TableBlock
from rooflens.report.study.view import StudyView

DEPTH = 3
MOST = 8
"""Steps whose tree is shown: those whose bound is longest."""


def modules(view: StudyView) -> Section | None:
    """Where in the model the work lies."""
    shown = [item for item in representatives(view.evidence) if item.work is not None and len(item.work.sources) == 1]
    blocks = []
    for number, item in enumerate(shown[:MOST], 1):
        assert item.work is not None
        times = item.pieces if item.pieces is not None and item.pieces is not item.work else None
        timed = times if any(r.timing is not None and r.scope != "model" for r in times or ()) else None
        tree = module_tree(item.work, depth=DEPTH, times=timed)
        if len(tree.rows) > 1:
            blocks.append(TableBlock(key=f"modules-{number}", table=tree, folded=True))
    if not blocks:
        return None
    more = f", of the {MOST} kinds whose bound is longest" if len(shown) > MOST else ""
    intro = f"Each kind of step at its largest batch{more}. What lies deeper than {DEPTH} levels is in its parents."
    return Section(key="modules", title="Modules", blocks=(intro, *blocks))
