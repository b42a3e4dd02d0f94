"""Cells one after another: what has been measured is kept at once, and the largest batch is searched for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from rooflens.api.runners import Runner
from rooflens.machine import Machine
from rooflens.progress import Progress
from rooflens.records import Case, Environment, Failure, Record, RecordFile
from rooflens.results import RecordSet


@dataclass(slots=True, kw_only=True)
class Collected:
    """What has been measured so far.

    Attributes:
        beside: the estimate of the same cases.
        save: a record file, written anew with each cell; it is whole at any moment.
    """

    machine: Machine
    beside: RecordSet | None
    save: Path | None
    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    environment: Environment | None = None

    def add(self, found: RecordFile) -> bool:
        """Keep what came of a cell; whether it was measured."""
        self.records += found.records
        self.failures += found.failures
        self.environment = found.environment if found.records or self.environment is None else self.environment
        self.keep()
        return not found.failures

    def keep(self) -> None:
        """Write the record file anew, if there is one."""
        if self.save is not None:
            self.so_far().save(self.save)

    @property
    def measured_cases(self) -> tuple[Case, ...]:
        """The cases that were measured, in order."""
        return tuple(dict.fromkeys(record.case for record in self.records))

    def so_far(self) -> RecordSet:
        """The estimate and everything measured."""
        device = self.machine.device
        measured = RecordSet(
            self.records,
            devices={} if device is None else {self.machine.name: device},
            failures=self.failures,
            environment=self.environment,
        )
        return measured if self.beside is None else self.beside + measured


def search_largest(first: Case, run: Runner, collected: Collected, progress: Progress | None) -> None:
    """Double the batch until it does not fit, then close in on the largest that does.

    A batch that fails for another reason than memory ends the search: what fits is not known beyond it. Each batch is
    tried once, since what does not fit alone fits never. The doubled ones are measured as any other; those between are
    only asked whether they fit.
    """

    def tell(_: float, what: str) -> None:
        if progress is not None:
            progress(0.0, what)

    def fits(batch: int, *, probe: bool = False) -> bool:
        return collected.add(run(replace(first, batch=batch), tell, probe=probe))

    assert first.batch is not None
    fitting, batch = 0, first.batch
    while fits(batch):
        fitting, batch = batch, 2 * batch
    too_many = batch
    while collected.failures[-1].kind == "out of memory" and too_many - fitting > 1:
        batch = (fitting + too_many) // 2
        if fits(batch, probe=True):
            fitting = batch
        else:
            too_many = batch
