"""Doubt: numbers that cannot be true, in records and in tables that somebody typed in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.api.estimation import estimate
from rooflens.errors import InvalidValue, RooflensError
from rooflens.progress import Progress
from rooflens.records import DTYPES
from rooflens.results import RecordSet

if TYPE_CHECKING:
    from rooflens.checks import Findings, ReportedFigure

_NAME = re.compile(r"(?:timm:|hf:)?[\w.-]+")
_FILES = (".py", ".onnx", ".json")
_OPTIONS = frozenset({"img_size", "seq_len", "channels_last", "optimizer", "fused"})
"""Options of a case with which it can be estimated again."""


def check(*sources: RecordSet | str | Path, progress: Progress | None = None) -> Findings:
    """Look for numbers that cannot be true and for known mistakes: ``for finding in rl.check(time, hw): ...``.

    Figures are held against the right values of their model, batch, dtype and phase, against the ceilings of their
    device, and against each other. Right values are the estimates among the sources; those of torchvision's
    classification models come from a table in the package, those of other models are estimated here if torch is
    installed.

    Args:
        sources: record sets and files: record files, whatever else :func:`read` takes, and CSV files with columns
            ``quantity`` and ``value`` (docs/check.md).
        progress: told while models are estimated.

    Returns:
        The findings, the gravest first: code, severity, subject, message, evidence (numbers in base units) and remedy.
        ``.notes`` names the models and devices that nobody knows.

    Raises:
        FileError: a file cannot be read, or a cell of it is damaged; the line is named.
        InvalidValue: nothing to check.
    """
    from rooflens.checks import examine

    if not sources:
        raise InvalidValue("check needs something to doubt: record sets, or files")
    figures, sets = _sources(sources)
    records = sum(sets, start=RecordSet(()))
    return examine(figures, records, estimates=_right_values(figures, records, progress))


def _sources(sources: Sequence[RecordSet | str | Path]) -> tuple[list[ReportedFigure], list[RecordSet]]:
    """Typed figures, and records."""
    from rooflens.api import read
    from rooflens.checks import holds_figures, read_figures

    figures: list[ReportedFigure] = []
    sets: list[RecordSet] = []
    for source in sources:
        if isinstance(source, RecordSet):
            sets.append(source)
        elif (path := Path(source)).suffix.lower() == ".csv" and holds_figures(path):
            figures += read_figures(path)
        else:
            sets.append(read(path))
    return figures, sets


def _right_values(figures: Iterable[ReportedFigure], records: RecordSet, progress: Progress | None) -> RecordSet:
    """Estimates of the steps that neither the records nor the table answer; what nobody can build has none."""
    from rooflens.checks import RightValues, recorded

    known = RightValues(records)
    unanswered = [f for f in (*figures, *recorded(records)) if f.phases and known.of(f) is None]
    wanted = list(dict.fromkeys(words for figure in unanswered for words in _words(figure)))
    found = RecordSet(())
    if not wanted or find_spec("torch") is None:
        return found
    for n, words in enumerate(wanted):
        call: dict[str, Any] = dict(words)
        if progress is not None:
            progress(n / len(wanted), f"{call['model']}, batch {call['batch']}")
        try:
            found += estimate(**call)
        except RooflensError:  # a name of somebody else's: its figures are compared with each other only
            continue
    return found


def _words(figure: ReportedFigure) -> Iterator[tuple[tuple[str, object], ...]]:
    """The arguments that estimate a figure's step; none for a name that would open a file.

    The name was read from a file: code and files that it points to are left alone.
    """
    from rooflens.checks import mode_of

    if figure.batch is None or not _NAME.fullmatch(figure.model) or figure.model.endswith(_FILES):
        return
    case = figure.recorded
    dtype = figure.dtype if figure.dtype in DTYPES else "fp32"
    mode = mode_of(figure.phases) if case is None else case.mode
    options = {"img_size": figure.image} if case is None else dict(case.options)
    more = ((name, value) for name, value in options.items() if name in _OPTIONS and value is not None)
    yield (("model", figure.model), ("batch", figure.batch), ("dtype", dtype), ("mode", mode), *more)
