"""Runs one after another: what has been measured is kept at once, and the largest batch is searched for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rooflens.machine import Machine
from rooflens.records import Environment, Failure, Record, RecordFile
from rooflens.results import RecordSet
from rooflens.runs.run import Run


@dataclass(slots=True, kw_only=True)
class Collected:
    """What has been measured so far.

    Attributes:
        estimate: of the same cases.
        save: a record file, written anew with each run; it is whole at any moment.
    """

    machine: Machine
    save: Path | None
    estimate: RecordSet | None = None
    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    environment: Environment | None = None

    def add(self, file: RecordFile) -> bool:
        """Keep what came of a run; true if nothing failed."""
        self.records += file.records
        self.failures += file.failures
        self.environment = file.environment if file.records or self.environment is None else self.environment
        self.keep()
        return not file.failures

    def keep(self) -> None:
        """Write the record file anew, if there is one."""
        if self.save is not None:
            self.so_far().save(self.save)

    @property
    def batches(self) -> tuple[int | None, ...]:
        """The batches that were measured, in order."""
        return tuple(dict.fromkeys(record.case.batch for record in self.records))

    def so_far(self) -> RecordSet:
        """The estimate and everything measured."""
        device = self.machine.device
        measured = RecordSet(
            self.records,
            devices={} if device is None else {self.machine.name: device},
            failures=self.failures,
            environment=self.environment,
        )
        return measured if self.estimate is None else self.estimate + measured


def search_largest(first: Run, fits: Callable[[Run, bool], bool], collected: Collected) -> None:
    """Double the batch until it does not fit, then close in on the largest that does.

    A batch that fails for another reason than memory ends the search: what fits is not known beyond it. Each batch is
    tried once, since what does not fit alone fits never. The doubled ones are measured as any other; those between are
    only asked whether they fit.

    Args:
        fits: runs a batch and keeps what comes of it in `collected`; with True, only asks whether it fits.
    """
    assert first.batch is not None
    fitting, batch = 0, first.batch
    while fits(replace(first, batch=batch), False):
        fitting, batch = batch, 2 * batch
    too_many = batch
    while collected.failures[-1].kind == "out of memory" and too_many - fitting > 1:
        batch = (fitting + too_many) // 2
        if fits(replace(first, batch=batch), True):
            fitting = batch
        else:
            too_many = batch
