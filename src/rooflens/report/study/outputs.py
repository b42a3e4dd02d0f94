"""Files of a report: by suffix the whole of it, and each figure and table on its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rooflens.errors import InvalidValue, OutputError
from rooflens.records import check_writable, write_atomically
from rooflens.report.study import html as page
from rooflens.report.study import markdown
from rooflens.report.study.content import FigureBlock, Report
from rooflens.report.text_formats import as_csv, as_latex

SUFFIXES = (".html", ".md", ".tex", ".csv")
ALONE = ("svg", "pdf")
"""Forms of a figure on its own."""


def check_targets(paths: Iterable[Path]) -> None:
    """Refuse what could not be written, before anything is made.

    Raises:
        InvalidValue: a suffix is unknown.
        OutputError: a folder cannot be written.
    """
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            raise InvalidValue(
                f"cannot write a report to {str(path)!r}: its suffix is {path.suffix!r}, known are"
                f" {', '.join(SUFFIXES)}"
            )
        check_writable(path)


def write(report: Report, path: Path) -> None:
    """The report in the form that the suffix names; a file appears whole or not at all."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        write_atomically(path, page.render(report))
    elif suffix == ".md":
        images = path.with_name(f"{path.stem}-figures")
        _folder(images)
        for drawn in report.charts:
            write_atomically(images / f"{drawn.chart.key}.svg", render(drawn, "svg"))
        write_atomically(path, markdown.as_markdown(report, images.name))
    elif suffix == ".tex":
        write_atomically(path, as_latex([listed.table for listed in report.tables]))
    else:
        tables = [listed.table for listed in report.tables if listed.key == "results"]
        if not tables:
            raise InvalidValue("the study has no results yet: there is no table of them to write")
        write_atomically(path, as_csv(tables[0]))


def write_figures(report: Report, folder: Path) -> None:
    """Every figure as SVG and as PDF."""
    _folder(folder)
    for drawn in report.charts:
        for suffix in ALONE:
            write_atomically(folder / f"{drawn.chart.key}.{suffix}", render(drawn, suffix))


def write_tables(report: Report, folder: Path) -> None:
    """Every table as CSV: all columns, raw numbers in base units."""
    _folder(folder)
    for listed in report.tables:
        write_atomically(folder / f"{listed.key}.csv", as_csv(listed.table))


def render(drawn: FigureBlock, suffix: str) -> bytes:
    """Return a figure on its own; equal figures give equal bytes."""
    if drawn.figure is not None:
        return drawn.figure.drawn(suffix)
    from rooflens.report.charts import with_matplotlib

    return with_matplotlib.render(drawn.chart, suffix)


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error
