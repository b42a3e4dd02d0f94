"""Where cells are measured: in this process, or in workers that may crash, hang and run out of memory."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from rooflens.api.cases import Progress, Request
from rooflens.api.cell import PROBE, contents, measured
from rooflens.api.machine import Machine
from rooflens.models import How
from rooflens.records import Case, Failure, RecordFile, read_records
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
        found = measured(asked, case, observer, policy=policy, progress=lambda share: progress(share, label))
        return contents(found)

    yield run


@contextmanager
def in_workers(
    words: Mapping[str, Any], how: How, machine: Machine, budget: float, *, limit: float, fresh: bool
) -> Iterator[Runner]:
    """Cells in worker processes, see :mod:`rooflens.sources.isolation`.

    Args:
        words: of a request, plain data.
        limit: seconds for each cell.
        fresh: a new worker for each cell.
    """
    setup = {"where": machine.where, "command": sys.argv}
    workers = isolation.Workers("rooflens.api.worker", setup, limit=limit, fresh=fresh)
    with workers, tempfile.TemporaryDirectory(prefix="rooflens-") as folder:
        workers.prepare()

        def run(case: Case, progress: Progress, *, probe: bool = False) -> RecordFile:
            out = Path(folder) / "cell.jsonl"
            cell = {
                "words": dict(words) | {"batch": case.batch, "how": asdict(how)},
                "device": machine.name,
                "budget": None if probe else budget,
                "out": str(out),
            }
            share, label = 0.0, case.label()

            def tell(answer: isolation.Answer) -> None:
                nonlocal share
                share = answer.get("share", share)
                progress(share, f"{label}: {answer['stage']}" if "stage" in answer else label)

            answer = workers.run(cell, tell)
            if isinstance(answer, isolation.Lost):
                lost = Failure(
                    case=case, source="measure", stage=answer.stage, kind=answer.kind, message=answer.message
                )
                return RecordFile(records=(), failures=(lost,), environment=environment.capture())
            found = read_records(out)
            out.unlink()
            return found

        yield run
