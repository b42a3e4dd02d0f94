"""The list of readers, and which of them reads a file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rooflens.errors import UnknownFormat
from rooflens.opening import head
from rooflens.plugins import READERS, plugins
from rooflens.readers.activity_databases import NSYS
from rooflens.readers.counter_files import NCU_REPORTS, NCU_TEXT
from rooflens.readers.nvprof_files import NVPROF
from rooflens.readers.profiler_traces import TRACES
from rooflens.readers.reader import ReadContext, Reader
from rooflens.readers.record_files import RECORDS
from rooflens.readers.rocprof_files import ROCPROF, ROCPROF3, is_folder, read_folder
from rooflens.readers.roof_files import ERT, NERSC
from rooflens.results import RecordSet

_BY_SIGN = (RECORDS, NSYS, NCU_REPORTS, ERT, NERSC, ROCPROF, ROCPROF3, NVPROF)
_BY_FORM = (TRACES, NCU_TEXT)
"""These recognise any JSON, any text: they are asked after the readers of other packages."""
_RECORD_SUFFIX = ".jsonl"
_NOT_READ = (
    (b"PK\x03\x04", "is an archive: unpack it"),
    (b"\x89HDF", "is an HDF5 file, which is not read"),
    (b"%PDF", "is a PDF, which is not read"),
)


@cache
def readers() -> tuple[Reader, ...]:
    """Return all readers in the order in which they are asked: ours and those of other packages."""
    return (*_BY_SIGN, *plugins(READERS, _checked), *_BY_FORM)


def read_file(path: Path, context: ReadContext) -> RecordSet:
    """Return the records of a file by the first reader that recognises it.

    Raises:
        UnknownFormat: no reader does; the message lists what is read.
        FileError: the file cannot be opened, or is damaged.
    """
    if path.suffix.lower() == _RECORD_SUFFIX:  # damaged or not
        return RECORDS.read(path, context)
    if is_folder(path):
        return read_folder(path, context)
    start = head(path)
    reasons = [f"{str(path)!r} {why}" for sign, why in _NOT_READ if start.startswith(sign)]
    if not start.removeprefix(b"\xef\xbb\xbf").strip():
        reasons.append(f"{str(path)!r} is empty")
    for reader in readers() if not reasons else ():
        if reader.recognises(start):
            try:
                return reader.read(path, context)
            except UnknownFormat as error:
                reasons.append(str(error))
    reason = reasons[0] if reasons else f"{str(path)!r} is no text"
    raise UnknownFormat(f"{reason}; rooflens reads {', '.join(reader.reads for reader in readers())}")


def _checked(plugin: object) -> Reader:
    if not isinstance(plugin, Reader):
        raise TypeError(f"it names {plugin!r}, which is no rooflens.readers.Reader")
    return plugin
