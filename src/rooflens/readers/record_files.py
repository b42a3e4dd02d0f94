"""Record files: what rooflens itself wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rooflens.devices import catalogued_or_none
from rooflens.errors import RecordFileError
from rooflens.opening import text_of
from rooflens.readers.reader import ReadContext, Reader
from rooflens.records import Case, Device, RecordFile, read_records
from rooflens.results import RecordSet


def _recognises(head: bytes) -> bool:
    first = text_of(head).lstrip().partition("\n")[0].replace(" ", "")
    return first.startswith("{") and '"type":"header"' in first


def _read(path: Path, context: ReadContext) -> RecordSet:
    """The records, the first with what is doubtful about the file; roofs alone are a file that promises no record."""
    file = read_records(path)
    if not file.records and not file.failures and (file.doubts or not file.devices):
        raise RecordFileError(
            f"{path} holds no record: only its header is there. Copy it again, or run again what wrote it"
        )
    device = context.device_of(None)
    file, told = _with_known_devices(file) if device is None else _on_device(file, device)
    notes = (*file.doubts, *told)
    if not file.records or not notes:
        return RecordSet.of(file)
    first, *others = file.records
    return RecordSet.of(replace(file, records=(replace(first, notes=(*first.notes, *notes)), *others)))


def _named_devices(file: RecordFile) -> set[str | None]:
    """What the cases of a file call their devices; None where one names none."""
    cases = [*(record.case for record in file.records), *(failure.case for failure in file.failures)]
    return {case.device for case in cases}


def _on_device(file: RecordFile, device: Device) -> tuple[RecordFile, list[str]]:
    """The file with the ceilings of a device that its user names, if all of it is of one device, and a note."""
    names = _named_devices(file)
    if len(names) > 1:
        told = ", ".join(sorted(name or "none" for name in names))
        return file, [f"the cases are of several devices ({told}), so they keep these"]
    (name,) = names or {device.name}
    others = name not in (None, device.name)
    notes = [f"the ceilings are those of {device.name}; the file has those of {name}"] if others else []
    moved = file.with_cases(lambda case: replace(case, device=device.name))
    return replace(moved, devices={**file.devices, device.name: device}), notes


def _with_known_devices(file: RecordFile) -> tuple[RecordFile, list[str]]:
    """The file with devices of the catalogue that its cases name and its header lacks, under their own names."""
    named = _named_devices(file) - {None, *file.devices}
    found = {name: device for name in sorted(filter(None, named)) if (device := catalogued_or_none(name)) is not None}
    if not found:
        return file, []

    def cased(case: Case) -> Case:
        return replace(case, device=found[case.device].name) if case.device in found else case

    devices = {**file.devices, **{device.name: device for device in found.values()}}
    return replace(file.with_cases(cased), devices=devices), [
        f"{name} of the file is taken for {device.name}" for name, device in found.items() if name != device.name
    ]


RECORDS = Reader(name="records", reads="its own records (.jsonl)", recognises=_recognises, read=_read)
