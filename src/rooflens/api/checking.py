"""Checks of records and of tables of reported figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from rooflens.api.arguments import named_options
from rooflens.api.reading import read
from rooflens.checks import Findings, examine
from rooflens.errors import InvalidValue, RooflensError
from rooflens.progress import Progress
from rooflens.records import DTYPES
from rooflens.reported import (
    ReportedFigure,
    RightValues,
    holds_figures,
    of_shortest,
    read_figures,
    recorded,
)
from rooflens.results import RecordSet
from rooflens.running.estimating import estimable, estimated
from rooflens.runs.options import OPTIONS, Options
from rooflens.runs.run import Request, Run

_NAME = re.compile(r"(?:timm:|hf:)?[\w.-]+")
_FILES = (".py", ".onnx", ".json")


@named_options()
def check(*sources: RecordSet | str | Path, progress: Progress | None = None) -> Findings:
    """Look for numbers that cannot be true and for known mistakes: ``for finding in rl.check(time, hw): ...``.

    Figures are held against the right values of their model, batch, dtype and phase, against the ceilings of their
    device, and against each other. Right values are the estimates among the sources; those of torchvision's
    classification models come from a table in the package, those of other models are estimated here if torch is
    installed.

    Args:
        sources: record sets and files: record files, whatever else :func:`read` takes, and CSV files with columns
            ``quantity`` and ``value`` (docs/check.md).
        progress: called while models are estimated.

    Returns:
        The findings, the gravest first: code, severity, subject, message, evidence (numbers in base units) and remedy.
        ``.notes`` names the models and devices that nobody knows.

    Raises:
        FileError: a file cannot be read, or a cell of it is damaged; the line is named.
        InvalidValue: nothing to check: no source, or sources without a record and a figure.
    """
    if not sources:
        raise InvalidValue("check needs something to doubt: record sets, or files")
    figures, records = _sources(sources)
    if not figures and not records.records:
        has = f", only {len(records.failures)} failures" if records.failures else ""
        raise InvalidValue(f"there is nothing to check: the sources hold no record and no reported figure{has}")
    return examine(figures, records, estimates=_right_values(figures, records, progress))


def _sources(sources: Sequence[RecordSet | str | Path]) -> tuple[list[ReportedFigure], RecordSet]:
    """Return the reported figures and the records among the sources."""
    figures: list[ReportedFigure] = []
    sets: list[RecordSet] = []
    for source in sources:
        if isinstance(source, RecordSet):
            sets.append(source)
        elif (path := Path(source)).suffix.lower() == ".csv" and holds_figures(path):
            figures += read_figures(path)
        else:
            sets.append(read(path))
    return figures, RecordSet.union(sets)


def _right_values(figures: Iterable[ReportedFigure], records: RecordSet, progress: Progress | None) -> RecordSet:
    """Return estimates of steps that neither records nor the table cover; models that cannot be built have none."""
    known = RightValues(records)
    every = (figure for figure in (*figures, *recorded(records)) if figure.phases)
    unanswered = (figure for figure in every if known.of(figure) is None and known.shortest(figure) is None)
    steps = (of_shortest(figure) if figure.lacks_length else figure for figure in unanswered)
    found = ((_run_of(figure), figure.recorded is None) for figure in steps)
    runs = list(dict.fromkeys((run, is_typed) for run, is_typed in found if run is not None))
    estimates = RecordSet(())
    if not runs or find_spec("torch") is None:
        return estimates
    for n, (run, is_typed) in enumerate(runs):
        if progress is not None:
            progress(n / len(runs), f"{run.model}, batch {run.batch}")
        try:
            # Others run a model as it is published; what rooflens measured has weights in the dtype.
            estimates += estimated([estimable(Request.of_run(run if is_typed else run.in_dtype()))])
        except RooflensError:  # an unknown name: its figures are only compared with each other
            continue
    return estimates


def _run_of(figure: ReportedFigure) -> Run | None:
    """Return the run of a figure, or None if its model names a file or code, or it cannot be run here."""
    model, case = figure.model, figure.recorded
    if figure.batch is None or not _NAME.fullmatch(model) or model.lower().endswith(_FILES):
        return None
    named = {"img_size": figure.image, "seq_len": figure.tokens} if case is None else dict(case.options)
    kept = {name for name, line in OPTIONS.items() if line.concerns == "step" and name != "compile"}
    try:
        options = Options.from_case(
            (name, value) for name, value in named.items() if name in kept and value is not None
        )
    except InvalidValue:  # an option that somebody else's run has, and ours has not
        return None
    return Run(
        model=model,
        batch=figure.batch,
        dtype=figure.dtype if figure.dtype in DTYPES else "fp32",
        mode=figure.mode if case is None else case.mode,
        options=options,
    )
