"""Studies for tests: files, folders, and a run that costs nothing."""

from __future__ import annotations

from pathlib import Path

from rooflens.errors import ModelError
from rooflens.progress import Progress
from rooflens.records import Case, Record, RecordFile, Timing
from rooflens.study import Cell, StudyFolder

SMALL = """\
title = "Small"
models = ["resnet18", "alexnet"]
batches = [1, 2, 4]
devices = ["t4", "a100-sxm4-40gb"]
"""


def written(folder: Path, text: str = SMALL, name: str = "study.toml") -> Path:
    """A study file."""
    path = folder / name
    path.write_text(text)
    return path


def begun(folder: Path, text: str = SMALL) -> StudyFolder:
    """The folder of a study that was just begun."""
    return StudyFolder.begin(folder / "out", written(folder, text))[0]


def timed(case: Case, seconds: float = 0.001) -> Record:
    """What a measurement of a case may have found."""
    return Record(
        case=case,
        source="measure",
        scope="model",
        phase="forward",
        timing=Timing(samples=(seconds,), origin="monotonic"),
    )


def found(cell: Cell, share: Progress = lambda *_: None) -> RecordFile:
    """Runs a cell without running anything."""
    share(0.5, "half of it")
    return RecordFile(records=(timed(cell.case, float(cell.case.batch or 1)),))


def failing(cell: Cell, _: Progress) -> RecordFile:
    """Runs a cell that cannot be run."""
    raise ModelError(f"{cell.case.model} cannot be built")
