"""Record files: what rooflens itself wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rooflens.errors import RecordFileError
from rooflens.opening import text_of
from rooflens.readers.reader import ReadContext, Reader
from rooflens.records import read_records
from rooflens.results import RecordSet


def _recognises(head: bytes) -> bool:
    first = text_of(head).lstrip().partition("\n")[0].replace(" ", "")
    return first.startswith("{") and '"type":"header"' in first


def _read(path: Path, _: ReadContext) -> RecordSet:
    """The records, the first with what is doubtful about the file; roofs alone are a file that promises no record."""
    file = read_records(path)
    if not file.records and not file.failures and (file.doubts or not file.devices):
        raise RecordFileError(
            f"{path} holds no record: only its header is there. Copy it again, or run again what wrote it"
        )
    if not file.records or not file.doubts:
        return RecordSet.of(file)
    first, *others = file.records
    return RecordSet.of(replace(file, records=(replace(first, notes=(*first.notes, *file.doubts)), *others)))


RECORDS = Reader(name="records", reads="its own records (.jsonl)", recognises=_recognises, read=_read)
