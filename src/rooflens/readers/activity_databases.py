"""Exports of Nsight Systems: kernels and copies."""

from __future__ import annotations

from pathlib import Path

from rooflens.readers.reader import ReadContext, Reader
from rooflens.records import AS_IS, Case, Device
from rooflens.results import RecordSet
from rooflens.sources.profile import nsys


def _read(path: Path, context: ReadContext) -> RecordSet:
    """Where several GPUs did something, each has a case."""
    export = nsys.read_export(path)
    several = len(nsys.cards_of(export)) > 1
    devices: dict[str, Device] = {}

    def case_of(card: int | None) -> Case:
        title = None if card is None else export.titles.get(card)
        device = context.device_of(title)
        if device is not None:
            devices[device.name] = device
        options = (("gpu", -1 if card is None else card),) if several else ()
        return Case(model=context.name, device=context.device_name(title), dtype=AS_IS, options=options)

    return RecordSet(nsys.records_of(export, case_of), devices=devices)


NSYS = Reader(
    name="Nsight Systems",
    reads="exports of Nsight Systems (.sqlite)",
    recognises=lambda head: head.startswith(nsys.MAGIC),
    read=_read,
)
