"""Counters of kernels: a step is profiled in a worker and counted under ncu, and the two are joined by order."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from rooflens.running.attributing import attributed, replayed
from rooflens.running.isolation import WORKER, Lost, Workers, search_path
from rooflens.running.jobs import Count, Profile, Start
from rooflens.running.outcomes import lost, taken, telling, why_all_failed
from rooflens.runs.run import Run
from rooflens.sources import counters as source
from rooflens.sources import profile
from rooflens.sources.counters import ncu
from rooflens.sources.counters.ncu import CollectedReport, Tool
from rooflens.sources.device_lock import alone_on
from rooflens.sources.environment import capture
from rooflens.sources.profile import TimeShare

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
    keep: str | Path | None,
    progress: Progress | None,
) -> RecordSet:
    """The launches of every run of named models, with times and places.

    Args:
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
                run=run, case=case, machine=machine, stem=folder / _stem(case), cache=cache, limit=limit
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counting:
    """One run that is counted.

    Attributes:
        stem: what the names of its files begin with.
    """

    run: Run
    case: Case
    machine: Machine
    stem: Path
    cache: str
    limit: float

    def file(self, workers: Workers, progress: Progress) -> RecordFile:
        """What came of it."""
        trace, out = self._path("trace.json"), self._path("profile.jsonl")
        job = Profile(run=self.run, device=self.machine.name, trace=str(trace), out=str(out))
        ending = workers.run(job, telling(progress, self.case.label()))
        timed = taken(out)
        if isinstance(ending, Lost):
            return lost(self.case, "counters", ending)
        assert timed is not None
        if timed.failures:
            return replace(timed, failures=tuple(replace(f, source="counters") for f in timed.failures))
        try:
            launches = self._launches(trace, progress)
        except (CountersUnavailable, FileError) as error:
            launches = _marked(timed.records, str(error))
        return replace(timed, records=tuple(launches))

    def _path(self, suffix: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{suffix}")

    def _launches(self, trace: Path, progress: Progress) -> list[Record]:
        """Run the step again under ncu, and join its kernels with those of the trace."""
        if self.machine.where != "cuda":
            raise CountersUnavailable(NO_GPU)
        tool = ncu.find()
        events = profile.read_trace(trace)
        shares = profile.attribute(events, profile.outside(self.case.mode == "train"))
        kernels = sum(share.activity is not None and share.activity.kind == "kernel" for share in shares)
        job, report = self._path("job.json"), self._path("ncu-rep")
        job.write_bytes(msgspec.json.encode(Count(run=self.run)))
        program = [sys.executable, "-m", WORKER, str(job)]
        metrics = ncu.metric_set(_capability(), self.case.dtype)
        try:
            done = ncu.collect(
                tool.command(metrics, report, cache=self.cache, program=program),
                report,
                limit=self.limit,
                expected=kernels,
                progress=lambda share, what: progress(TIMED + (1 - TIMED) * share, f"{self.case.label()}: {what}"),
                environment={"PYTHONPATH": search_path()},
            )
        finally:
            job.unlink()
        first, *others = joined(tool, done, self.case, shares, kernels, self.cache)
        return [replace(first, notes=(*first.notes, *events.notes)), *others]


def _read(tool: Tool, done: CollectedReport, case: Case) -> list[Record]:
    """The launches in a report."""
    reading = source.CounterReading(repr(str(done.report)))
    with tool.printed(done.report) as lines:
        launches = source.found_in(source.parse(lines, reading), reading, lambda _: case)
    return list(launches.records)


def joined(
    tool: Tool, done: CollectedReport, case: Case, shares: Iterable[TimeShare], kernels: int, cache: str
) -> list[Record]:
    """The launches in a report, with time and place of the same launches in the run that was timed."""
    counted = [replace(record, case=case) for record in _read(tool, done, case)]
    first, *others = attributed(counted, shares, whole=done.whole)
    notes = (*_how(tool, done, len(counted), kernels, cache), "times are of another run, which was not replayed")
    return [replace(first, notes=(*first.notes, *notes)), *others]


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
