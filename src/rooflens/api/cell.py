"""One cell: a case that is built and measured in this process, whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooflens.api import ranks
from rooflens.api.cases import Request, request
from rooflens.errors import InvalidValue, RooflensError
from rooflens.models import How, Step, compiled, kept_switches, placed, running
from rooflens.records import Case, Failure, Record, RecordFile, write_records
from rooflens.sources import conditions, environment, isolation
from rooflens.timing import Policy

PROBE = Policy(warmup=1, settle=1, settle_seconds=0.0, min_samples=1, max_samples=1, budget=0.1)
"""For a cell that is only asked whether it fits."""
PROFILE = "profile"
"""The stage that comes after all that is timed."""


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
    progress: Callable[[float], None] | None = None,
    told: Told | None = None,
    kept: list[Record | Failure] | None = None,
) -> list[Record | Failure]:
    """Build the model of a case and measure it: its records, and a failure at the end if it came to one.

    A module that was handed in is copied; a named one is built for this and needs no copy. What the model's code turns
    of the process's switches is put back, so that it does not matter for the next case.

    Args:
        kept: where the records are put, as soon as they are there.

    Raises:
        InvalidValue: what was asked for makes no sense for any batch.
    """
    from rooflens.sources import measure as source

    told, kept = told or Told(), [] if kept is None else kept
    try:
        with kept_switches(), running(asked.name):
            told("build")
            held = source.Held(observer)
            # Inputs are made where they are used: random numbers for a large batch take a CPU minutes.
            step = asked.step(asked.build("cpu"), case.batch, observer.where)
            told("place")
            step = placed(step, observer.where, copy=asked.module is not None)
            kept += source.records(
                step, case, observer, how=asked.how, policy=policy, held=held, progress=progress, stage=told
            )
            kept += _profiled(asked, case, step, observer.where, told)
    except InvalidValue:
        raise
    except RooflensError as error:
        kept.append(source.failure(case, error, told.stage))
    return kept


def _profiled(asked: Request, case: Case, step: Step, where: str, told: Told) -> list[Record]:
    """The pieces of the step, from a run of its own: a profiler slows what it looks at."""
    if not asked.how.profile:
        return []
    from rooflens.sources import profile

    told(PROFILE)
    return list(profile.records(compiled(step) if asked.how.compile else step, case, where))


def contents(found: Sequence[Record | Failure] | Failure, command: Sequence[str] | None = None) -> RecordFile:
    """What came of a cell, with the environment of this process."""
    items = [found] if isinstance(found, Failure) else found
    return RecordFile(
        records=tuple(item for item in items if isinstance(item, Record)),
        failures=tuple(item for item in items if isinstance(item, Failure)),
        environment=environment.capture(command),
    )


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

    @kept_switches()  # also those that a user's file turns while it is read
    def run(cell: Mapping[str, Any], tell: Callable[[isolation.Answer], None]) -> bool:
        words, out = cell["words"], Path(cell["out"])
        how = How(**words["how"])
        asked = request(**words | {"how": how, "inputs": None, "loss": None})
        (case,) = asked.cases(cell["device"])
        if how.gpus > 1:
            tell({"stage": f"on {how.gpus} devices"})
            found = ranks.measured(words, case, observer, how=how, budget=cell["budget"] or PROBE.budget)
            write_records(out, contents(found, command))
            return not isinstance(found, Failure)
        kept: list[Record | Failure] = []

        def stage(name: str) -> None:
            if name == PROFILE:  # a profiler may take the process along: what is timed stays
                write_records(out, contents(kept, command))
            tell({"stage": name})

        def share(done: float) -> None:
            tell({"share": done})

        told = Told(tell=stage)
        policy = PROBE if cell["budget"] is None else Policy(budget=cell["budget"])
        try:
            measured(asked, case, observer, policy=policy, progress=share, told=told, kept=kept)
        except InvalidValue as error:  # only running it showed that it makes no sense
            kept.append(source.failure(case, error, told.stage))
        write_records(out, contents(kept, command))
        return not any(isinstance(item, Failure) for item in kept)

    return run
