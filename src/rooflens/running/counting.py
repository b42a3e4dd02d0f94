"""Counters of kernels: a step is profiled in a worker and counted under ncu, and the two are joined by order."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec

from rooflens.devices.files import slug
from rooflens.errors import CountersUnavailable, InvalidValue, ModelError
from rooflens.machine import FoundDevice, Machine
from rooflens.progress import Progress, waiting, within
from rooflens.records import AS_IS, Case, RecordFile
from rooflens.results import RecordSet
from rooflens.running.counted_parts import caches, read_report, why_partial
from rooflens.running.counted_programs import program_records
from rooflens.running.counted_step import StepCounting
from rooflens.running.isolation import Workers
from rooflens.running.jobs import ANYWHERE, Start
from rooflens.running.outcomes import found_in, runs_in, why_all_failed
from rooflens.running.waiting_runs import NO_GPU, WaitingRuns, waiting_runs
from rooflens.runs.run import Request, Run
from rooflens.runs.time_limits import check_limit
from rooflens.sources.counters import ncu
from rooflens.sources.counters.ncu import CollectedReport, Tool
from rooflens.sources.counters.reports.lean import write_lean
from rooflens.sources.device_lock import alone_on
from rooflens.sources.environment import capture
from rooflens.sources.profile.launches import ProgramCalls

_SCRIPT = re.compile(r"[\w+.-]{1,100}\.(?:py|sh|ipynb|pl|lua|jl|r)")


def check_settings(cache: str, limit: float) -> None:
    """Raise InvalidValue for settings that ncu cannot work with."""
    if cache not in ncu.CACHES:
        raise InvalidValue(f"unknown cache control {cache!r}; known: {', '.join(ncu.CACHES)}")
    check_limit(limit)


class Counter:
    """Counts runs: each is profiled in a worker, then run under ncu in processes that started meanwhile.

    Args:
        keep: a folder for reports and traces; None throws them away.
    """

    def __init__(self, workers: Workers, *, cache: str, limit: float, every: bool, keep: str | Path | None) -> None:
        self._workers, self._cache, self._limit, self._every = workers, cache, limit, every
        self._keep = None if keep is None else Path(keep)
        self._ahead = ExitStack()
        self._waiting: WaitingRuns | None = None

    def start(self, dtype: str) -> None:
        """Start what counts runs in a type of elements; what lacks is told when it is needed."""
        with suppress(CountersUnavailable, InvalidValue):
            self._wait(dtype)

    def found(self) -> FoundDevice:
        """The device of the workers."""
        return found_in(self._workers)

    def runs(self, asked: Request) -> tuple[Run, ...]:
        """What a request asks to run."""
        return runs_in(self._workers, asked)

    def counted(self, runs: Sequence[Run], machine: Machine, progress: Progress | None) -> RecordSet:
        """The launches of every run, with times and places.

        Raises:
            ModelError: every run failed.
        """
        files: list[RecordFile] = []
        for n, run in enumerate(runs):
            tell = within(progress, n, len(runs))
            with alone_on(machine.where, waiting(tell), cards=machine.cards[:1]):
                files.append(self._file(run, machine, tell))
        failures = [failure for file in files for failure in file.failures]
        records = [record for file in files for record in file.records]
        if not records:
            raise ModelError(why_all_failed(failures))
        return RecordSet(records, devices=machine.devices, failures=failures, environment=files[0].environment)

    def end(self) -> None:
        """End what waits."""
        self._waiting = None
        self._ahead.close()

    def _file(self, run: Run, machine: Machine, progress: Progress) -> RecordFile:
        case = run.case(machine.name)
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch:
            step = StepCounting(
                run=run,
                case=case,
                machine=machine,
                folder=Path(scratch),
                limit=self._limit,
                every=self._every,
                keep=None if self._keep is None else self._keep / _stem(case),
            )
            try:
                if machine.where != "cuda":
                    raise CountersUnavailable(NO_GPU)
                waits = self._wait(run.dtype)
            except CountersUnavailable as error:
                return step.uncounted(self._workers, error, progress)
            try:
                return step.file(self._workers, waits, progress)
            finally:
                self.end()

    def _wait(self, dtype: str) -> WaitingRuns:
        """What waits to count runs in a type of elements."""
        if self._waiting is not None and self._waiting.dtype != dtype:
            self.end()
        if self._waiting is None:
            self._waiting = self._ahead.enter_context(waiting_runs(dtype, self._cache))
        return self._waiting


@contextmanager
def counter(*, cache: str, limit: float, every: bool, keep: str | Path | None) -> Iterator[Counter]:
    """Count runs on this machine; the worker that profiles them is started at once.

    Args:
        limit: seconds for each run to be profiled, and again to be counted.
        every: each launch is counted, also where an equal one was.
        keep: a folder for reports and traces; they are thrown away without one.
    """
    start = Start(kind="profile", where=ANYWHERE, command=tuple(sys.argv))
    with Workers(start, limit=limit) as workers:
        workers.prepare()
        counts = Counter(workers, cache=cache, limit=limit, every=every, keep=keep)
        try:
            yield counts
        finally:
            counts.end()


def counted_program(
    program: Sequence[str],
    machine: Machine,
    *,
    environment: Callable[[str], Mapping[str, str]],
    cache: str,
    limit: float,
    keep: str | Path | None,
    progress: Progress | None,
    echo: Callable[[str], None] | None,
) -> RecordSet:
    """The launches of the step that a program marks; their times are those of replayed kernels.

    Args:
        environment: variables of the program by which it tells of its calls in a file.

    Raises:
        CountersUnavailable: ncu is missing or locked, or the program marked no step.
    """
    if machine.where != "cuda":
        raise CountersUnavailable(NO_GPU)
    tool, capability = ncu.find(), ncu.capability()
    if capability is None:
        raise CountersUnavailable(NO_GPU)
    case = Case(model=_named(program), device=machine.name, dtype=AS_IS)
    alone = alone_on(machine.where, waiting(progress), cards=machine.cards[:1])
    with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch, alone:
        report, told = Path(scratch) / f"{_stem(case)}.ncu-rep", Path(scratch) / "calls.json"
        names = ncu.metric_set(capability, AS_IS)
        command = tool.command(names, report, cache=cache, program=program, several=True)
        with ncu.started(command, environment(str(told))) as run:
            done = run.followed(report, limit=limit, progress=progress, echo=echo)
        if keep is not None:
            Path(keep).mkdir(parents=True, exist_ok=True)
            write_lean(report, Path(keep) / report.name)
        launches, reading = read_report(tool, done.report)
        calls = msgspec.json.decode(told.read_bytes(), type=ProgramCalls) if told.exists() else None
    records, notes = program_records(launches, reading, case, calls)
    how = _how(tool, done, len(launches), cache)
    records[0] = replace(records[0], notes=(*records[0].notes, *how, *notes))
    return RecordSet(records, devices=machine.devices, environment=capture())


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


def _how(tool: Tool, done: CollectedReport, launches: int, cache: str) -> list[str]:
    """How it was counted, and whether some is missing."""
    passes = f", {done.passes} passes per kernel" if done.passes else ""
    notes = [f"counted by ncu {tool.version}{passes}; caches {caches(cache)}"]
    if not done.whole:
        notes.append(f"partial: {launches} launches were counted ({why_partial(done)}); totals are of these alone")
    return notes


def _stem(case: Case) -> str:
    """What the files of a case are called."""
    return slug(f"{case.model[-60:]} b{case.batch} {case.dtype} {case.mode}")
