"""One cell: a case that is built and measured in this process, whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflens.api import ranks
from rooflens.api.cases import Request, request
from rooflens.errors import InvalidValue, RooflensError
from rooflens.models import How, Step, compiled, placed
from rooflens.records import Case, Failure, Record, RecordFile, write_records
from rooflens.sources import conditions, environment, isolation
from rooflens.timing import Policy, Progress

PROBE = Policy(warmup=1, settle=1, settle_seconds=0.0, min_samples=1, max_samples=1, budget=0.1)
"""For a cell that is only asked whether it fits."""


@dataclass(slots=True)
class Told:
    """The stage that a cell has reached."""

    stage: str = "build"
    tell: Callable[[str], None] = field(default=lambda _: None)

    def __call__(self, stage: str) -> None:
        self.stage = stage
        self.tell(stage)


def measured(
    asked: Request,
    case: Case,
    observer: conditions.Observer,
    *,
    policy: Policy,
    progress: Progress | None = None,
    told: Told | None = None,
) -> list[Record] | Failure:
    """Build the model of a case and measure it.

    A module that was handed in is copied; a named one is built for this and needs no copy.

    Raises:
        InvalidValue: what was asked for makes no sense for any batch.
    """
    from rooflens.sources import measure as source

    told = told or Told()
    try:
        told("build")
        held = source.Held(observer)
        # Inputs are made where they are used: random numbers for a large batch take a CPU minutes.
        step = asked.step(asked.build("cpu"), case.batch, observer.where)
        told("place")
        step = placed(step, observer.where, copy=asked.module is not None)
        found = source.records(
            step, case, observer, how=asked.how, policy=policy, held=held, progress=progress, stage=told
        )
        return [*found, *_profiled(asked, case, step, observer.where, told)]
    except InvalidValue:
        raise
    except RooflensError as error:
        return source.failure(case, error, told.stage)


def _profiled(asked: Request, case: Case, step: Step, where: str, told: Told) -> Iterator[Record]:
    """The pieces of the step, from a run of its own: a profiler slows what it looks at."""
    if not asked.how.profile:
        return
    from rooflens.sources import profile

    told("profile")
    yield from profile.records(compiled(step) if asked.how.compile else step, case, where)


def contents(found: list[Record] | Failure, command: Sequence[str] | None = None) -> RecordFile:
    """What came of a cell, with the environment of this process."""
    here = environment.capture(command)
    if isinstance(found, Failure):
        return RecordFile(records=(), failures=(found,), environment=here)
    return RecordFile(records=tuple(found), environment=here)


def begin(setup: Mapping[str, Any]) -> isolation.Run:
    """The worker's side: look at the machine before anything runs on it, and give what runs a cell.

    A cell is the words of a request, the name of the device, and the file for the records.
    """
    from rooflens.sources import measure as source

    where: str = setup["where"]
    command: Sequence[str] = setup["command"]
    if where == "cpu":
        conditions.bound_memory()
    observer = conditions.Observer(where)
    source.load_libraries(where)

    def run(cell: Mapping[str, Any], tell: Callable[[isolation.Answer], None]) -> bool:
        words = cell["words"]
        how = How(**words["how"])
        asked = request(**words | {"how": how, "inputs": None, "loss": None})
        (case,) = asked.cases(cell["device"])
        if how.gpus > 1:
            tell({"stage": f"on {how.gpus} devices"})
            found = ranks.measured(words, case, observer, how=how, budget=cell["budget"] or PROBE.budget)
        else:
            told = Told(tell=lambda stage: tell({"stage": stage}))
            policy = PROBE if cell["budget"] is None else Policy(budget=cell["budget"])
            try:
                found = measured(
                    asked, case, observer, policy=policy, progress=lambda share: tell({"share": share}), told=told
                )
            except InvalidValue as error:  # only running it showed that it makes no sense
                found = source.failure(case, error, told.stage)
        write_records(Path(cell["out"]), contents(found, command))
        return not isinstance(found, Failure)

    return run
