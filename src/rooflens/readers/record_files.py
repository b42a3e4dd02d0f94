"""Record files: what rooflens itself wrote."""

from __future__ import annotations

from pathlib import Path

from rooflens.readers.reader import ReadContext, Reader
from rooflens.results import RecordSet


def _recognises(head: bytes) -> bool:
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0].replace(b" ", b"")
    return first.startswith(b"{") and b'"type":"header"' in first


def _read(path: Path, _: ReadContext) -> RecordSet:
    return RecordSet.load(path)


RECORDS = Reader(name="records", reads="its own records (.jsonl)", recognises=_recognises, read=_read)
