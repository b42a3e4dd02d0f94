"""Outcomes of jobs: records and failures, and progress on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rooflens.errors import ModelError
from rooflens.machine import FoundDevice
from rooflens.progress import Progress
from rooflens.records import Case, Environment, Failure, Record, RecordFile, Source, read_records
from rooflens.running.isolation import AnswerListener, Lost, Workers
from rooflens.running.jobs import (
    Answer,
    DeviceFound,
    FindDevice,
    Job,
    ModelRead,
    ReadModel,
    Refused,
    Share,
    StageEntered,
)
from rooflens.runs.run import Request, Run, is_own_file, recorded_name
from rooflens.sources import environment

Asked = TypeVar("Asked", DeviceFound, ModelRead)


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
    answer = _asked(workers, FindDevice(), DeviceFound, tell)
    if isinstance(answer, Lost):
        raise ModelError(f"{answer.message} ({answer.kind}, while it started)")
    return answer.found


def runs_in(workers: Workers, asked: Request, tell: AnswerListener = lambda _: None) -> tuple[Run, ...]:
    """Return the checked runs of a request; a worker looks the model up.

    Raises:
        ModelError: the worker was lost.
        RooflensError: the request is refused.
    """
    batch = None if asked.batch is None else [run.batch for run in Run(model=asked.model).with_batches(asked.batch)]
    given = replace(asked, batch=batch, inputs=True if asked.inputs is not None else None)  # which are refused
    answer = _asked(workers, ReadModel(asked=given), ModelRead, tell)
    if isinstance(answer, Lost):
        what = "file" if is_own_file(asked.model) else "model"
        raise ModelError(f"{recorded_name(asked.model)}: {answer.message} ({answer.kind}, while the {what} was read)")
    return answer.runs


def _asked(workers: Workers, job: Job, kind: type[Asked], tell: AnswerListener) -> Asked | Lost:
    """Give a job to a worker and return its answer of a kind, or how the worker was lost.

    Raises:
        RooflensError: the job is refused.
    """
    answers: list[Answer] = []

    def hear(answer: Answer) -> None:
        answers.append(answer)
        tell(answer)

    ending = workers.run(job, hear)
    if isinstance(ending, Lost):
        return ending
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer.error
    return next(answer for answer in answers if isinstance(answer, kind))


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
