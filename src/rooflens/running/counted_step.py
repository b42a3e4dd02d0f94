"""One step of a model that is counted: profiled in a worker, then run under ncu, once for each group of counters."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from rooflens.errors import CountersUnavailable, FileError
from rooflens.machine import Machine
from rooflens.progress import Progress
from rooflens.records import Case, Record, RecordFile
from rooflens.running.attributing import kernels_of, spread
from rooflens.running.counted_parts import CountedPart, counted_launches, notes_on
from rooflens.running.isolation import WORKER, Lost, Workers, search_path
from rooflens.running.jobs import Count, Profile
from rooflens.running.observations import CountingPlan, every_launch, planned
from rooflens.running.outcomes import lost, taken, telling
from rooflens.runs.run import Run
from rooflens.sources import counters as source
from rooflens.sources import profile
from rooflens.sources.counters import ncu
from rooflens.sources.counters.flops import may_use_tensor_cores
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.ncu import NcuRun, Tool
from rooflens.sources.profile import TimeShare
from rooflens.sources.profile.launches import CalledLaunch, StepLaunches

TIMED = 0.1
"""Share of a step's progress for the run that is timed; counting takes the rest."""
UNTIL = (0.7, 0.9, 1.0)
"""Share of the time limit at which each group of counters ends: the first has most, and takes longest."""
ROOM = 0.9
"""Share of a card's memory that processes may hold together."""
_TENSOR = "sm__ops_path_tensor_"
NO_GPU = "torch finds no NVIDIA GPU on this machine, and only those have the counters that ncu reads"


class _NotProfiled(Exception):
    """Ends the runs under ncu of a step that could not be profiled; carries what is kept of it."""

    def __init__(self, file: RecordFile) -> None:
        super().__init__()
        self.file = file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """A step that was profiled, and is counted next.

    Attributes:
        timed: the profile as a record file.
        shares: what the device did, in time.
        launches: its kernels by the calls that launched them; empty where these are not known.
        held: bytes of the card that the step held, 0 where that is not known.
        notes: on the trace, and on the plan.
    """

    timed: RecordFile
    shares: tuple[TimeShare, ...]
    launches: tuple[CalledLaunch, ...]
    held: int
    plan: CountingPlan
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The names of its kernels, in the order of launches."""
        return [share.activity.name for share in kernels_of(self.shares) if share.activity is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounting:
    """One run that is counted.

    Attributes:
        stem: what the names of its files begin with.
        every: each launch is counted, also where an equal one was.
    """

    run: Run
    case: Case
    machine: Machine
    stem: Path
    cache: str
    limit: float
    every: bool

    def file(self, workers: Workers, progress: Progress) -> RecordFile:
        """What came of it."""
        self._tidy()  # what a run that was killed left would be taken for this one's
        try:
            return self._file(workers, progress)
        except _NotProfiled as failed:
            return failed.file
        finally:
            self._tidy()

    def _file(self, workers: Workers, progress: Progress) -> RecordFile:
        """The processes that are counted start at once, and wait for the profile of the step."""
        try:
            if self.machine.where != "cuda":
                raise CountersUnavailable(NO_GPU)
            tool = ncu.find()
        except CountersUnavailable as error:
            timed = self._timed(workers, progress)
            return replace(timed, records=tuple(marked(timed.records, str(error))))
        groups = ncu.metric_groups(capability(), self.case.dtype)
        with ExitStack() as stack:
            runs = [
                stack.enter_context(
                    ncu.started(self._command(tool, group, n), environment={"PYTHONPATH": search_path()})
                )
                for n, group in enumerate(groups)
            ]
            step = self._profiled(workers, progress)
            try:
                parts = self._counted(tool, runs, groups, step, progress)
                records = joined(tool, parts, self.case, step, self.cache)
            except (CountersUnavailable, FileError) as error:
                records = marked(step.timed.records, str(error))
        return replace(step.timed, records=tuple(records))

    def _path(self, suffix: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{suffix}")

    def _report(self, n: int) -> Path:
        return self._path("ncu-rep" if n == 0 else f"{n + 1}.ncu-rep")

    def _tidy(self) -> None:
        """Remove what only processes of ours read."""
        begins = tuple(f"{self.stem.name}.{kind}" for kind in ("job", "rounds", "launches"))
        for path in self.stem.parent.glob("*.json*"):
            if path.name.startswith(begins):
                path.unlink(missing_ok=True)

    def _command(self, tool: Tool, group: Sequence[str], n: int) -> list[str]:
        program = [sys.executable, "-m", WORKER, str(self._path(f"job{n}.json"))]
        return tool.command(group, self._report(n), cache=self.cache, program=program)

    def _timed(self, workers: Workers, progress: Progress) -> RecordFile:
        """The profile of the step; _NotProfiled where there is none."""
        out = self._path("profile.jsonl")
        job = Profile(
            run=self.run,
            device=self.machine.name,
            trace=str(self._path("trace.json")),
            out=str(out),
            launches=str(self._path("launches.json")),
        )
        ending = workers.run(job, telling(progress, self.case.label()))
        timed = taken(out)
        if isinstance(ending, Lost):
            raise _NotProfiled(lost(self.case, "counters", ending))
        assert timed is not None
        if timed.failures:
            raise _NotProfiled(replace(timed, failures=tuple(replace(f, source="counters") for f in timed.failures)))
        return timed

    def _profiled(self, workers: Workers, progress: Progress) -> ProfiledStep:
        """The profile of the step, and what of it is to be counted."""
        timed = self._timed(workers, progress)
        events = profile.read_trace(self._path("trace.json"))
        shares = profile.attribute(events, profile.outside(self.case.mode == "train"))
        found = self._path("launches.json")
        told = msgspec.json.decode(found.read_bytes(), type=StepLaunches) if found.exists() else None
        plan, note = plan_of(kernels_of(shares), None if told is None else told.launches, self.every)
        return ProfiledStep(
            timed=timed,
            shares=shares,
            launches=() if told is None else told.launches,
            held=0 if told is None else told.held,
            plan=plan,
            notes=(*events.notes, *note),
        )

    def _counted(
        self,
        tool: Tool,
        runs: Sequence[NcuRun],
        groups: Sequence[Sequence[str]],
        step: ProfiledStep,
        progress: Progress,
    ) -> list[CountedPart]:
        """Let one process after the other count; what the first saw tells which launches tensor counters concern."""
        begun, jobs = time.monotonic(), [self._path(f"job{n}.json") for n in range(len(runs))]
        together = 0 < step.held * len(runs) < ROOM * memory()
        if together:  # each builds its model and warms it up while the others do
            for n, job in enumerate(jobs):
                _written(job, Count(run=self.run, rounds=str(self._path(f"rounds{n}.json"))))
        parts: list[CountedPart] = []
        with ThreadPoolExecutor(1) as reader:
            for n, (run, group) in enumerate(zip(runs, groups, strict=True)):
                plan = step.plan
                if all(name.startswith(_TENSOR) for name in group):
                    plan = plan.only(_with_tensor_work(parts[0], step), step.launches)
                    if not plan.counted:
                        continue
                if not together:
                    _written(jobs[n], Count(run=self.run, rounds=str(self._path(f"rounds{n}.json"))))
                _written(self._path(f"rounds{n}.json"), plan.rounds)
                until = UNTIL[n - len(runs)] * self.limit
                try:
                    done = run.followed(
                        self._report(n),
                        limit=max(1.0, until - (time.monotonic() - begun)),
                        expected=len(plan.counted),
                        progress=self._telling(progress, n, len(runs)),
                    )
                except CountersUnavailable as error:
                    if not parts:
                        raise
                    parts[0] = replace(parts[0], lacking=(*parts[0].lacking, f"{group[0]} and others: {error}"))
                    continue
                read = reader.submit(_read, tool, done.report)
                parts.append(CountedPart(done=done, read=read, counted=plan.counted))
        return parts

    def _telling(self, progress: Progress, n: int, of: int) -> Progress:
        """What the n-th run tells of itself, told of the whole step."""
        begin, end = (TIMED + (1 - TIMED) * share for share in ((0.0, *UNTIL[-of:])[n], UNTIL[n - of]))
        run = "" if of == 1 else f"run {n + 1} of {of}, "
        return lambda share, what: progress(begin + (end - begin) * share, f"{self.case.label()}: {run}{what}")


def plan_of(
    kernels: Sequence[TimeShare], launches: Sequence[CalledLaunch] | None, every: bool
) -> tuple[CountingPlan, tuple[str, ...]]:
    """Return what is counted of a step, and a note where equal launches cannot be told.

    Args:
        launches: of one more run, by the calls that launched them; None for compiled code.
        every: each launch is asked for.
    """
    all_of_them = every_launch(len(kernels))
    if every:
        return all_of_them, ()
    if launches is None:
        why = "compiled code runs without calls of operations that tell equal ones"
        return all_of_them, (f"every launch was counted: {why}",)
    names = [share.activity.name for share in kernels if share.activity is not None]
    if names != [launch.name for launch in launches]:
        return all_of_them, ("every launch was counted: two runs of the step launched different kernels",)
    return planned(launches, [share.seconds for share in kernels]), ()


def joined(tool: Tool, parts: Sequence[CountedPart], case: Case, step: ProfiledStep, cache: str) -> list[Record]:
    """The counted launches, with time and place of the same launches in the run that was timed."""
    found, strangers = counted_launches(parts, step.names, case)
    first, *others = spread(found, strangers, step.shares, step.plan)
    notes = notes_on(tool, parts, step.plan, [first, *others], cache)
    return [replace(first, notes=(*first.notes, *notes, *step.notes)), *others]


def marked(records: Sequence[Record], why: str) -> list[Record]:
    """Times without counters, so marked that nobody takes estimated work for counted work."""
    note = f"NOT COUNTED: times are the profiler's, and FLOP and bytes, where there are any, are estimated, since {why}"
    return [replace(records[0], notes=(note, *records[0].notes)), *records[1:]]


def capability() -> str:
    """The compute capability of the card, like ``9.0``."""
    import torch

    return ".".join(map(str, torch.cuda.get_device_capability()))


def memory() -> int:
    """Bytes of the card that are free."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return free


def _with_tensor_work(part: CountedPart, step: ProfiledStep) -> set[int]:
    """The launches that executed instructions of tensor cores, or may have."""
    return {n for n, launch in part.by_launch(step.names).items() if may_use_tensor_cores(launch.counters)}


def _written(path: Path, what: object) -> None:
    """Write a file that somebody waits for, whole or not at all."""
    made = path.with_name(f"{path.name}.part")
    made.write_bytes(msgspec.json.encode(what))
    made.replace(path)


def _read(tool: Tool, report: Path) -> tuple[list[KernelLaunch], source.CounterReading]:
    """The launches in a report."""
    reading = source.CounterReading(repr(str(report)))
    with tool.printed(report) as lines:
        return list(_in_order(source.parse(lines, reading))), reading


def _in_order(launches: Iterable[KernelLaunch]) -> list[KernelLaunch]:
    return sorted(launches, key=lambda launch: launch.line)
