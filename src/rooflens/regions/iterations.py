"""The iterations of a loop: some are skipped, some timed, one is counted, and the rest cost nothing."""

from __future__ import annotations

import atexit
import json
import os
import sys
import warnings
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal
from weakref import ref

import torch
import torch.distributed

from rooflens.errors import InvalidValue, RooflensError
from rooflens.machine import this_machine
from rooflens.models import is_compiled, unwrapped
from rooflens.records import Case, Conditions, Environment, Record, Trace
from rooflens.regions import COUNTERS, EVERY, LOCAL_RANK
from rooflens.regions import laps as source
from rooflens.regions.counted import Counting
from rooflens.regions.laps import Lap, LoopTimes, Tape
from rooflens.regions.plan import Plan
from rooflens.report.overview import tables_of
from rooflens.report.render import render
from rooflens.results import RecordSet
from rooflens.sources import environment
from rooflens.sources import estimate as estimates
from rooflens.sources.conditions import Observer, doubts
from rooflens.sources.measure import peak_memory
from rooflens.sources.profile import profiled_step
from rooflens.sources.profile.launches import PlacedCall, ProgramCalls

Stage = Literal["skip", "mark", "time", "count", "done"]
SINCE_THE_START = "memory: the peak since the program began"


@dataclass(slots=True, eq=False)
class Pass:
    """One pass through a region, while it lasts.

    Attributes:
        of: the iterations to which it, or what it is part of, belongs.
        region: the region that was entered.
        path: names of the regions from the iteration to here; "" is the iteration itself.
        begins: the mark where it began; None where nothing is timed.
        waits: the mark where waiting for data began; None without a loader.
        inner: passes through the regions inside that have ended, by path.
    """

    of: Iterations
    region: object
    stage: Stage
    path: str = ""
    begins: int | None = None
    waits: int | None = None
    batch: int | None = None
    inner: list[tuple[str, Lap]] = field(default_factory=list)


class Iterations:
    """The iterations of one loop, and their records."""

    def __init__(self, plan: Plan, model: torch.nn.Module | None) -> None:
        self.plan = plan
        self._model = None if model is None else ref(model)  # a measurement keeps no model alive
        self._name = plan.name if model is None else type(unwrapped(model)).__name__
        self._ended = self._raised = self._of_other_batch = 0
        self._tape: Tape | None = None
        self._laps: list[Lap] = []
        self._inner: dict[str, list[Lap]] = {}
        self._counting: Counting | None = None
        self._trace: Trace | None = None
        self._times: LoopTimes | None = None
        self._environment: Environment | None = None
        self._finished = self._marked = False
        self._marks = ExitStack()
        if (plan.save is not None or plan.show) and COUNTERS not in os.environ:
            atexit.register(self._at_exit)

    def __str__(self) -> str:
        return f"{len(self._laps)} of {self.plan.wanted} iterations timed, {self._ended} ended"

    @property
    def model(self) -> torch.nn.Module | None:
        return None if self._model is None else self._model()

    @property
    def stage(self) -> Stage:
        """What the next iteration is for."""
        if self._ended < self.plan.skipped:
            return "skip"
        if COUNTERS in os.environ:
            return "done" if self._marked or os.environ.get(LOCAL_RANK, "0") != "0" else "mark"
        if len(self._laps) < self.plan.wanted:
            return "time"
        return "count" if self.plan.counts and self._trace is None and self.model is not None else "done"

    def mark(self) -> int:
        """Make a mark; the first one begins the timing."""
        if self._tape is None:
            self._tape = self._start()
            return self._tape.start()
        return self._tape.mark()

    def begin(self, region: object, waits: int | None = None, batch: int | None = None) -> Pass:
        """Begin an iteration."""
        now = Pass(of=self, region=region, stage=self.stage, waits=waits, batch=batch)
        if now.stage == "time":
            now.begins = self.mark()
        elif now.stage == "mark":
            self._marks.enter_context(_marks(self.model, os.environ.get(COUNTERS, "")))
        elif now.stage == "count" and (model := self.model) is not None:
            self._counting = Counting(model).__enter__()
        return now

    def end(self, now: Pass, completed: bool) -> int | None:
        """End an iteration, and drop it if it raised or was left.

        Returns:
            The mark at its end; None where nothing is timed.
        """
        ends = None if now.begins is None else self.mark()
        if now.begins is not None and ends is not None:
            if completed:
                self._keep(Lap(begins=now.begins, ends=ends, waits=now.waits, batch=now.batch), now)
        elif now.stage == "mark":
            self._marks.close()
            self._marked = True
        elif self._counting is not None and now.stage == "count":
            counting, self._counting = self._counting, None
            counting.__exit__()
            if completed:
                self._trace = counting.trace()
        if completed:
            self._ended += 1
        else:
            self._raised += now.stage == "time"
        if now.stage in ("time", "count") and self.stage == "done":
            self.finish()
        elif now.stage == "time" and self.stage == "count":
            self._times = self._read()  # now, and not after the iteration that is counted
        return ends if self.stage == "time" else None

    def _keep(self, lap: Lap, now: Pass) -> None:
        if self._laps and lap.batch != self._laps[0].batch:
            self._of_other_batch += 1
            return
        self._laps.append(lap)
        for path, inner in now.inner:
            self._inner.setdefault(path, []).append(inner)

    def _start(self) -> Tape:
        """Look at the model and the machine right before the first iteration that is timed."""
        model = self.model
        self._machine = this_machine(self.plan.device or source.where_is(model), self.plan.roof)
        training = torch.is_grad_enabled() if model is None else model.training
        self._mode = self.plan.mode or ("train" if training else "inference")
        self._observer = Observer(self._machine.where)
        return Tape.on(self._machine.where)

    def _read(self) -> LoopTimes:
        """Read the clocks. Waits for the device."""
        if not self._laps or self._tape is None:
            raise InvalidValue(
                f"region {self.plan.name!r} has timed nothing: {self._ended} iterations ended, and"
                f" {self.plan.skipped} are skipped before one is timed; give a smaller skip, or more iterations"
            )
        host, device = self._tape.read()
        conditions = Conditions(before=self._observer.first, after=self._observer.look())
        self._environment = environment.capture()
        batch = self._laps[0].batch if self.plan.batch is None else self.plan.batch
        return LoopTimes(
            name=self.plan.name,
            case=Case(model=self._name, device=self._machine.name, batch=batch, dtype=self.plan.dtype, mode=self._mode),
            laps=tuple(self._laps),
            inner={name: tuple(laps) for name, laps in self._inner.items()},
            host=host,
            device=device,
            memory=peak_memory(self._machine.where),
            conditions=conditions,
            notes=(SINCE_THE_START, *doubts(conditions.before, conditions.after)),
        )

    def _notes(self) -> list[str]:
        """What is missing or was left out."""
        why = "the model was gone" if self.model is None else "no iteration came after the timed ones"
        notes = {
            f"only {len(self._laps)} of {self.plan.wanted} iterations were timed": len(self._laps) < self.plan.wanted,
            f"left out: iterations that raised or were left ({self._raised})": self._raised,
            f"left out: iterations of another batch ({self._of_other_batch})": self._of_other_batch,
            f"the work was not counted: {why}": self.plan.counts and not self._trace,
        }
        return [f"{self.plan.name}: {note}" for note, applies in notes.items() if applies]

    @property
    def times(self) -> LoopTimes:
        """The timed iterations so far."""
        return self._times or self._read()

    @property
    def records(self) -> RecordSet:
        """The records of the iterations so far."""
        times, device = self.times, self._machine.device
        records: list[Record] = []
        if self._trace is not None:
            operations = estimates.repeated(self._trace)
            records += estimates.records(self._trace, operations, times.case, device)
        records += source.records(replace(times, notes=(*self._notes(), *times.notes)))
        devices = {} if device is None else {device.name: device}
        return RecordSet(records, devices=devices, environment=self._environment)

    def pause(self) -> None:
        """Save the records at the end of a loop; another loop may follow."""
        if self._laps and not self._finished and self.plan.save is not None:
            self._write(show=False)

    def finish(self) -> None:
        """Save and show the records, once."""
        self._times, self._finished = self.times, True
        atexit.unregister(self._at_exit)
        self._write(show=self.plan.show)

    def _write(self, show: bool) -> None:
        """Save and show the records. An error becomes a warning: a measurement never ends the program it measures."""
        if not _is_first_rank():
            return
        try:
            records = self.records
            if self.plan.save is not None:
                records.save(self.plan.save)
            if show:
                sys.stdout.write(f"{render(tables_of(records), 'table')}\n")
        except RooflensError as error:
            warnings.warn(f"region {self.plan.name!r} could not save or show its records: {error}", stacklevel=2)

    def _at_exit(self) -> None:
        """Finish when the program ends before the iterations do."""
        if self._laps:
            self.finish()
        else:
            warnings.warn(
                f"region {self.plan.name!r} timed nothing: {self._ended} iterations ended, {self.plan.skipped}"
                " are skipped",
                stacklevel=1,
            )


def _is_first_rank() -> bool:
    """True if this process is the first of a distributed run, or not part of one."""
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not ready or torch.distributed.get_rank() == 0


def _marks(model: torch.nn.Module | None, how: str) -> AbstractContextManager[None]:
    """The marks of an iteration for ncu: of all of it, or, where a file is named, without calls that repeat another.

    Compiled code has no calls that can be told apart.

    Args:
        how: the value of :data:`COUNTERS`.
    """
    told = how.removeprefix(EVERY)
    if os.sep not in told or (model is not None and is_compiled(model)):
        return profiled_step.marked(model)

    def tell(calls: tuple[PlacedCall, ...]) -> None:
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        Path(told).write_text(json.dumps(asdict(ProgramCalls(calls=calls, processes=processes))))

    return profiled_step.marked_once(model, tell, every=told != how)
