"""Measurements one after another, each kept at once, and the search for the largest batch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
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
        estimate: of the same cases; None until it is there.
        save: a record file, rewritten after each run; it is whole at any moment.
    """

    machine: Machine
    save: Path | None
    estimate: RecordSet | None = None
    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    environment: Environment | None = None
    _expected: Future[RecordSet] | None = None

    def expect(self, estimate: Future[RecordSet], *, wait: bool) -> None:
        """Take an estimate that is being made when it is there, or wait for it now.

        Raises:
            RooflensError: the estimate was refused; here, or where a run is added.
        """
        self._expected = estimate
        if wait or estimate.done():
            self.complete()

    def complete(self) -> None:
        """Wait for what is expected."""
        if self._expected is not None:
            self.estimate, self._expected = self._expected.result(), None
            self.keep()

    def add(self, file: RecordFile) -> bool:
        """Keep records and failures of a run; return True if nothing failed."""
        self.records += file.records
        self.failures += file.failures
        self.environment = file.environment if file.records or self.environment is None else self.environment
        if self._expected is not None and self._expected.done():
            self.complete()
        self.keep()
        return not file.failures

    def keep(self) -> None:
        """Rewrite the record file, if there is one and something was measured."""
        if self.save is not None and (self.records or self.failures):
            self.so_far().save(self.save)

    @property
    def batches(self) -> tuple[int | None, ...]:
        """Measured batches, in order."""
        return tuple(dict.fromkeys(record.case.batch for record in self.records))

    def so_far(self) -> RecordSet:
        """Return the estimate and all measurements."""
        measured = RecordSet(
            self.records, devices=self.machine.devices, failures=self.failures, environment=self.environment
        )
        return measured if self.estimate is None else self.estimate + measured


def search_largest(first: Run, fits: Callable[[Run, bool], bool], collected: Collected) -> None:
    """Double the batch until it does not fit, then close in on the largest that does.

    Doubled batches are measured like any other; those between are only tried. A failure that is not of memory ends the
    search, because nothing is known of larger batches then.

    Args:
        fits: runs a batch, keeps the outcome in `collected` and returns True if it fits; with True, only tries it.
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
