"""A report as launches: its outline is read here, its results by a process that may fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from rooflens.errors import FileError, installing
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.counters.metrics import kind_of, rollup_of
from rooflens.sources.counters.printed_numbers import CounterValue, UnitKind, power_of, scaled
from rooflens.sources.counters.reports.outline import Outline, outline_of
from rooflens.sources.counters.reports.protocol import Opened, ReportAnswer, ReportRequest, ReportResult
from rooflens.sources.counters.value_doubts import ValueDoubts

SECONDS = 300.0
"""For one process, its start included."""
_CHILD = "rooflens.sources.counters.reports.child"
_BATCH_BYTES, _BATCH_RESULTS = 32 * 2**20, 4096
"""Of results that one process reads. The library takes 8 to 25 times as much memory for them, and gives none back."""
_MEMORY = 4 * 2**30
"""Bytes of address space of one process, besides the file."""
_MOST_CHARACTERS = 4 * 2**20
"""Of one line."""
_ADVICE = "print it with 'ncu -i FILE --csv --page raw --print-units base', and read what that prints"


def launches_of(
    path: Path, where: str, doubts: ValueDoubts, *, child: str = _CHILD, limit: float = SECONDS
) -> Iterator[KernelLaunch]:
    """Give the launches of a report, process after process, as ncu numbers them when it prints.

    Args:
        where: the file in errors.
        doubts: counts what is missing or impossible in the values.
        child: the module that reads the report, run with ``python -m``.
        limit: seconds for a process that reads; it is killed after that.

    Raises:
        FileError: the package ncu-report is missing; the report holds no launch, was cut off, is damaged or newer than
            the package; or reading it failed or took too long.
    """
    outline = outline_of(path, where)
    if not outline.sizes:
        raise FileError(f"{where} holds no launch of a kernel: ncu measured none")
    number = 0
    for batch in _batches(outline):
        with _Child(path, where, batch, child, limit) as reader:
            _check(reader.opened(), outline, where)
            for result in reader.results():
                number += 1
                yield _launch(result, number, outline.processes[batch[0]], doubts, where)


def _batches(outline: Outline) -> Iterator[list[int]]:
    """The results in their order, of one process each and no more than one process should read."""
    batch: list[int] = []
    size = 0
    for result in outline.ordered():
        other = batch and outline.processes[batch[0]] != outline.processes[result]
        if other or size >= _BATCH_BYTES or len(batch) >= _BATCH_RESULTS:
            yield batch
            batch, size = [], 0
        batch.append(result)
        size += outline.sizes[result]
    yield batch


def _check(opened: Opened, outline: Outline, where: str) -> None:
    """Raise FileError if the package does not read all of this report."""
    installed = _numbers(opened.package)
    if outline.version is not None and installed is not None and outline.version > installed:
        raise FileError(
            f"{where} is of Nsight Compute {'.'.join(map(str, outline.version))}, and ncu-report {opened.package} reads"
            f" reports of its own version and before: pip install -U ncu-report; or {_ADVICE}"
        )
    if opened.results != len(outline.sizes):
        raise FileError(
            f"{where} holds {len(outline.sizes)} launches and ncu-report {opened.package or ''} finds {opened.results}:"
            f" it is damaged, or newer than the package (pip install -U ncu-report); else {_ADVICE}"
        )


def _numbers(version: str | None) -> tuple[int, int] | None:
    parts = (version or "").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal() else None


class _Child:
    """A process that reads some of the results."""

    def __init__(self, path: Path, where: str, batch: Sequence[int], module: str, limit: float) -> None:
        import msgspec

        self._where, self._limit, self._left = where, limit, len(batch)
        self._decode = msgspec.json.Decoder(ReportAnswer).decode
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        # What this process can import, the other can too.
        search = os.pathsep.join(dict.fromkeys(filter(None, (os.getcwd() if p == "" else p for p in sys.path))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(path.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": search},
        )
        self._expired = threading.Event()
        self._timer = threading.Timer(limit, self._expire)
        self._timer.daemon = True
        self._timer.start()
        request = ReportRequest(results=list(batch), memory=_MEMORY + path.stat().st_size)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: there will be no answer
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.close()

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(BrokenPipeError):  # something unsent was left in it
                    pipe.close()

    def opened(self) -> Opened:
        """Return its first answer."""
        answer = self._answer()
        if answer.opened is None:
            raise self._failure("it gave a result before it had opened the report")
        return answer.opened

    def results(self) -> Iterator[ReportResult]:
        """Give every result that it was asked for."""
        while not (answer := self._answer()).done:
            if answer.told is None or not self._left:
                raise self._failure("it gave what it was not asked for")
            self._left -= 1
            yield answer.told
        if self._left:
            raise self._failure(f"it left {self._left} launches out")

    def _expire(self) -> None:
        self._expired.set()
        self._process.kill()

    def _answer(self) -> ReportAnswer:
        import msgspec

        assert self._process.stdout is not None
        line = self._process.stdout.readline(_MOST_CHARACTERS)
        if not line.endswith(b"\n"):
            raise self._failure(self._ending() if len(line) < _MOST_CHARACTERS else "its answer does not end")
        try:
            answer = self._decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._failure(f"its answer makes no sense ({error})") from error
        if answer.lacking:
            raise FileError(
                f"{self._where} is a report of Nsight Compute, and the package that reads it cannot be imported"
                f" ({answer.lacking}): {installing('ncu')}; or {_ADVICE}"
            )
        if answer.failed:
            raise self._failure(answer.failed)
        return answer

    def _failure(self, why: str) -> FileError:
        return FileError(f"{self._where} cannot be read by ncu-report: {why}; the file may be damaged; or {_ADVICE}")

    def _ending(self) -> str:
        """The way in which the process ended."""
        if self._expired.is_set():
            return f"it was not done after {self._limit:g} s and was killed"
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "it closed its output and went on"
        killed = -code in set(signal.Signals)
        return (
            f"it was killed by {signal.Signals(-code).name}" if killed else f"it ended with {code}"
        ) + self._last_words()

    def _last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read(2**20).decode(errors="replace").split("\n") if line.strip()]
        return f" ({lines[-1][:300]})" if lines else ""


def _launch(result: ReportResult, number: int, process: int, doubts: ValueDoubts, where: str) -> KernelLaunch:
    """A result as a launch."""
    launch = KernelLaunch(
        line=number,
        key=(str(process), str(number), result.device),
        name=result.name,
        device=result.device,
        ranges=result.ranges,
        facts=result.facts,
    )
    for metric, (unit, value) in result.values.items():
        if (kind := kind_of(metric)) is not None:
            launch.add(metric, _value(metric, kind, (unit, value), doubts, f"{where}, launch {number}"))
        if unit == "%" and value is not None:
            doubts.percent(metric, value)
    return launch


def _value(
    metric: str, kind: UnitKind, answer: tuple[str, int | float | None], doubts: ValueDoubts, where: str
) -> CounterValue:
    """In its base unit."""
    unit, value = answer
    if value is None:
        doubts.missing(metric)
        return None
    if value < 0:
        doubts.below_zero(metric)
        return None
    power = power_of(unit, kind)
    if power is None and rollup_of(metric) is not None:  # a form of a counter that can be done without
        return None
    if power is None:
        raise FileError(f"{where}: {metric} cannot have the unit {unit!r}; {_ADVICE}")
    return scaled(str(value), power)
