"""Studies: run here or on a cluster, resumed at any moment, and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rooflens.api.arguments import named_options
from rooflens.api.checking import check
from rooflens.errors import InvalidValue, UnknownName
from rooflens.notebook import Listed
from rooflens.report.study import Report, StudyView, compose
from rooflens.report.study.outputs import check_targets, write, write_figures, write_tables
from rooflens.reported import ComparedFigure, compare_figures, read_figures
from rooflens.results import RecordSet
from rooflens.running.studies import check_models, chosen, open_study, run_left, workers_ahead
from rooflens.study import (
    Cluster,
    Status,
    StudyChange,
    StudyContents,
    StudyFolder,
    Tell,
    Verdict,
    slurm,
)

PLAIN = "slurm"
"""A cluster without a table: its jobs have sbatch's defaults."""


@named_options()
def run_study(
    study: str | Path,
    folder: str | Path | None = None,
    *,
    jobs: int = 1,
    retry: bool = False,
    sources: Sequence[str] = (),
    devices: Sequence[str] = (),
    recorded: bool = True,
    progress: Tell | None = None,
    begun: Callable[[StudyFolder, StudyChange | None], None] | None = None,
) -> Status:
    """Run a study, or what is left of it: ``rl.run_study("study.toml", "out/study")``.

    Each cell (a case and a source) becomes a record file in the folder. The run may be killed at any moment and started
    again, or go on in several processes and on several nodes at once: nothing is lost and nothing is done twice.

    Args:
        study: a study file (docs/study.md), or the folder of a study that was begun before.
        folder: where the record files go; default is ``out/NAME`` for ``NAME.toml``.
        jobs: worker processes for what need not be alone on the machine (estimates); measurements follow one by one.
            0 estimates in this process.
        retry: also run cells that failed before.
        sources: only these (estimate, measure, counters, replay); default is all that the study asks for.
        devices: only cells of these devices; ``cuda``, ``cpu`` and device files as the study names them.
        recorded: take files that were recorded elsewhere for the cells that they are named for.
        progress: called with news of each cell.
        begun: called before anything runs, with the folder and how the study changed since it was begun.

    Returns:
        What is done, failed, running elsewhere and left. Cells that need another machine than this stay left.

    Raises:
        StudyFileError: the study cannot be read; file, line and key are named.
        OutputError: the folder cannot be written.
        InvalidValue: there is no such source or device in the study.
    """
    opened, change = open_study(study, folder)
    cells = chosen(opened, sources, devices)
    with workers_ahead(opened, cells, jobs=jobs, retry=retry):
        check_models(study, opened, change)
        if recorded:
            opened.take_recorded()
        if begun is not None:
            begun(opened, change)
        run_left(opened, cells, jobs=jobs, retry=retry, tell=progress)
    opened.sweep()
    return opened.status()


@named_options()
def run_study_on_cluster(
    study: str | Path,
    folder: str | Path | None = None,
    *,
    cluster: str = PLAIN,
    partition: str | None = None,
    gres: str | None = None,
    account: str | None = None,
    time: int | None = None,
    cpus: int | None = None,
    parallel: int | None = None,
    retry: bool = False,
    sources: Sequence[str] = (),
    devices: Sequence[str] = (),
    recorded: bool = True,
    progress: slurm.TellJobs | None = None,
    begun: Callable[[StudyFolder, StudyChange | None], None] | None = None,
) -> Status:
    """Run a study, or what is left of it, on a Slurm cluster: one array of jobs per kind of device.

    Comes back when nothing is left. It may be killed at any moment: the jobs go on, and when it is called again it
    waits for them and submits only what they leave. The study's folder has to be on a disk that all nodes share.

    Args:
        study, folder, sources, devices, recorded, begun: as in :func:`run_study`.
        cluster: a table ``[cluster.NAME]`` of the study, or ``slurm``, which needs none.
        partition, gres, account, cpus, parallel: instead of what the table says; what it says of single devices stays.
        time: of a job, in minutes.
        retry: also run cells that failed before.
        progress: called again and again with the status and the states of the jobs.

    Raises:
        ClusterError: there is no Slurm here, it refuses the jobs, or jobs end without a result.
        UnknownName: the study has no such cluster.
        InvalidValue: there is no such source or device in the study, or jobs would be too short for a cell.
        MissingDependency: submitit is not installed.
    """
    opened, change = open_study(study, folder)
    check_models(study, opened, change)
    own = _cluster(opened.study.clusters, cluster)
    given = {"partition": partition, "gres": gres, "account": account, "time": time, "cpus": cpus, "parallel": parallel}
    own = replace(own, **{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
    if begun is not None:
        begun(opened, change)
    if recorded:
        opened.take_recorded()
    cells = chosen(opened, sources, devices)
    if retry:
        for cell in cells:
            slurm.forget(opened, cell)
    # Jobs may begin elsewhere than where they were submitted.
    program = ("-m", "rooflens.running.part", str(opened.path.resolve()))
    slurm.run(opened, cells, own, program, tell=progress or (lambda *_: None))
    opened.sweep()
    return opened.status()


def _cluster(known: Mapping[str, Cluster], name: str) -> Cluster:
    if name in known:
        return known[name]
    if name == PLAIN:
        return Cluster(name=name)
    listed = f"it has {', '.join(known)}" if known else "it has none"
    remedy = f"; {listed}; write a table [cluster.{name}] into the study, or use {PLAIN!r}, which needs none"
    raise UnknownName("cluster", name, known, remedy)


def study_status(folder: str | Path) -> Status:
    """Return how far a study is: cells done, failed, running and left, and how long the rest should take.

    Raises:
        InvalidValue: there is no study in this folder.
    """
    return StudyFolder.open(folder).status()


def study_records(folder: str | Path) -> RecordSet:
    """Return all records of a study so far: ``rl.study_records("out/study").where(device="t4")``.

    Raises:
        InvalidValue: there is no study in this folder, or two of its devices of one name have other rates.
        RecordFileError: one of its record files is damaged.
    """
    return StudyFolder.open(folder).records()


def study_verdicts(folder: str | Path) -> tuple[Verdict, ...]:
    """Return the verdicts on a study's hypotheses: supported, rejected or not decidable, with the numbers.

    Raises:
        InvalidValue: there is no study in this folder.
        RecordFileError: one of its record files is damaged.
    """
    opened = StudyFolder.open(folder)
    return Listed(opened.verdicts(opened.contents()))


@named_options()
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
    """Return the reported figures of a study beside ours.

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
    """Return the same for a study whose record files were read."""
    if folder.figures is None:
        raise InvalidValue(
            f"the study in {str(folder.path)!r} has no reported figures; name a CSV file in it: figures = 'FILE.csv'"
        )
    figures, findings = read_figures(folder.figures), check(folder.figures)
    return compare_figures(figures, contents.records, findings=findings, aliases=contents.aliases)


def study_view(folder: StudyFolder) -> StudyView:
    """Return all that a report of a study shows."""
    contents = folder.contents()
    if folder.figures is None:
        return StudyView.of(folder, contents)
    return StudyView.of(folder, contents, read_figures(folder.figures), figures_of(folder, contents))
