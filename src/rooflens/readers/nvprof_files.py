"""What nvprof printed as CSV."""

from __future__ import annotations

from pathlib import Path

from rooflens.readers.reader import ReadContext, Reader
from rooflens.records import AS_IS, Case, Device
from rooflens.results import RecordSet
from rooflens.sources.profile.nvprof import is_nvprof, nvprof_records, read_nvprof


def _read(path: Path, context: ReadContext) -> RecordSet:
    devices: dict[str, Device] = {}

    def case_of(title: str | None, number: int | None) -> Case:
        device = context.device_of(title)
        if device is not None:
            devices[device.name] = device
        options = () if number is None else (("gpu", number),)
        return Case(model=context.name, device=context.device_name(title), dtype=AS_IS, options=options)

    return RecordSet(list(nvprof_records(read_nvprof(path), case_of)), devices=devices)


NVPROF = Reader(name="nvprof", reads="what nvprof prints as CSV", recognises=is_nvprof, read=_read)
