"""The reported figures that a study was made for, beside what it found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.api.checking import check
from rooflens.errors import InvalidValue
from rooflens.results import RecordSet
from rooflens.study import StudyFolder

if TYPE_CHECKING:
    from rooflens.reported import ComparedFigure, DeviceAliases


def study_figures(folder: str | Path) -> tuple[ComparedFigure, ...]:
    """The reported figures of a study beside ours.

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
    opened = StudyFolder.open(folder)
    found = opened.found()
    return figures_of(opened, found.records(), found.names())


def figures_of(
    folder: StudyFolder, records: RecordSet, aliases: DeviceAliases | None = None
) -> tuple[ComparedFigure, ...]:
    """The same for a study whose records are at hand, and what its words for a machine turned out to be."""
    from rooflens.reported import compare_figures, read_figures

    if folder.figures is None:
        raise InvalidValue(
            f"the study in {str(folder.path)!r} has no reported figures; name a CSV file in it: figures = 'FILE.csv'"
        )
    findings, known = check(folder.figures), folder.names() if aliases is None else aliases
    return compare_figures(read_figures(folder.figures), records, findings=findings, aliases=known)
