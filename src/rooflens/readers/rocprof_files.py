"""What rocprof 1, 2 and 3 and rocprof-compute counted on AMD GPUs."""

from __future__ import annotations

import csv
import os
from itertools import islice
from pathlib import Path

from rooflens.errors import FileError, UnknownFormat
from rooflens.opening import read_text
from rooflens.readers.reader import FoundCases, ReadContext, Reader
from rooflens.results import RecordSet
from rooflens.sources.counters import rocprof
from rooflens.sources.counters.rocprof_records import records_of

_COUNTERS, _TIMES, _SYSTEM = "pmc_perf.csv", "timestamps.csv", "sysinfo.csv"
"""Files of a folder of rocprof-compute; only these are opened in it."""


def _read(path: Path, context: ReadContext) -> RecordSet:
    return _records(rocprof.read_dispatches(path), context, None)


def _records(file: rocprof.DispatchFile, context: ReadContext, title: str | None) -> RecordSet:
    """Where several GPUs ran kernels, each has a case."""
    several, cases = len(list(rocprof.gpus_of(file))) > 1, FoundCases(context)
    records = list(records_of(file, lambda gpu: cases.of(title, gpu if several else None)))
    return RecordSet(records, devices=cases.devices)


def is_folder(path: Path) -> bool:
    """True for a folder of rocprof-compute."""
    return os.path.isdir(path) and any((path / name).exists() for name in (_COUNTERS, f"{_COUNTERS}.gz", _SYSTEM))


def read_folder(path: Path, context: ReadContext) -> RecordSet:
    """Return the counters of a folder of rocprof-compute, with its times and the name of its GPU.

    Raises:
        UnknownFormat: it has no merged counters.
        FileError: a file in it is damaged.
    """
    packed = path / f"{_COUNTERS}.gz"
    counters, times, system = (path / name for name in (_COUNTERS, _TIMES, _SYSTEM))
    counters = packed if packed.exists() and not counters.exists() else counters
    if not counters.exists():
        raise UnknownFormat(
            f"{str(path)!r} is a folder of rocprof-compute without {_COUNTERS}; 'rocprof-compute analyze -p' makes that"
            " out of the passes"
        )
    file = rocprof.read_dispatches(counters)
    if times.exists() and all(dispatch.seconds is None for dispatch in file.dispatches):
        file = rocprof.with_times(file, rocprof.read_dispatches(times))
    return _records(file, context, _title(system) if system.exists() else None)


def _title(system: Path) -> str | None:
    """The GPU that a folder was recorded on: AMD's tool says ``MI300X_A1``, and drivers ``AMD Instinct MI300X``."""
    try:
        rows = list(islice(csv.reader(read_text(system).splitlines()), 2))
    except csv.Error as error:
        raise FileError(f"{str(system)!r}: {error}; the file is damaged") from error
    row = dict(zip(*rows, strict=False)) if len(rows) > 1 else {}
    model = row.get("gpu_model", "").partition("_")[0]
    return f"AMD Instinct {model}" if model else None


ROCPROF = Reader(
    name="rocprof",
    reads="counters of rocprof 1 and 2 and of rocprof-compute (.csv)",
    recognises=lambda head: rocprof.is_wide(rocprof.first_row(head)),
    read=_read,
)
ROCPROF3 = Reader(
    name="rocprof 3",
    reads="counters of rocprofv3 (.csv)",
    recognises=lambda head: rocprof.is_long(rocprof.first_row(head)),
    read=_read,
)
