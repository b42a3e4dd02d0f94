"""Tables of kernel times: what nsys stats and rocprof write as CSV."""

from __future__ import annotations

from pathlib import Path

from rooflens.opening import opened_lines
from rooflens.readers.reader import ReadContext, Reader
from rooflens.records import AS_IS, Case, Device
from rooflens.results import RecordSet
from rooflens.sources.profile import kernel_times


def _read(path: Path, context: ReadContext) -> RecordSet:
    """Where a table tells several devices, each has a case."""
    with opened_lines(path) as lines:
        times = kernel_times.read_tables(lines, repr(str(path)))
    cards = list(dict.fromkeys(each.device for each in times.launches)) or list(
        dict.fromkeys(each.card for each in times.sums)
    )
    devices: dict[str, Device] = {}

    def case_of(card: int | None) -> Case:
        title = times.titles.get(card)
        device = context.device_of(title)
        if device is not None:
            devices[device.name] = device
        options = (("gpu", -1 if card is None else card),) if len(cards) > 1 else ()
        return Case(model=context.name, device=context.device_name(title), dtype=AS_IS, options=options)

    return RecordSet(
        [record for card in cards for record in kernel_times.records_of(times, case_of(card), card)], devices=devices
    )


TIME_TABLES = Reader(
    name="kernel times",
    reads="kernel times of nsys stats, rocprof and rocprofv3 (.csv)",
    recognises=kernel_times.is_time_table,
    read=_read,
)
