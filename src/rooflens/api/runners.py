"""Where cells are measured: in this process, or in workers that may crash, hang and run out of memory."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from rooflens.api.cases import Request
from rooflens.api.cell import PROBE, contents, measured
from rooflens.machine import Machine
from rooflens.models import How, kept_random_numbers
from rooflens.progress import Progress
from rooflens.records import Case, Failure, RecordFile, Source, read_records
from rooflens.sources import conditions, environment, isolation
from rooflens.timing import Policy


class Runner(Protocol):
    """Measures a case, whatever comes of it; tells the share that is done and what is being done."""

    def __call__(self, case: Case, progress: Progress, *, probe: bool = False) -> RecordFile:
        """Measure; a `probe` only asks whether the case fits, and takes as few samples as can be."""
        ...


@contextmanager
def in_this_process(asked: Request, machine: Machine, budget: float) -> Iterator[Runner]:
    """Cells one after another, here."""
    observer = conditions.Observer(machine.where)

    def run(case: Case, progress: Progress, *, probe: bool = False) -> RecordFile:
        label, policy = case.label(), PROBE if probe else Policy(budget=budget)
        with kept_random_numbers():
            found = measured(asked, case, observer, policy=policy, progress=lambda share: progress(share, label))
        return contents(found)

    yield run


class Sender(Protocol):
    """Measures a case in a worker process, whatever comes of it."""

    def __call__(
        self, words: Mapping[str, Any], how: How, case: Case, budget: float | None, progress: Progress
    ) -> RecordFile:
        """Measure.

        Args:
            words: of a request, plain data; the batch is the case's.
            budget: seconds of sampling; None only asks whether the case fits.
        """
        ...


@contextmanager
def workers(where: str, *, limit: float, fresh: bool) -> Iterator[Sender]:
    """Worker processes for cells of any model, see :mod:`rooflens.sources.isolation`.

    Args:
        where: torch's device type.
        limit: seconds for each cell.
        fresh: a new worker for each cell.
    """
    setup = {"where": where, "command": sys.argv}
    pool = isolation.Workers("rooflens.api.worker", setup, limit=limit, fresh=fresh)
    with pool, tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        pool.prepare()

        def run(words: Mapping[str, Any], how: How, case: Case, budget: float | None, progress: Progress) -> RecordFile:
            out = Path(folder) / "cell.jsonl"
            cell = {
                "words": dict(words) | {"batch": case.batch, "how": asdict(how)},
                "device": case.device,
                "budget": budget,
                "out": str(out),
            }
            answer = pool.run(cell, shares(progress, case.label()))
            found = read_records(out) if out.exists() else None
            out.unlink(missing_ok=True)
            if isinstance(answer, isolation.Lost):
                ending = lost(case, "measure", answer)
                return ending if found is None else replace(found, failures=ending.failures)
            assert found is not None
            return found

        yield run


def shares(progress: Progress, label: str) -> Callable[[isolation.Answer], None]:
    """Hands on what a worker says: the last share that it told, and the stage that it is at."""
    share = 0.0

    def tell(answer: isolation.Answer) -> None:
        nonlocal share
        share = answer.get("share", share)
        progress(share, f"{label}: {answer['stage']}" if "stage" in answer else label)

    return tell


def lost(case: Case, source: Source, answer: isolation.Lost) -> RecordFile:
    """What is kept of a cell whose worker did not live to answer."""
    failure = Failure(case=case, source=source, stage=answer.stage, kind=answer.kind, message=answer.message)
    return RecordFile(records=(), failures=(failure,), environment=environment.capture())


@contextmanager
def in_workers(
    words: Mapping[str, Any], how: How, machine: Machine, budget: float, *, limit: float, fresh: bool
) -> Iterator[Runner]:
    """The cells of one request in worker processes.

    Args:
        words: of the request, plain data.
        limit: seconds for each cell.
        fresh: a new worker for each cell.
    """
    with workers(machine.where, limit=limit, fresh=fresh) as send:

        def run(case: Case, progress: Progress, *, probe: bool = False) -> RecordFile:
            return send(words, how, case, None if probe else budget, progress)

        yield run
