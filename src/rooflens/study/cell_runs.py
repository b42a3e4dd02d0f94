"""Running the cells of a study: what is done or runs elsewhere is skipped, the rest is run and kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rooflens.errors import MissingCeiling, RooflensError
from rooflens.progress import Progress
from rooflens.records import BOUND, Failure, FailureKind, RecordFile, Source
from rooflens.study.folder import StudyFolder, outcome
from rooflens.study.lease import lease
from rooflens.study.study import Cell

CellRunner = Callable[[Cell, Progress], RecordFile]
"""Runs a cell; handed in, since a study does not know how its sources work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellNews:
    """News of a cell.

    Attributes:
        what: ``running`` (repeatedly, while it runs), ``done``, ``skipped`` (its device has no rate for it),
            ``failed``, or ``elsewhere``: another runs it.
        share: how much of the cell is done, 0 to 1.
        text: what is being done, or why it failed or was skipped.
        seconds: how long it took, once it is over.
    """

    cell: Cell
    what: Literal["running", "done", "skipped", "failed", "elsewhere"]
    share: float = 0.0
    text: str = ""
    seconds: float | None = None


Tell = Callable[[CellNews], None]


def run_each(
    folder: StudyFolder,
    cells: Iterable[Cell],
    run: CellRunner,
    *,
    tell: Tell = lambda _: None,
    retry: bool = False,
    until: float | None = None,
) -> None:
    """Run cells one after another, each written before the next one begins.

    Several processes may do so with the same cells, on any nodes that share the folder: no cell is run by two.

    Args:
        retry: also run cells that failed or were skipped before.
        until: the moment on :func:`time.monotonic`'s clock after which no further cell begins.

    Raises:
        OutputError: the folder cannot be written.
    """
    journal = folder.journal()
    for cell in cells:
        if until is not None and time.monotonic() >= until:
            return
        if not folder.wants(cell, retry=retry):
            continue
        with lease(folder.files, cell.key) as own:
            if own is None:
                tell(CellNews(cell=cell, what="elsewhere"))
                continue
            if not folder.wants(cell, retry=retry):  # done by another while this runner was looking
                continue
            begun = time.monotonic()
            contents = _contents(run, cell, tell, folder.home)
            if not own.is_held():  # lost to another, who runs it again: one of the two is kept
                tell(CellNews(cell=cell, what="elsewhere"))
                continue
            folder.keep(cell, contents)
            seconds = time.monotonic() - begun
            with journal.open("a") as file:
                file.write(json.dumps({"cell": cell.key, "seconds": round(seconds, 3)}) + "\n")
        why = "" if contents.records else "; ".join(failure.message for failure in contents.failures)
        tell(CellNews(cell=cell, what=outcome(contents), share=1.0, text=why, seconds=seconds))


def could_not(cell: Cell, error: RooflensError, home: Path) -> Failure:
    """The failure of a cell that could not be begun."""
    source: Source = "measure" if cell.source == "replay" else cell.source
    lacks = isinstance(error, MissingCeiling)
    stage = BOUND if lacks else "start"
    kind: FailureKind = "unsupported" if lacks else "error"
    return _as_named(Failure(case=cell.case, source=source, stage=stage, kind=kind, message=str(error)), home)


def _contents(run: CellRunner, cell: Cell, tell: Tell, home: Path) -> RecordFile:
    """The records of a cell, or why there are none; what makes no sense, or cannot be built, is a failure too."""
    tell(CellNews(cell=cell, what="running"))
    try:
        contents = run(cell, lambda share, text: tell(CellNews(cell=cell, what="running", share=share, text=text)))
    except RooflensError as error:
        return RecordFile(records=(), failures=(could_not(cell, error, home),))
    return replace(contents, failures=tuple(_as_named(failure, home) for failure in contents.failures))


def _as_named(failure: Failure, home: Path) -> Failure:
    """A failure whose message calls files as the study does, wherever it lies."""
    if home == Path():
        return failure
    return replace(failure, message=failure.message.replace(f"{home}{os.sep}", ""))
