"""One step of a model that is counted: profiled in a worker, then run under ncu, once for each group of counters."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from rooflens.errors import CountersUnavailable, FileError
from rooflens.machine import Machine
from rooflens.progress import Progress
from rooflens.records import Case, Record, RecordFile
from rooflens.running.attributing import kernels_of, spread
from rooflens.running.awaited import LOOKS
from rooflens.running.counted_parts import CountedPart, counted_launches, notes_on, read_report
from rooflens.running.isolation import Lost, Workers
from rooflens.running.jobs import Answer, Count, Profile, Profiled
from rooflens.running.observations import CountingPlan, every_launch, planned
from rooflens.running.outcomes import lost, taken, telling
from rooflens.running.process import search_path
from rooflens.runs.run import Run
from rooflens.sources import profile
from rooflens.sources.counters import ncu
from rooflens.sources.counters.flops import has_unseen_tensor_work
from rooflens.sources.counters.ncu import NcuRun, Tool
from rooflens.sources.counters.reports.lean import write_lean
from rooflens.sources.profile import TimeShare
from rooflens.sources.profile.launches import CalledLaunch, Round

COUNTER = "rooflens.running.counted_start"
"""The program that counts under ncu."""
TIMED = 0.1
"""Share of a step's progress for the run that is timed; counting takes the rest."""
UNTIL = (0.7, 0.9, 1.0)
"""Share of the time limit at which each group of counters ends: the first has most, and takes longest."""
ROOM = 0.9
"""Share of a card's free memory that processes may take together."""
BUILD_SECONDS = 30.0
"""In which processes that count build a step, while the first of them waits; twice as long as the profile took, if that
is more."""
_LAST = "sm__ops_path_tensor_"
"""What names of counters begin with that concern a few launches only."""
BUSY = "bytes may be too many: a process that counts later may still have built the step while another counted"
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
class WaitingRuns:
    """Processes under ncu that import what they need, and wait for their jobs.

    Attributes:
        groups: of counters, one for each process.
        folder: where they look for jobs, and write their reports.
    """

    tool: Tool
    dtype: str
    cache: str
    groups: tuple[tuple[str, ...], ...]
    runs: tuple[NcuRun, ...]
    folder: Path

    def job(self, n: int) -> Path:
        """The file of the job of a process."""
        return self.folder / f"job{n}.json"

    def given(self, n: int, run: Run) -> None:
        """Tell a process what it will run: it loads the library that has the model."""
        files = {"build": self._build(n), "warm": self._warm(n), "rounds": self._rounds(n)}
        _written(self.job(n), Count(run=run, **{name: str(path) for name, path in files.items()}))

    def built(self, n: int) -> None:
        """Let it build the step on the card, and warm it up."""
        _written(self._build(n), "")

    def all_warm(self, until: float) -> bool:
        """Wait for all of them to be warm; false if some were not by then. One that has ended does nothing."""
        while any(not self._warm(n).exists() and not run.has_ended for n, run in enumerate(self.runs)):
            if time.monotonic() > until:
                return False
            time.sleep(LOOKS)
        return True

    def counting(self, n: int, rounds: Sequence[Round]) -> None:
        """Let it count."""
        _written(self._rounds(n), rounds)

    def _build(self, n: int) -> Path:
        return self.folder / f"build{n}.json"

    def _warm(self, n: int) -> Path:
        return self.folder / f"warm{n}"

    def _rounds(self, n: int) -> Path:
        return self.folder / f"rounds{n}.json"

    def report(self, n: int) -> Path:
        """What it writes."""
        return self.folder / f"{n}.ncu-rep"


@contextmanager
def waiting_runs(dtype: str, cache: str) -> Iterator[WaitingRuns]:
    """Start the processes that count a step of this type of elements on the card of this machine.

    Raises:
        CountersUnavailable: ncu is missing.
        InvalidValue: the chip is not known.
    """
    with ThreadPoolExecutor(1) as beside:
        looked = beside.submit(ncu.capability)
        tool, capability = ncu.find(), looked.result()
    if capability is None:
        raise CountersUnavailable(NO_GPU)
    groups = ncu.metric_groups(capability, dtype)
    with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch, ExitStack() as stack:
        waiting = WaitingRuns(tool=tool, dtype=dtype, cache=cache, groups=groups, runs=(), folder=Path(scratch))
        runs = []
        for n, group in enumerate(groups):
            program = [sys.executable, "-m", COUNTER, str(n), str(waiting.job(n)), str(os.getpid())]
            command = tool.command(group, waiting.report(n), cache=cache, program=program)
            runs.append(stack.enter_context(ncu.started(command, {"PYTHONPATH": search_path()})))
        yield replace(waiting, runs=tuple(runs))


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
            timed = self._timed(workers, progress, lambda _: None)
        except _NotProfiled as failed:
            return failed.file
        return replace(timed, records=tuple(marked(timed.records, str(why))))

    def file(self, workers: Workers, waiting: WaitingRuns, progress: Progress) -> RecordFile:
        """What came of it. The processes that wait begin when the step is profiled."""
        try:
            for n in range(len(waiting.runs)):
                waiting.given(n, self.run)
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

    def _timed(self, workers: Workers, progress: Progress, profiled: Callable[[Profiled], None]) -> RecordFile:
        """The profile of the step; _NotProfiled where there is none. The worker ends: it holds memory of the card.

        Args:
            profiled: called when the run whose times count is over.
        """
        told = telling(progress, self.case.label())

        def hear(answer: Answer) -> None:
            if isinstance(answer, Profiled):
                profiled(answer)
            told(answer)

        out, trace = self.folder / "profile.jsonl", self.folder / "trace.json"
        job = Profile(
            run=self.run,
            device=self.machine.name,
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

        Until it is profiled the card is the worker's alone. Then the processes that count build it, if there is room.
        """
        together, begun, until = False, time.monotonic(), 0.0

        def profiled(step: Profiled) -> None:
            nonlocal together, until
            together = 0 < step.held * len(waiting.runs) < ROOM * step.free
            patience = max(BUILD_SECONDS, 2 * (time.monotonic() - begun))  # the worker took that long for the same
            until = time.monotonic() + min(patience, self.limit / 2)
            for n in range(len(waiting.runs)) if together else ():
                waiting.built(n)

        timed = self._timed(workers, progress, profiled)
        if not together:
            waiting.built(0)
        found = self.folder / "launches.json"
        launches = msgspec.json.decode(found.read_bytes(), type=tuple[CalledLaunch, ...]) if found.exists() else None
        events = profile.read_trace(self.folder / "trace.json")
        shares = profile.attribute(events, profile.outside(self.case.mode == "train"))
        plan, note = plan_of(kernels_of(shares), launches, self.every)
        late = together and not waiting.all_warm(until)
        notes = (*events.notes, *note, *((BUSY,) if late else ()))
        progress(TIMED, f"{self.case.label()}: {len(plan.counted)} of {len(plan.stands)} launches are counted")
        return ProfiledStep(
            timed=timed, shares=shares, launches=launches or (), together=together, plan=plan, notes=notes
        )

    def _counted(self, waiting: WaitingRuns, step: ProfiledStep, progress: Progress) -> list[CountedPart]:
        """Let one process after the other count; what the first saw tells which launches the last one concerns."""
        begun, of = time.monotonic(), len(waiting.runs)
        plans: dict[int, CountingPlan] = {}
        parts: list[CountedPart] = []
        kept: list[Future[None]] = []

        def begin(n: int) -> None:
            """Let a process count what concerns it, once that is known, unless it does already."""
            last = n < of and _is_last(waiting.groups[n])
            if n >= of or n in plans or (last and not parts):
                return
            plans[n] = step.plan.only(_with_unseen_work(parts[0], step), step.launches) if last else step.plan
            if plans[n].counted:
                if n and not step.together:
                    waiting.built(n)
                waiting.counting(n, plans[n].rounds)

        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as keeper:
            for n, (run, group) in enumerate(zip(waiting.runs, waiting.groups, strict=True)):
                begin(n)
                counted = plans[n].counted
                if not counted:
                    continue
                try:
                    done = run.followed(
                        waiting.report(n),
                        limit=max(1.0, UNTIL[n - of] * self.limit - (time.monotonic() - begun)),
                        expected=len(counted),
                        progress=self._telling(progress, n, of),
                        # While it writes its report the next may count, if both are on the card.
                        counted=partial(begin, n + 1) if step.together else None,
                        woken=n == 0,
                    )
                except CountersUnavailable as error:
                    if not parts:
                        raise
                    parts[0] = replace(parts[0], lacking=(*parts[0].lacking, f"{group[0]} and others: {error}"))
                    continue
                finally:
                    kept.append(keeper.submit(self._kept_report, waiting, n))
                read = reader.submit(read_report, waiting.tool, done.report, n == 0)
                parts.append(CountedPart(done=done, read=read, counted=counted))
        for written in kept:
            written.result()
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
    return [replace(first, notes=(*first.notes, *notes, *step.notes)), *others]


def marked(records: Sequence[Record], why: str) -> list[Record]:
    """Times without counters, so marked that nobody takes estimated work for counted work."""
    note = f"NOT COUNTED: times are the profiler's, and FLOP and bytes, where there are any, are estimated, since {why}"
    return [replace(records[0], notes=(note, *records[0].notes)), *records[1:]]


def _with_unseen_work(part: CountedPart, step: ProfiledStep) -> set[int]:
    """The launches that executed instructions of tensor cores, or may have, whose operations were not seen."""
    return {n for n, launch in part.by_launch(step.names).items() if has_unseen_tensor_work(launch.counters)}


def _is_last(group: Sequence[str]) -> bool:
    """True for the counters that concern those launches only whose tensor operations others did not see."""
    return all(name.startswith(_LAST) for name in group)


def _written(path: Path, what: object) -> None:
    """Write a file that somebody waits for, whole or not at all."""
    made = path.with_name(f"{path.name}.part")
    made.write_bytes(msgspec.json.encode(what))
    made.replace(path)
