"""Tables of kernel times: what nsys stats and rocprof write as CSV."""

from __future__ import annotations

from pathlib import Path

from rooflens.opening import opened_lines
from rooflens.readers.reader import FoundCases, ReadContext, Reader, numbered
from rooflens.records import Record
from rooflens.results import RecordSet
from rooflens.sources.profile import kernel_times


def _read(path: Path, context: ReadContext) -> RecordSet:
    """Where a table tells several devices, each has a case."""
    with opened_lines(path) as lines:
        times = kernel_times.read_tables(lines, repr(str(path)))
    cards = list(dict.fromkeys(each.device for each in times.launches)) or list(
        dict.fromkeys(each.card for each in times.sums)
    )
    found, records = FoundCases(context), list[Record]()
    for card in cards:
        case = found.of(times.titles.get(card), numbered(card, several=len(cards) > 1))
        records += kernel_times.records_of(times, case, card)
    return RecordSet(records, devices=found.devices)


TIME_TABLES = Reader(
    name="kernel times",
    reads="kernel times of nsys stats, rocprof and rocprofv3 (.csv)",
    recognises=kernel_times.is_time_table,
    read=_read,
)
