"""Compare what rocprof's files give with the numbers that stand in them."""

from __future__ import annotations

import math
import re
import shutil

from scripts.fuzzing import FOLDER

from rooflens.readers.reader import ReadContext
from rooflens.readers.rocprof_files import read_folder
from rooflens.records import Case
from rooflens.sources.counters import rocprof, rocprof_records

_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_FILES = re.compile(rb"^=== (pmc_perf\.csv|timestamps\.csv|sysinfo\.csv)\n", re.MULTILINE)


def table(data: bytes) -> None:
    """Every counter of a dispatch stands in a cell, and every time is one, or the difference of two."""
    path = FOLDER / "results.csv"
    path.write_bytes(data)
    file = rocprof.read_dispatches(path)
    _holds(data, file)
    list(rocprof_records.records_of(file, lambda gpu: Case(model="fuzz", options=(("gpu", gpu),))))


def folder(data: bytes) -> None:
    """The same of a folder of rocprof-compute: each file stands behind a line with its name."""
    place = FOLDER / "compute"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    _, *parts = _FILES.split(data)
    for name, content in zip(parts[::2], parts[1::2], strict=True):
        (place / name.decode()).write_bytes(content)
    found = read_folder(place, ReadContext(name="fuzz"))
    cells = {float(match) for match in _NUMBER.findall(data.decode("utf-8-sig", errors="replace"))}
    for record in found if len(cells) < 300 else ():
        if record.timing is not None:
            _lasts(record.timing.median * 1e9, cells)


def _holds(data: bytes, file: rocprof.DispatchFile) -> None:
    cells = {float(match) for match in _NUMBER.findall(data.decode("utf-8-sig", errors="replace"))}
    for dispatch in file.dispatches:
        for value in dispatch.counters.values():
            if float(value) not in cells:
                raise AssertionError(f"{value} stands nowhere in the file")
        if dispatch.seconds is not None and len(cells) < 300:
            _lasts(dispatch.seconds * 1e9, cells)


def _lasts(nanoseconds: float, cells: set[float]) -> None:
    if not any(math.isclose(nanoseconds, one - two, rel_tol=1e-6) for one in cells for two in (*cells, 0.0)):
        raise AssertionError(f"{nanoseconds} ns are between no two numbers of the file")
