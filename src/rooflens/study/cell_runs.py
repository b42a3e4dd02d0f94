"""Working through cells: what is done is skipped, what is running elsewhere is left alone, the rest is run and kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rooflens.errors import RooflensError
from rooflens.progress import Progress
from rooflens.records import Failure, RecordFile, Source
from rooflens.study.folder import StudyFolder
from rooflens.study.lease import lease
from rooflens.study.study import Cell

CellRunner = Callable[[Cell, Progress], RecordFile]
"""Runs a cell, whatever comes of it; handed in, since a study does not know how its sources work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellNews:
    """News of a cell.

    Attributes:
        what: ``running`` (again and again while it runs), ``done``, ``failed``, or ``elsewhere``: another has it.
        share: how much of the cell is done, 0 to 1.
        text: what is being done, or why it failed.
        seconds: how long it took, once it is over.
    """

    cell: Cell
    what: Literal["running", "done", "failed", "elsewhere"]
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
    """Run cells one after another; each is kept before the next one begins.

    Several of these may work on the same cells at once, on any nodes that share the folder: no cell is run by two.

    Args:
        retry: also run cells that failed before.
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
        with lease(folder.files, cell.key) as held:
            if held is None:
                tell(CellNews(cell=cell, what="elsewhere"))
                continue
            if not folder.wants(cell, retry=retry):  # done by another while this runner was looking
                continue
            begun = time.monotonic()
            found = _ran(run, cell, tell, folder.home)
            if not held.is_held():  # lost to another, who runs it again: one of the two is kept
                tell(CellNews(cell=cell, what="elsewhere"))
                continue
            folder.keep(cell, found)
            seconds = time.monotonic() - begun
            _note(journal, cell, seconds)
        why = "" if found.records else "; ".join(failure.message for failure in found.failures)
        tell(CellNews(cell=cell, what="done" if found.records else "failed", share=1.0, text=why, seconds=seconds))


def could_not(cell: Cell, error: RooflensError, home: Path) -> Failure:
    """Why a cell was not even begun."""
    source: Source = "measure" if cell.source == "replay" else cell.source
    return _as_named(Failure(case=cell.case, source=source, stage="start", kind="error", message=str(error)), home)


def _ran(run: CellRunner, cell: Cell, tell: Tell, home: Path) -> RecordFile:
    """What came of a cell; what makes no sense, or cannot be built, is a failure like any other."""
    tell(CellNews(cell=cell, what="running"))
    try:
        found = run(cell, lambda share, text: tell(CellNews(cell=cell, what="running", share=share, text=text)))
    except RooflensError as error:
        return RecordFile(records=(), failures=(could_not(cell, error, home),))
    return replace(found, failures=tuple(_as_named(failure, home) for failure in found.failures))


def _as_named(failure: Failure, home: Path) -> Failure:
    """The same with files called what the study calls them, wherever it lies."""
    if home == Path():
        return failure
    return replace(failure, message=failure.message.replace(f"{home}{os.sep}", ""))


def _note(journal: Path, cell: Cell, seconds: float) -> None:
    with journal.open("a") as file:
        file.write(json.dumps({"cell": cell.key, "seconds": round(seconds, 3)}) + "\n")
