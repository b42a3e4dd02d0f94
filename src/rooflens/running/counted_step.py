"""One step of a model that is counted: profiled in a worker, then run under ncu, once for each group of counters."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from rooflens.errors import CountersUnavailable, FileError
from rooflens.machine import Machine
from rooflens.progress import Progress
from rooflens.records import Case, Record, RecordFile
from rooflens.running.attributing import kernels_of, spread
from rooflens.running.awaited import written
from rooflens.running.counted_parts import CountedPart, counted_launches, notes_on, read_report
from rooflens.running.isolation import Lost, Workers
from rooflens.running.jobs import Answer, Profile, Profiled, Warmed
from rooflens.running.observations import CountingPlan, every_launch, planned
from rooflens.running.outcomes import lost, taken, telling
from rooflens.running.waiting_runs import WaitingRuns
from rooflens.runs.run import Run
from rooflens.sources import profile
from rooflens.sources.counters.flops import has_unseen_tensor_work
from rooflens.sources.counters.reports.lean import write_lean
from rooflens.sources.profile import TimeShare
from rooflens.sources.profile.launches import CalledLaunch

TIMED = 0.1
"""Share of a step's progress for the run that is timed; counting takes the rest."""
UNTIL = (0.7, 0.9, 1.0)
"""Share of the time limit at which each group of counters ends: the first has most, and takes longest."""
BUILD_SECONDS = 30.0
"""In which processes that count build a step, while the first of them waits; twice as long as the profile took, if that
is more."""
LOAD_SECONDS = 10.0
"""In which they load torch's libraries on the card, while the profile waits for it."""
_LAST = "sm__ops_path_tensor_"
"""What names of counters begin with that concern a few launches only."""
_APART = {"smsp__sass_": "FLOP of the general lanes", _LAST: "operations of mma.sync on tensor cores"}
"""What groups of counters tell that are counted apart, by the beginnings of their names."""
LOADING = "times may be too long: a process that counts may still have loaded libraries while the step was profiled"
BUSY = "bytes may be too many: a process that counts later may still have built the step while another counted"


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
        launches: its kernels by the calls that launched them; () where these are not known.
        together: there is room on the card for all processes that count: they have built it.
        notes: on the trace, and on the plan.
    """

    timed: RecordFile
    shares: tuple[TimeShare, ...]
    launches: tuple[CalledLaunch, ...]
    together: bool
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
        folder: for what only our processes read; it is removed afterwards.
        every: each launch is counted, also where an equal one was.
        keep: what the names of reports and traces that are kept begin with; None keeps none.
    """

    run: Run
    case: Case
    machine: Machine
    folder: Path
    limit: float
    every: bool
    keep: Path | None

    def uncounted(self, workers: Workers, why: Exception, progress: Progress) -> RecordFile:
        """The profile alone, where nothing can be counted."""
        try:
            timed = self._timed(workers, progress)
        except _NotProfiled as failed:
            return failed.file
        return replace(timed, records=tuple(marked(timed.records, str(why))))

    def file(self, workers: Workers, waiting: WaitingRuns, progress: Progress) -> RecordFile:
        """What came of it. The processes that wait begin when the step is profiled."""
        try:
            waiting.give(self.run)
            step = self._profiled(workers, waiting, progress)
        except _NotProfiled as failed:
            return failed.file
        try:
            parts = self._counted(waiting, step, progress)
            records = joined(waiting, parts, self.case, step)
        except (CountersUnavailable, FileError) as error:
            records = marked(step.timed.records, str(error))
        return replace(step.timed, records=tuple(records))

    def _kept(self, path: Path, suffix: str, copied: Callable[[Path, Path], object] = shutil.copyfile) -> None:
        """Keep a file under the name of the case, if files are kept."""
        if self.keep is not None and path.exists():
            copied(path, self.keep.with_name(f"{self.keep.name}.{suffix}"))

    def _kept_report(self, waiting: WaitingRuns, n: int) -> None:
        """Keep the report of a process, if files are kept."""
        self._kept(waiting.report(n), "ncu-rep" if n == 0 else f"{n + 1}.ncu-rep", write_lean)

    def _timed(
        self,
        workers: Workers,
        progress: Progress,
        warmed: Callable[[], None] = lambda: None,
        profiled: Callable[[Profiled], None] = lambda _: None,
    ) -> RecordFile:
        """The profile of the step; _NotProfiled where there is none. The worker ends: it holds memory of the card.

        Args:
            warmed: called before the run whose times count, for which the worker waits until this is over.
            profiled: called after it.
        """
        told = telling(progress, self.case.label())
        out, trace, free = self.folder / "profile.jsonl", self.folder / "trace.json", self.folder / "free"

        def hear(answer: Answer) -> None:
            if isinstance(answer, Warmed):
                warmed()
                written(free, "")
            if isinstance(answer, Profiled):
                profiled(answer)
            told(answer)

        job = Profile(
            run=self.run,
            device=self.machine.name,
            free=str(free),
            trace=str(trace),
            out=str(out),
            launches=str(self.folder / "launches.json"),
        )
        ending = workers.run(job, hear)
        workers.dismiss()
        timed = taken(out)
        self._kept(trace, "trace.json")
        if isinstance(ending, Lost):
            raise _NotProfiled(lost(self.case, "counters", ending))
        assert timed is not None
        if timed.failures:
            raise _NotProfiled(replace(timed, failures=tuple(replace(f, source="counters") for f in timed.failures)))
        return timed

    def _profiled(self, workers: Workers, waiting: WaitingRuns, progress: Progress) -> ProfiledStep:
        """The profile of the step, and what of it is to be counted.

        The processes that count load their libraries before the run whose times count, and build the step after it, if
        there is room for all: meanwhile the card is the worker's alone.
        """
        together, begun, until = False, time.monotonic(), 0.0
        late: list[str] = []

        def warmed() -> None:
            if not waiting.all_loaded(time.monotonic() + min(LOAD_SECONDS, self.limit / 2)):
                late.append(LOADING)

        def profiled(step: Profiled) -> None:
            nonlocal together, until
            together = step.has_room_for(len(waiting.runs))
            patience = max(BUILD_SECONDS, 2 * (time.monotonic() - begun))  # the worker took that long for the same
            until = time.monotonic() + min(patience, self.limit / 2)
            for n in range(len(waiting.runs)) if together else ():
                waiting.build(n)

        timed = self._timed(workers, progress, warmed, profiled)
        if not together:
            waiting.build(0)
        found = self.folder / "launches.json"
        launches = msgspec.json.decode(found.read_bytes(), type=tuple[CalledLaunch, ...]) if found.exists() else None
        events = profile.read_trace(self.folder / "trace.json")
        shares = profile.attribute(events, profile.outside(self.case.mode == "train"))
        plan, note = plan_of(kernels_of(shares), launches, self.every)
        if together and not waiting.all_warm(until):
            late.append(BUSY)
        progress(TIMED, f"{self.case.label()}: {len(plan.counted)} of {len(plan.stands)} launches are counted")
        return ProfiledStep(
            timed=timed,
            shares=shares,
            launches=launches or (),
            together=together,
            plan=plan,
            notes=(*events.notes, *note, *late),
        )

    def _counted(self, waiting: WaitingRuns, step: ProfiledStep, progress: Progress) -> list[CountedPart]:
        """Let one process after the other count; what the first saw tells which launches the last one concerns.

        The next begins when ncu and its process have ended: until then the driver refuses it the counters.
        """
        begun, of = time.monotonic(), len(waiting.runs)
        parts: list[CountedPart] = []
        kept: list[Future[None]] = []
        with ThreadPoolExecutor(of) as reader, ThreadPoolExecutor(1) as keeper:
            for n, (run, group) in enumerate(zip(waiting.runs, waiting.groups, strict=True)):
                plan = step.plan
                if n and _is_last(group):
                    plan = plan.only(_with_unseen_work(parts[0], step), step.launches)
                if not plan.counted:
                    continue
                if n and not step.together:
                    waiting.build(n)
                waiting.count(n, plan.rounds)
                try:
                    done = run.followed(
                        waiting.report(n),
                        limit=max(1.0, UNTIL[n - of] * self.limit - (time.monotonic() - begun)),
                        expected=len(plan.counted),
                        progress=self._telling(progress, n, of),
                    )
                except CountersUnavailable as error:
                    if not parts:
                        raise
                    parts[0] = replace(parts[0], lacking=(*parts[0].lacking, f"{_what(group)}, since {error}"))
                    continue
                finally:
                    kept.append(keeper.submit(self._kept_report, waiting, n))
                read = reader.submit(read_report, waiting.tool, done.report)
                what = _what(group) if n else ""
                parts.append(CountedPart(done=done, read=read, counted=plan.counted, what=what))
        for report in kept:
            report.result()
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


def joined(waiting: WaitingRuns, parts: Sequence[CountedPart], case: Case, step: ProfiledStep) -> list[Record]:
    """The counted launches, with time and place of the same launches in the run that was timed."""
    found, strangers = counted_launches(parts, step.names, case)
    first, *others = spread(found, strangers, step.shares, step.plan)
    notes = notes_on(waiting.tool, parts, step.plan, [first, *others], waiting.cache)
    return [replace(first, notes=(*notes, *first.notes, *step.notes)), *others]


def marked(records: Sequence[Record], why: str) -> list[Record]:
    """Times without counters, so marked that nobody takes estimated work for counted work."""
    note = f"NOT COUNTED: times are the profiler's, and FLOP and bytes, where there are any, are estimated, since {why}"
    return [replace(records[0], notes=(note, *records[0].notes)), *records[1:]]


def _with_unseen_work(part: CountedPart, step: ProfiledStep) -> set[int]:
    """The launches that executed instructions of tensor cores, or may have, whose operations were not seen."""
    return {n for n, launch in part.by_launch(step.names).items() if has_unseen_tensor_work(launch.counters)}


def _what(group: Sequence[str]) -> str:
    """What a group of counters that is counted apart tells."""
    return next(what for beginning, what in _APART.items() if group[0].startswith(beginning))


def _is_last(group: Sequence[str]) -> bool:
    """True for the counters that concern those launches only whose tensor operations others did not see."""
    return all(name.startswith(_LAST) for name in group)
