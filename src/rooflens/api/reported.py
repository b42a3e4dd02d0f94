"""The reported figures that a study was made for, beside what it found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.api.checking import check
from rooflens.errors import InvalidValue
from rooflens.study import StudyFolder

if TYPE_CHECKING:
    from rooflens.checks.beside import Beside


def study_figures(folder: str | Path) -> tuple[Beside, ...]:
    """The reported figures of a study beside ours: ``for row in rl.study_figures("out/study"): print(row.ratio)``.

    Args:
        folder: of a study whose file names ``figures``.

    Returns:
        In the order of the figures: the figure, ours, their ratio, what was measured, and codes of findings on it;
        or why there is nothing of ours.

    Raises:
        InvalidValue: there is no study in this folder, or it has no figures.
        FiguresError: a cell of the figures is damaged.
        RecordFileError: one of its record files is damaged.
    """
    from rooflens.checks import read_figures
    from rooflens.study.reported import figures_beside

    opened = StudyFolder.open(folder)
    if opened.figures is None:
        raise InvalidValue(f"the study in {str(folder)!r} has no reported figures; name a CSV file: figures = 'FILE.csv'")
    return figures_beside(
        read_figures(opened.figures),
        opened.records(),
        findings=check(opened.figures),
        names=opened.names(),
    )
