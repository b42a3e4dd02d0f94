"""The list of readers, and which of them reads a file."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from rooflens.errors import FileError, InvalidValue, UnknownFormat
from rooflens.opening import head
from rooflens.plugins import READERS, plugins
from rooflens.readers.activity_databases import NSYS
from rooflens.readers.counter_files import NCU_REPORTS, NCU_TEXT
from rooflens.readers.nvprof_files import NVPROF
from rooflens.readers.profiler_traces import TRACES
from rooflens.readers.reader import ReadContext, Reader
from rooflens.readers.record_files import RECORDS
from rooflens.readers.rocprof_files import ROCPROF, ROCPROF3, is_folder, read_folder
from rooflens.readers.roof_files import ERT, NERSC, ROCPROF_ROOFS
from rooflens.readers.time_tables import TIME_TABLES
from rooflens.readers.unread_files import EMPTY, verdict
from rooflens.records import is_record_file
from rooflens.results import RecordSet

_BY_SIGN = (RECORDS, NSYS, NCU_REPORTS, ERT, NERSC, ROCPROF_ROOFS, NVPROF, TIME_TABLES, ROCPROF, ROCPROF3)
_BY_FORM = (TRACES, NCU_TEXT)
"""These recognise any JSON, any text: they are asked after the readers of other packages."""


@cache
def readers() -> tuple[Reader, ...]:
    """Return all readers in the order in which they are asked: ours and those of other packages."""
    return (*_BY_SIGN, *plugins(READERS, _checked), *_BY_FORM)


def read_file(path: Path, context: ReadContext) -> RecordSet:
    """Return the records of a file by the first reader that recognises it.

    Raises:
        UnknownFormat: no reader does; the message says what the file seems to be, and lists what is read.
        FileError: the file cannot be opened, or is damaged.
    """
    if is_record_file(path):  # damaged or not
        return RECORDS.read(path, context)
    if is_folder(path):
        return read_folder(path, context)
    if os.path.isdir(path):
        raise FileError(
            f"the folder {str(path)!r} holds no record files (*.jsonl), and is neither the folder of a study nor one of"
            " rocprof-compute"
        )
    start = head(path)
    reasons = []
    for reader in readers():
        if reader.recognises(start):
            try:
                return _usable(reader.read(path, context), path)
            except UnknownFormat as error:
                if reader is not NCU_TEXT:  # that takes any text
                    reasons.append(str(error).removeprefix(f"{str(path)!r} "))
            except InvalidValue as error:  # of a case that the file tells of
                raise FileError(f"{str(path)!r} tells what cannot be: {error}") from error
    said = "; ".join([verdict(start, path.suffix.lower()), *reasons])
    known = f"; rooflens reads {', '.join(reader.reads for reader in readers())}"
    raise UnknownFormat(f"{str(path)!r} {said}{'' if said == EMPTY else known}")


def _usable(records: RecordSet, path: Path) -> RecordSet:
    """The records, if any tells more than notes; or the set describes devices only."""
    useful = any(r.work or r.timing or r.busy or r.memory or r.parameters for r in records)
    if not useful and (records.records or not (records.devices or records.failures)):
        raise FileError(
            f"{str(path)!r} holds nothing that can be used: {'; '.join(records.notes) or 'no number at all'}"
        )
    return records


def _checked(plugin: object) -> Reader:
    if not isinstance(plugin, Reader):
        raise TypeError(f"it names {plugin!r}, which is no rooflens.readers.Reader")
    return plugin
