"""What nvprof printed as CSV."""

from __future__ import annotations

from pathlib import Path

from rooflens.readers.reader import FoundCases, ReadContext, Reader
from rooflens.results import RecordSet
from rooflens.sources.profile.nvprof import is_nvprof, nvprof_records, read_nvprof


def _read(path: Path, context: ReadContext) -> RecordSet:
    cases = FoundCases(context)
    return RecordSet(list(nvprof_records(read_nvprof(path), cases.of)), devices=cases.devices)


NVPROF = Reader(name="nvprof", reads="what nvprof prints as CSV", recognises=is_nvprof, read=_read)
