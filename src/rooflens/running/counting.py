"""Counters of kernels: a step is profiled in a worker and counted under ncu, and the two are joined by order."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from rooflens.devices.files import slug
from rooflens.errors import CountersUnavailable, InvalidValue, ModelError
from rooflens.machine import Machine
from rooflens.progress import Progress, waiting, within
from rooflens.records import AS_IS, Case, Record, RecordFile
from rooflens.results import RecordSet
from rooflens.running.attributing import replayed
from rooflens.running.counted_parts import caches, why_partial
from rooflens.running.counted_step import NO_GPU, StepCounting, capability
from rooflens.running.isolation import Workers
from rooflens.running.jobs import Start
from rooflens.running.outcomes import why_all_failed
from rooflens.runs.run import Run
from rooflens.sources import counters as source
from rooflens.sources.counters import ncu
from rooflens.sources.counters.ncu import CollectedReport, Tool
from rooflens.sources.device_lock import alone_on
from rooflens.sources.environment import capture

_SCRIPT = re.compile(r"[\w+.-]{1,100}\.(?:py|sh|ipynb|pl|lua|jl|r)")


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
            counting = StepCounting(
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
        command = tool.command(ncu.metric_set(capability(), AS_IS), report, cache=cache, program=program)
        with ncu.started(command, environment) as run:
            done = run.followed(report, limit=limit, progress=progress, echo=echo)
        records = [replayed(record) for record in _read(tool, done, case)]
    notes = _how(tool, done, len(records), cache)
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


def _read(tool: Tool, done: CollectedReport, case: Case) -> list[Record]:
    """The launches in a report."""
    reading = source.CounterReading(repr(str(done.report)))
    with tool.printed(done.report) as lines:
        launches = source.found_in(source.parse(lines, reading), reading, lambda _: case)
    return list(launches.records)


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
