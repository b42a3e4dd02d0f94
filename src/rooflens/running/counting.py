"""Counters of kernels: a step is profiled in a worker and counted under ncu, and the two are joined by order."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import msgspec

from rooflens.devices.files import slug
from rooflens.errors import CountersUnavailable, FileError, InvalidValue, ModelError
from rooflens.machine import Machine
from rooflens.progress import Progress, waiting, within
from rooflens.records import AS_IS, Case, Record, RecordFile
from rooflens.results import RecordSet
from rooflens.running.attributing import UNREACHED, attributed, kernels_of, replayed, spread
from rooflens.running.isolation import WORKER, Lost, Workers, search_path
from rooflens.running.jobs import Count, Profile, Start
from rooflens.running.observations import CountingPlan, planned
from rooflens.running.outcomes import lost, taken, telling, why_all_failed
from rooflens.runs.run import Run
from rooflens.sources import counters as source
from rooflens.sources import profile
from rooflens.sources.counters import ncu
from rooflens.sources.counters.ncu import CollectedReport, Tool
from rooflens.sources.device_lock import alone_on
from rooflens.sources.environment import capture
from rooflens.sources.profile import TimeShare
from rooflens.sources.profile.launches import CalledLaunch

TIMED = 0.1
"""Share of a batch's progress for the run that is timed; counting takes the rest."""
_SCRIPT = re.compile(r"[\w+.-]{1,100}\.(?:py|sh|ipynb|pl|lua|jl|r)")
NO_GPU = "torch finds no NVIDIA GPU on this machine, and only those have the counters that ncu reads"


def check_settings(cache: str, limit: float) -> None:
    """Raise InvalidValue for settings that ncu cannot work with."""
    if cache not in ncu.CACHES:
        raise InvalidValue(f"unknown cache control {cache!r}; known: {', '.join(ncu.CACHES)}")
    if limit <= 0:
        raise InvalidValue(f"a time limit of {limit} s leaves no time to count; give more than 0")


def counted(
    runs: Sequence[Run],
    machine: Machine,
    *,
    cache: str,
    limit: float,
    every: bool,
    keep: str | Path | None,
    progress: Progress | None,
) -> RecordSet:
    """The launches of every run of named models, with times and places.

    Args:
        every: each launch is counted, also where an equal one was.
        keep: a folder for reports and traces; they are thrown away without one.

    Raises:
        ModelError: every run failed.
    """
    start = Start(kind="profile", where=machine.where, command=tuple(sys.argv))
    files: list[RecordFile] = []
    # A fresh worker for each: what it holds of the card would be missing where ncu runs the model.
    with _folder(keep) as folder, Workers(start, limit=limit, fresh=True) as workers:
        for n, run in enumerate(runs):
            case = run.case(machine.name)
            counting = _Counting(
                run=run,
                case=case,
                machine=machine,
                stem=folder / _stem(case),
                cache=cache,
                limit=limit,
                every=every,
            )
            tell = within(progress, n, len(runs))
            with alone_on(machine.where, waiting(tell)):
                files.append(counting.file(workers, tell))
    failures = [failure for file in files for failure in file.failures]
    records = [record for file in files for record in file.records]
    if not records:
        raise ModelError(why_all_failed(failures))
    return RecordSet(records, devices=machine.devices, failures=failures, environment=files[0].environment)


def counted_program(
    program: Sequence[str],
    machine: Machine,
    *,
    environment: Mapping[str, str],
    cache: str,
    limit: float,
    keep: str | Path | None,
    progress: Progress | None,
    echo: Callable[[str], None] | None,
) -> RecordSet:
    """The launches of the step that a program marks; their times are those of replayed kernels.

    Args:
        environment: variables of the program beside our own.

    Raises:
        CountersUnavailable: ncu is missing or locked, or the program marked no step.
    """
    if machine.where != "cuda":
        raise CountersUnavailable(NO_GPU)
    tool = ncu.find()
    case = Case(model=_named(program), device=machine.name, dtype=AS_IS)
    with _folder(keep) as folder, alone_on(machine.where, waiting(progress)):
        report = folder / f"{_stem(case)}.ncu-rep"
        done = ncu.collect(
            tool.command(ncu.metric_set(_capability(), AS_IS), report, cache=cache, program=program),
            report,
            limit=limit,
            progress=progress,
            echo=echo,
            environment=environment,
        )
        records = [replayed(record) for record in _read(tool, done, case)]
    notes = _how(tool, done, len(records), None, cache)
    records[0] = replace(records[0], notes=(*records[0].notes, *notes))
    return RecordSet(records, devices=machine.devices, environment=capture())


@contextmanager
def _folder(keep: str | Path | None) -> Iterator[Path]:
    """The folder of reports and traces."""
    with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch:
        folder = Path(scratch if keep is None else keep)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def _named(program: Sequence[str]) -> str:
    """What a program is called: the script that it runs, without folder, or its module; else the program itself.

    Any other word may be a secret.

    >>> _named(["python", "-u", "jobs/train.py", "me"]), _named(["bash", "-c", "run --key X"])
    ('train', 'bash')
    >>> _named(["python", "-m", "pkg.train"])
    'pkg.train'
    """
    for before, word in pairwise(program):
        if before == "-m" and all(map(str.isidentifier, word.split("."))):
            return word
        if _SCRIPT.fullmatch(name := Path(word).name):
            return Path(name).stem
    return Path(program[0]).stem


class _NotProfiled(Exception):
    """Ends the run under ncu of a step that could not be profiled; carries what is kept of it."""

    def __init__(self, file: RecordFile) -> None:
        super().__init__()
        self.file = file


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A step that was profiled, and is counted next.

    Attributes:
        timed: the profile as a record file.
        shares: what the device did, in time.
        plan: what is counted; None for every launch.
        notes: on the trace, and on the plan.
    """

    timed: RecordFile
    shares: tuple[TimeShare, ...]
    plan: CountingPlan | None
    notes: tuple[str, ...]

    @property
    def kernels(self) -> list[TimeShare]:
        """The kernels of the step, in the order of launches."""
        return kernels_of(self.shares)

    @property
    def expected(self) -> int:
        """How many launches ncu counts."""
        return len(self.kernels if self.plan is None else self.plan.counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counting:
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
        passing = [self._path(suffix) for suffix in ("job.json", "job.part", "launches.json")]
        for path in passing:  # what a run that was killed left would be taken for this one's
            path.unlink(missing_ok=True)
        try:
            return self._file(workers, progress)
        finally:
            for path in passing:
                path.unlink(missing_ok=True)

    def _file(self, workers: Workers, progress: Progress) -> RecordFile:
        """The process that is counted starts at once, and waits for the profile of the step."""
        try:
            if self.machine.where != "cuda":
                raise CountersUnavailable(NO_GPU)
            tool = ncu.find()
        except CountersUnavailable as error:
            return self._uncounted(workers, progress, error)
        ready: list[Profiled] = []
        job, report = self._path("job.json"), self._path("ncu-rep")

        def prepare() -> int:
            ready.append(self._profiled(workers, progress))
            plan = ready[0].plan
            written = Count(run=self.run, rounds=() if plan is None else plan.rounds)
            made = self._path("job.part")
            made.write_bytes(msgspec.json.encode(written))
            made.replace(job)
            return ready[0].expected

        try:
            done = ncu.collect(
                tool.command(
                    ncu.metric_set(_capability(), self.case.dtype),
                    report,
                    cache=self.cache,
                    program=[sys.executable, "-m", WORKER, str(job)],
                ),
                report,
                limit=self.limit,
                meanwhile=prepare,
                progress=lambda share, what: progress(TIMED + (1 - TIMED) * share, f"{self.case.label()}: {what}"),
                environment={"PYTHONPATH": search_path()},
            )
            records = joined(tool, done, self.case, ready[0], self.cache)
        except _NotProfiled as failed:
            return failed.file
        except (CountersUnavailable, FileError) as error:
            if not ready:
                return self._uncounted(workers, progress, error)
            records = _marked(ready[0].timed.records, str(error))
        return replace(ready[0].timed, records=tuple(records))

    def _path(self, suffix: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{suffix}")

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

    def _uncounted(self, workers: Workers, progress: Progress, why: Exception) -> RecordFile:
        """The profile alone."""
        try:
            timed = self._timed(workers, progress)
        except _NotProfiled as failed:
            return failed.file
        return replace(timed, records=tuple(_marked(timed.records, str(why))))

    def _profiled(self, workers: Workers, progress: Progress) -> Profiled:
        """The profile of the step, and what of it is to be counted."""
        timed = self._timed(workers, progress)
        events = profile.read_trace(self._path("trace.json"))
        shares = profile.attribute(events, profile.outside(self.case.mode == "train"))
        found = self._path("launches.json")
        launches = msgspec.json.decode(found.read_bytes(), type=list[CalledLaunch]) if found.exists() else None
        plan, note = plan_of(kernels_of(shares), launches, self.every)
        return Profiled(timed=timed, shares=shares, plan=plan, notes=(*events.notes, *note))


def plan_of(
    kernels: Sequence[TimeShare], launches: Sequence[CalledLaunch] | None, every: bool
) -> tuple[CountingPlan | None, tuple[str, ...]]:
    """Return what is counted of a step, None for every launch; and a note where equal launches cannot be told.

    Args:
        launches: of one more run, by the calls that launched them; None for compiled code.
        every: each launch is asked for.
    """
    if every:
        return None, ()
    if launches is None:
        return None, ("every launch was counted: compiled code runs without calls of operations that tell equal ones",)
    names = [share.activity.name for share in kernels if share.activity is not None]
    if names != [launch.name for launch in launches]:
        return None, ("every launch was counted: two runs of the step launched different kernels",)
    return planned(launches, [share.seconds for share in kernels]), ()


def _read(tool: Tool, done: CollectedReport, case: Case) -> list[Record]:
    """The launches in a report."""
    reading = source.CounterReading(repr(str(done.report)))
    with tool.printed(done.report) as lines:
        launches = source.found_in(source.parse(lines, reading), reading, lambda _: case)
    return list(launches.records)


def joined(tool: Tool, done: CollectedReport, case: Case, profiled: Profiled, cache: str) -> list[Record]:
    """The launches in a report, with time and place of the same launches in the run that was timed."""
    counted = [replace(record, case=case) for record in _read(tool, done, case)]
    plan, kernels = profiled.plan, len(profiled.kernels)
    if plan is None:
        first, *others = attributed(counted, profiled.shares, whole=done.whole)
        notes = _how(tool, done, len(counted), kernels, cache)
    else:
        first, *others = spread(counted, profiled.shares, plan)
        notes = [*_how(tool, done, len(counted), len(plan.counted), cache), *_stood_for(counted, plan, kernels)]
        if not done.whole:
            notes.append(_covered([first, *others]))
    notes.append("times are of another run, which was not replayed")
    return [replace(first, notes=(*first.notes, *counted[0].notes, *notes, *profiled.notes)), *others]


def _stood_for(counted: Sequence[Record], plan: CountingPlan, kernels: int) -> list[str]:
    """A note on how many launches were counted for how many."""
    if len(plan.counted) == kernels:
        return []
    for_how_many = f"{len(counted)} launches were counted for {kernels}"
    return [f"{for_how_many}: one of each kernel, grid, block and operands; the others take its counts (--every)"]


def _covered(records: Sequence[Record]) -> str:
    """A note on the share of the kernels' time that was counted."""
    timed = [(r, r.timing.samples[0]) for r in records if r.timing is not None and r.work is not None]
    known = sum(seconds for r, seconds in timed if r.work is not None and UNREACHED not in r.notes)
    share = known / sum(seconds for _, seconds in timed)
    return f"the counted launches stand for {share:.1%} of the kernels' time; FLOP and bytes of the others are unknown"


def _how(tool: Tool, done: CollectedReport, launches: int, kernels: int | None, cache: str) -> list[str]:
    """How it was counted, and whether some is missing."""
    passes = f", {done.passes} passes per kernel" if done.passes else ""
    state = "emptied before each kernel" if cache == "all" else "left as earlier kernels left them"
    notes = [f"counted by ncu {tool.version}{passes}; caches {state}"]
    if not done.whole:
        of = "" if kernels is None else f" of {kernels}"
        why = (
            "the time limit was over" if done.stopped else "; ".join(done.errors) or f"ncu ended with code {done.code}"
        )
        notes.append(f"partial: {launches}{of} launches were counted ({why}); totals are of these alone")
    return notes


def _marked(records: Sequence[Record], why: str) -> list[Record]:
    """Times without counters, so marked that nobody takes estimated work for counted work."""
    note = f"NOT COUNTED: times are the profiler's, and FLOP and bytes, where there are any, are estimated, since {why}"
    return [replace(records[0], notes=(note, *records[0].notes)), *records[1:]]


def _capability() -> str:
    import torch

    return ".".join(map(str, torch.cuda.get_device_capability()))


def _stem(case: Case) -> str:
    """What the files of a case are called."""
    return slug(f"{case.model[-60:]} b{case.batch} {case.dtype} {case.mode}")
