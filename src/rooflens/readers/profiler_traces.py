"""Traces of PyTorch's profiler: time by operation and module."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from rooflens.devices import by_title
from rooflens.opening import head
from rooflens.readers.reader import ReadContext, Reader
from rooflens.records import AS_IS, Case, Device
from rooflens.results import RecordSet
from rooflens.sources import profile

_NCU_PROCESS = re.compile(rb"\[\d+\] \S")
"""How a text page of ncu begins: the number of a process."""
_PROPERTIES = re.compile(rb'"deviceProperties"\s*:\s*\[([^\]]{0,60000})')
_NAME = re.compile(rb'"name"\s*:\s*"([^"]{1,200})"')


def _recognises(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith((b"{", b"[")) and not _NCU_PROCESS.match(text)


def _read(path: Path, context: ReadContext) -> RecordSet:
    device = context.device or _device(head(path))
    events = profile.read_trace(path)
    case = Case(model=context.name, device=None if device is None else device.name, dtype=AS_IS)
    records = list(profile.records_of(profile.attribute(events), case, events.notes))
    if any(record.phase in ("backward", "optimizer") for record in records):
        records = [replace(record, case=replace(case, mode="train")) for record in records]
    return RecordSet(records, devices={} if device is None else {device.name: device})


def _device(head: bytes) -> Device | None:
    """The device with which a trace begins, if all of its devices are of one kind and the catalogue has it."""
    described = _PROPERTIES.search(head)
    names = set() if described is None else set(_NAME.findall(described[1]))
    return by_title(names.pop().decode(errors="replace"), "gpu") if len(names) == 1 else None


TRACES = Reader(name="trace", reads="traces of PyTorch's profiler (.json)", recognises=_recognises, read=_read)
