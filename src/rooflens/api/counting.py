"""What the hardware counts while a model runs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.api.attributing import attributed, replayed
from rooflens.api.cases import Request, request
from rooflens.api.estimation import estimate as estimated
from rooflens.errors import CountersUnavailable, FileError, InvalidValue, ModelError
from rooflens.machine import Machine, this_machine
from rooflens.models import How
from rooflens.progress import Progress
from rooflens.records import AS_IS, Case, Device, Failure, Record, RecordFile, read_records
from rooflens.regions.iterations import COUNTERS
from rooflens.results import RecordSet
from rooflens.sources import environment, isolation

if TYPE_CHECKING:
    from rooflens.sources.counters.ncu import Collected, Tool
    from rooflens.sources.profile import Share

LIMIT = 600.0
"""Seconds for counting one batch."""
TIMED = 0.1
"""Share of a batch's progress for the run that is timed; counting takes the rest."""
NO_GPU = "torch finds no NVIDIA GPU on this machine, and only those have the counters that ncu reads"


def counters(
    model: str,
    *,
    batch: int | Sequence[int] | None = None,
    dtype: str | None = None,
    mode: str = "inference",
    optimizer: str = "sgd",
    fused: bool = False,
    img_size: int | None = None,
    seq_len: int | None = None,
    channels_last: bool = False,
    compile: bool = False,
    cache: str = "all",
    limit: float = LIMIT,
    roof: str | Device | None = None,
    estimate: bool = True,
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> RecordSet:
    """Count FLOP and bytes of every kernel of one warm step with Nsight Compute; twin of ``rooflens counters MODEL``.

    The step is run twice, each time in a process of its own: once under torch's profiler, for times, operations,
    modules and phases; once under ncu, which replays each kernel until all counters are read. Where counters cannot be
    read, the first run and the estimate stand alone, and a note says so and what to change.

    Args:
        cache: ``all`` empties the caches before each kernel, so that bytes repeat; ``none`` keeps what earlier kernels
            left there.
        limit: seconds of counting per batch; then ncu is stopped, and what it has is kept.
        roof: the device whose ceilings hold: a name, a device file, or ``measured``. Default: the catalogue's entry.
        estimate: also estimate the same cases: algorithmic FLOP and compulsory bytes beside what was executed.
        keep: a folder for ncu's reports and the profiler's traces; by default they are thrown away.
        (others): as in :func:`estimate`.

    Returns:
        A record per launch: executed work (FLOP by precision and unit, bytes at l1, l2 and dram), time, operation,
        module and phase.

    Raises:
        ModelError: every batch failed.
        InvalidValue: an argument cannot be used.
    """
    if not isinstance(model, str):
        raise InvalidValue(
            "ncu runs a model in a process of its own; name it: resnet18, hf:gpt2, path/file.py:function"
        )
    _check(cache, limit)
    words: dict[str, Any] = {
        "name": None,
        "batch": batch,
        "dtype": dtype,
        "mode": mode,
        "optimizer": optimizer,
        "fused": fused,
        "img_size": img_size,
        "seq_len": seq_len,
        "channels_last": channels_last,
    }
    asked = request(model, **words, inputs=None, loss=None, how=How(compile=compile))
    machine = this_machine(None, roof, progress)
    beside = estimated(model, device=machine.device, compile=compile, **words) if estimate else None
    with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch:
        folder = Path(keep) if keep is not None else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        counting = _Counting(
            words={"model": model} | words, asked=asked, machine=machine, folder=folder, cache=cache, limit=limit
        )
        files = counting.all(progress)
    failures = [failure for file in files for failure in file.failures]
    records = [record for file in files for record in file.records]
    if not records:
        raise ModelError(f"{failures[-1].message} ({failures[-1].kind}, at stage {failures[-1].stage})")
    devices = {} if machine.device is None else {machine.device.name: machine.device}
    found = RecordSet(records, devices=devices, failures=failures, environment=files[0].environment)
    return (
        found
        if beside is None
        else RecordSet((*beside.records, *records), devices=devices, failures=failures, environment=found.environment)
    )


def count_program(
    program: Sequence[str],
    *,
    cache: str = "all",
    limit: float = LIMIT,
    roof: str | Device | None = None,
    keep: str | Path | None = None,
    progress: Progress | None = None,
    echo: Callable[[str], None] | None = None,
) -> RecordSet:
    """Count FLOP and bytes of every kernel of one step of a program; twin of ``rooflens counters -- PROGRAM``.

    The step is what lies between ``torch.cuda.profiler.start()`` and ``stop()``, or the first iteration of a
    :func:`rooflens.region` after those that it skips. No switch of the program is set. Times are ncu's own, of replayed
    kernels.

    Args:
        program: the command line.
        echo: given each line that the program prints.
        (others): as in :func:`counters`.

    Returns:
        A record per launch; with ranges of operations and modules (a region makes them) also its operation, module and
        phase.

    Raises:
        CountersUnavailable: ncu is missing or locked, or the program marked no step.
    """
    from rooflens.sources.counters import ncu

    _check(cache, limit)
    machine = this_machine(None, roof, progress)
    if machine.where != "cuda":
        raise CountersUnavailable(NO_GPU)
    tool = ncu.find()
    case = Case(model=_named(program), device=machine.name, dtype=AS_IS)
    with tempfile.TemporaryDirectory(prefix="rooflens-") as scratch:
        folder = Path(keep) if keep is not None else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        report = folder / f"{_stem(case)}.ncu-rep"
        done = ncu.collect(
            tool.command(ncu.metric_set(_capability(), AS_IS), report, cache=cache, program=program),
            report,
            limit=limit,
            progress=progress,
            echo=echo,
            environment={COUNTERS: "1"},
        )
        records = [replayed(record) for record in _read(tool, done, case)]
    notes = _how(tool, done, len(records), None, cache)
    records[0] = replace(records[0], notes=(*records[0].notes, *notes))
    devices = {} if machine.device is None else {machine.device.name: machine.device}
    return RecordSet(records, devices=devices, environment=environment.capture())


def _named(program: Sequence[str]) -> str:
    """What a program is called: its first argument that is no option, without folder; else the program itself."""
    words = [word for word in program[1:] if not word.startswith("-")]
    return Path(words[0] if words else program[0]).stem


def _check(cache: str, limit: float) -> None:
    from rooflens.sources.counters.ncu import CACHES

    if cache not in CACHES:
        raise InvalidValue(f"unknown cache control {cache!r}; known: {', '.join(CACHES)}")
    if limit <= 0:
        raise InvalidValue(f"a time limit of {limit} s leaves no time to count; give more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counting:
    """What the cells of one call share."""

    words: Mapping[str, Any]
    asked: Request
    machine: Machine
    folder: Path
    cache: str
    limit: float

    def all(self, progress: Progress | None) -> list[RecordFile]:
        """What came of every case."""
        cases = self.asked.cases(self.machine.name)
        setup = {"where": self.machine.where, "command": sys.argv}
        found = []
        # A fresh worker for each: what it holds of the card would be missing where ncu runs the model.
        with isolation.Workers("rooflens.api.under_profiler", setup, limit=self.limit, fresh=True) as workers:
            for n, case in enumerate(cases):

                def tell(share: float, what: str, n: int = n, case: Case = case) -> None:
                    if progress is not None:
                        progress((n + share) / len(cases), f"{case.label()}: {what}")

                found.append(self._one(case, workers, tell))
        return found

    def _one(self, case: Case, workers: isolation.Workers, progress: Progress) -> RecordFile:
        stem = self.folder / _stem(case)
        trace, out = stem.with_name(f"{stem.name}.trace.json"), stem.with_name(f"{stem.name}.profile.jsonl")
        cell = self._cell(case) | {"trace": str(trace), "out": str(out)}
        answer = workers.run(cell, lambda said: progress(0.0, said.get("stage", "")))
        if isinstance(answer, isolation.Lost):
            lost = Failure(case=case, source="counters", stage=answer.stage, kind=answer.kind, message=answer.message)
            return RecordFile(records=(), failures=(lost,), environment=environment.capture())
        timed = read_records(out)
        out.unlink()
        if timed.failures:
            return replace(timed, failures=tuple(replace(f, source="counters") for f in timed.failures))
        try:
            found = self._counted(case, cell, stem, trace, progress)
        except (CountersUnavailable, FileError) as error:
            found = _marked(timed.records, str(error))
        return replace(timed, records=tuple(found))

    def _cell(self, case: Case) -> dict[str, Any]:
        return {
            "words": dict(self.words) | {"batch": case.batch, "how": asdict(self.asked.how)},
            "device": self.machine.name,
        }

    def _counted(
        self, case: Case, cell: Mapping[str, Any], stem: Path, trace: Path, progress: Progress
    ) -> list[Record]:
        import msgspec

        from rooflens.sources import profile
        from rooflens.sources.counters import ncu

        if self.machine.where != "cuda":
            raise CountersUnavailable(NO_GPU)
        tool = ncu.find()
        events = profile.read_trace(trace)
        shares = profile.attribute(events, profile.outside(case.mode == "train"))
        kernels = sum(share.activity is not None and share.activity.kind == "kernel" for share in shares)
        job, report = stem.with_name(f"{stem.name}.job.json"), stem.with_name(f"{stem.name}.ncu-rep")
        job.write_bytes(msgspec.json.encode(dict(cell)))
        program = [sys.executable, "-m", "rooflens.api.under_profiler", str(job)]
        metrics = ncu.metric_set(_capability(), case.dtype)
        try:
            done = ncu.collect(
                tool.command(metrics, report, cache=self.cache, program=program),
                report,
                limit=self.limit,
                expected=kernels,
                progress=lambda share, what: progress(TIMED + (1 - TIMED) * share, what),
                environment={"PYTHONPATH": isolation.search_path()},
            )
        finally:
            job.unlink()
        first, *others = joined(tool, done, case, shares, kernels, self.cache)
        return [replace(first, notes=(*first.notes, *events.notes)), *others]


def _read(tool: Tool, done: Collected, case: Case) -> list[Record]:
    """The launches in a report."""
    from rooflens.sources import counters as source

    contents = source.contents(repr(str(done.report)))
    with tool.printed(done.report) as lines:
        found = source.found_in(source.parse(lines, contents), contents, lambda _: case)
    return list(found.records)


def joined(tool: Tool, done: Collected, case: Case, shares: Iterable[Share], kernels: int, cache: str) -> list[Record]:
    """The launches in a report, with time and place of the same launches in the run that was timed."""
    counted = [replace(record, case=case) for record in _read(tool, done, case)]
    first, *others = attributed(counted, shares, whole=done.whole)
    notes = (*_how(tool, done, len(counted), kernels, cache), "times are of another run, which was not replayed")
    return [replace(first, notes=(*first.notes, *notes)), *others]


def _how(tool: Tool, done: Collected, launches: int, kernels: int | None, cache: str) -> list[str]:
    """How it was counted, and whether some is missing."""
    passes = f", {done.passes} passes per kernel" if done.passes else ""
    state = "emptied before each kernel" if cache == "all" else "left as earlier kernels left them"
    notes = [f"counted by ncu {tool.version}{passes}; caches {state}"]
    if not done.whole:
        of = "" if kernels is None else f" of {kernels}"
        why = "the time limit was over" if done.stopped else "; ".join(done.said) or f"ncu ended with code {done.code}"
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
    from rooflens.devices.files import slug

    return slug(f"{case.model[-60:]} b{case.batch} {case.dtype} {case.mode}")
