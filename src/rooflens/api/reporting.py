"""The report of a study, and the reported figures of a study beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.api.checking import check
from rooflens.errors import InvalidValue
from rooflens.study import StudyContents, StudyFolder

if TYPE_CHECKING:
    from rooflens.report.study import Report, StudyView
    from rooflens.reported import ComparedFigure


def study_report(
    folder: str | Path,
    out: str | Path | Sequence[str | Path] = (),
    *,
    figures: str | Path | None = None,
    tables: str | Path | None = None,
) -> Report:
    """Write the report of a study: ``rl.study_report("out/resnets", "report.html")``.

    Args:
        folder: of a study that was begun; what is not done yet is missing in the report, which says so.
        out: files to write, by their suffix: ``.html`` is one page that asks nothing of any host, ``.md`` goes with
            images in a folder beside it, ``.tex`` holds every table in the style of booktabs, ``.csv`` every case.
        figures: a folder for each figure on its own, as SVG and as PDF.
        tables: a folder for each table on its own, as CSV.

    Returns:
        The report as data: sections of sentences, tables and figures.

    Raises:
        InvalidValue: there is no study in this folder, or a suffix is unknown.
        RecordFileError: one of its record files is damaged.
        FiguresError: its reported figures cannot be read; the line is named.
        OutputError: a file cannot be written.
    """
    from rooflens.report.study import compose
    from rooflens.report.study.outputs import check_targets, write, write_figures, write_tables

    targets = [Path(out)] if isinstance(out, str | Path) else [Path(path) for path in out]
    check_targets(targets)
    report = compose(study_view(StudyFolder.open(folder)))
    for target in targets:
        write(report, target)
    if figures is not None:
        write_figures(report, Path(figures))
    if tables is not None:
        write_tables(report, Path(tables))
    return report


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
    return figures_of(opened, opened.contents())


def figures_of(folder: StudyFolder, contents: StudyContents) -> tuple[ComparedFigure, ...]:
    """As :func:`study_figures`, of a study whose record files were read."""
    from rooflens.reported import compare_figures, read_figures

    if folder.figures is None:
        raise InvalidValue(
            f"the study in {str(folder.path)!r} has no reported figures; name a CSV file in it: figures = 'FILE.csv'"
        )
    figures, findings = read_figures(folder.figures), check(folder.figures)
    return compare_figures(figures, contents.records, findings=findings, aliases=contents.aliases)


def study_view(folder: StudyFolder) -> StudyView:
    """All that a report says of a study."""
    from rooflens.report.study import StudyView
    from rooflens.reported import read_figures

    contents = folder.contents()
    if folder.figures is None:
        return StudyView.of(folder, contents)
    return StudyView.of(folder, contents, read_figures(folder.figures), figures_of(folder, contents))
