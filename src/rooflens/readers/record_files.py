"""Record files: what rooflens itself wrote."""

from __future__ import annotations

from rooflens.readers.reader import Reader
from rooflens.results import RecordSet


def _recognises(head: bytes) -> bool:
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0].replace(b" ", b"")
    return first.startswith(b"{") and b'"type":"header"' in first


RECORDS = Reader(
    name="records",
    reads="its own records (.jsonl)",
    recognises=_recognises,
    read=lambda path, _: RecordSet.load(path),
)
