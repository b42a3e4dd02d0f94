"""Outcomes of jobs: records and failures, and progress on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rooflens.errors import ModelError
from rooflens.machine import FoundDevice
from rooflens.progress import Progress
from rooflens.records import Case, Environment, Failure, Record, RecordFile, Source, read_records
from rooflens.running.isolation import AnswerListener, Lost, Workers
from rooflens.running.jobs import (
    Answer,
    DeviceFound,
    FindDevice,
    ModelRead,
    ReadModel,
    Refused,
    Share,
    StageEntered,
)
from rooflens.runs.run import Request, Run, is_own_file, recorded_name
from rooflens.sources import environment


def contents(
    items: Iterable[Record | Failure], command: Sequence[str] | None = None, here: Environment | None = None
) -> RecordFile:
    """Records and failures, with the environment in which they were made; by default, that of this process now."""
    items = list(items)
    return RecordFile(
        records=tuple(item for item in items if isinstance(item, Record)),
        failures=tuple(item for item in items if isinstance(item, Failure)),
        environment=environment.capture(command) if here is None else here,
    )


def lost(case: Case, source: Source, ending: Lost) -> RecordFile:
    """What is kept of a job whose worker did not live to answer."""
    message = f"{recorded_name(case.model)}: {ending.message}"
    return contents([Failure(case=case, source=source, stage=ending.stage, kind=ending.kind, message=message)])


def taken(path: Path) -> RecordFile | None:
    """The record file that a worker wrote, which is removed; None if there is none."""
    written = read_records(path) if path.exists() else None
    path.unlink(missing_ok=True)
    return written


def found_in(workers: Workers, tell: AnswerListener = lambda _: None) -> FoundDevice:
    """Return the device of workers.

    Raises:
        InvalidValue: torch cannot run there.
        ModelError: the worker was lost.
    """
    answers: list[Answer] = []

    def hear(answer: Answer) -> None:
        answers.append(answer)
        tell(answer)

    ending = workers.run(FindDevice(), hear)
    if isinstance(ending, Lost):
        raise ModelError(f"{ending.message} ({ending.kind}, while it started)")
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer.error
    return next(answer.found for answer in answers if isinstance(answer, DeviceFound))


def runs_in(workers: Workers, asked: Request, tell: AnswerListener = lambda _: None) -> tuple[Run, ...]:
    """Return the checked runs of a request; a worker looks the model up.

    Raises:
        ModelError: the worker was lost.
        RooflensError: the request is refused.
    """
    answers: list[Answer] = []
    batch = None if asked.batch is None else [run.batch for run in Run(model=asked.model).with_batches(asked.batch)]
    given = replace(asked, batch=batch, inputs=True if asked.inputs is not None else None)  # which are refused

    def hear(answer: Answer) -> None:
        answers.append(answer)
        tell(answer)

    ending = workers.run(ReadModel(asked=given), hear)
    if isinstance(ending, Lost):
        what = "file" if is_own_file(asked.model) else "model"
        raise ModelError(f"{recorded_name(asked.model)}: {ending.message} ({ending.kind}, while the {what} was read)")
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer.error
    return next(answer.runs for answer in answers if isinstance(answer, ModelRead))


def telling(progress: Progress | None, label: str) -> AnswerListener:
    """Hand on what a worker tells: the last share, and the stage that it is at."""
    share = 0.0

    def tell(answer: Answer) -> None:
        nonlocal share
        share = answer.done if isinstance(answer, Share) else share
        if progress is not None:
            progress(share, f"{label}: {answer.name}" if isinstance(answer, StageEntered) else label)

    return tell


def why_all_failed(failures: Sequence[Failure]) -> str:
    """Return why no run gave a record."""
    last = failures[-1]
    how_many = f"; all {len(failures)} batches failed" if len(failures) > 1 else ""
    return f"{last.message} ({last.kind}, at stage {last.stage}){how_many}"
