"""The report of a study: what its folder holds, gathered for :mod:`rooflens.report.study`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.api.checking import check
from rooflens.errors import InvalidValue
from rooflens.records import Environment, RecordFile
from rooflens.results import RecordSet
from rooflens.study import Pair, Side, StudyFolder, Verdict, excluded, judge
from rooflens.study.hypotheses import QUANTITIES
from rooflens.study.status_text import STATES

if TYPE_CHECKING:
    from rooflens.report.study import Judged, Report, StudyView
    from rooflens.reported import ComparedFigure, DeviceAliases

MOST_SAID = 24
"""Values of an axis that are named; of more, the first ones."""


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
    found = opened.contents()
    return figures_of(opened, found.records(), found.aliases())


def figures_of(
    folder: StudyFolder, records: RecordSet, aliases: DeviceAliases | None = None
) -> tuple[ComparedFigure, ...]:
    """The same for a study whose records are at hand, and what its words for a machine turned out to be."""
    from rooflens.reported import compare_figures, read_figures

    if folder.figures is None:
        raise InvalidValue(
            f"the study in {str(folder.path)!r} has no reported figures; name a CSV file in it: figures = 'FILE.csv'"
        )
    findings, known = check(folder.figures), folder.aliases() if aliases is None else aliases
    return compare_figures(read_figures(folder.figures), records, findings=findings, aliases=known)


def study_view(folder: StudyFolder) -> StudyView:
    """All that a report says of a study."""
    from rooflens.checks import examine, read_figures
    from rooflens.report.study import StudyView

    study, found, states = folder.study, folder.contents(), folder.states()
    records, names = found.records(), found.aliases()
    typed = () if folder.figures is None else read_figures(folder.figures)
    left = [cell for cell, state in states.items() if state in ("left", "running")]
    return StudyView(
        title=study.title,
        question=study.question,
        method=study.method,
        records=records,
        axes=tuple(_axes(folder)),
        counts={state: list(states.values()).count(state) for state in STATES},
        excluded=tuple(_excluded(folder)),
        environments=_environments(contents for _, contents in found.cells),
        judged=tuple(_judged(verdict) for verdict in judge(study.hypotheses, records, names, left)),
        findings=examine(typed, records),
        reported=() if folder.figures is None else figures_of(folder, records, names),
        text=(folder.path / "study.toml").read_text(encoding="utf-8"),
        commands=tuple(_commands(folder)),
    )


def _commands(folder: StudyFolder) -> Iterator[str]:
    """Commands on the folder of the study, by its last name: where it lies says nothing to others."""
    name = shlex.quote(f"out/{folder.path.resolve().name}")
    yield f"rooflens study run study.toml -d {name}"
    yield f"rooflens study status {name}"
    yield f"rooflens study report {name} -o report.html"


def _axes(folder: StudyFolder) -> Iterator[tuple[str, str]]:
    cells = folder.cells
    for what, values in (
        ("sources", [cell.source for cell in cells]),
        ("models", [cell.file or cell.case.model for cell in cells]),
        ("devices", [cell.case.device for cell in cells]),
        ("batches", [cell.case.batch for cell in cells]),
        ("dtypes", [cell.case.dtype for cell in cells]),
        ("modes", [cell.case.mode for cell in cells]),
        ("options", [f"{name}={value}" for cell in cells for name, value in cell.case.options]),
    ):
        known = [str(value) for value in dict.fromkeys(values) if value is not None]
        if known:
            more = f" and {len(known) - MOST_SAID} more" if len(known) > MOST_SAID else ""
            yield what, ", ".join(known[:MOST_SAID]) + more


def _excluded(folder: StudyFolder) -> Iterator[tuple[str, str]]:
    """Each exclusion in words, and how many cells it leaves out."""
    left_out = list(excluded(folder.study))
    for exclusion in folder.study.excluded:
        conditions = (f"{name} {' or '.join(map(str, values))}" for name, values in exclusion.conditions.items())
        yield ", ".join(conditions), exclusion.why or "no reason is given"
    if left_out:
        yield "in all", f"{len(left_out)} cells"


def _environments(found: Iterator[RecordFile]) -> tuple[tuple[Environment, int], ...]:
    """Each environment and its number of record files; when a file was made and by which process tells none apart."""
    counted: dict[str, tuple[Environment, int]] = {}
    for contents in found:
        made = contents.environment
        if made is not None:
            key = repr((made.rooflens, sorted(made.versions.items()), sorted(made.machine.items()), made.flags))
            counted[key] = (counted.get(key, (made, 0))[0], counted.get(key, (made, 0))[1] + 1)
    return tuple(counted.values())


def _judged(verdict: Verdict) -> Judged:
    from rooflens.report.study import Judged

    claim = verdict.hypothesis.claim
    left, right = ("", "") if claim is None else map(_unit, (claim.left, claim.right), repeat(claim.quantity))
    return Judged(
        text=verdict.hypothesis.text,
        outcome=verdict.outcome,
        sentence=verdict.sentence,
        pairs=tuple(map(_pair, verdict.pairs)),
        unit=left,
        right_unit=right,
    )


def _unit(side: Side, quantity: str) -> str:
    return QUANTITIES.get(side.quantity or quantity, "")


def _pair(pair: Pair) -> dict[str, str | float | bool | None]:
    return {
        "group": pair.group,
        "left": pair.left,
        "left_value": pair.left_value,
        "right": pair.right,
        "right_value": pair.right_value,
        "ratio": pair.ratio,
        "holds": pair.holds,
        "why": pair.why,
    }
