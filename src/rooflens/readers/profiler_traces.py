"""Traces of PyTorch's profiler: time by operation and module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rooflens.opening import head, text_of
from rooflens.readers.reader import FoundCases, ReadContext, Reader, numbered
from rooflens.records import AS_IS, Case, Record, is_training
from rooflens.results import RecordSet
from rooflens.sources import profile
from rooflens.units import show

_NCU_PROCESS = re.compile(rb"\[\d+\] \S")
"""How a text page of ncu begins: the number of a process."""
_PROPERTIES = re.compile(rb'"deviceProperties"\s*:\s*\[([^\]]{0,60000})')
_DEVICE = re.compile(rb"\{[^{}]{0,4000}\}")
_NUMBER = re.compile(rb'"id"\s*:\s*(\d{1,4})\b')
_NAME = re.compile(rb'"name"\s*:\s*"([^"]{1,200})"')
_OF_HOST = "the file holds no kernel: times are those that the host spent in operations, and tell nothing of a GPU"


def _recognises(head: bytes) -> bool:
    text = text_of(head).lstrip().encode()
    return text.startswith((b"{", b"[")) and not _NCU_PROCESS.match(text)


def _read(path: Path, context: ReadContext) -> RecordSet:
    """Where several GPUs did something, each has a case; time of the host alone is of no GPU."""
    events = profile.read_trace(path)
    shares, cases = profile.attribute(events), FoundCases(context)
    if not events.activities:
        cpu = context.device if context.device is not None and context.device.kind == "cpu" else None
        case = Case(model=context.name, device=None if cpu is None else cpu.name, dtype=AS_IS)
        records = list(profile.records_of(shares, case, (*events.notes, _OF_HOST)))
        records = [_with_pauses(record, profile.MarkedSteps(events.ranges).seconds) for record in records]
        return RecordSet(_trained(records), devices={} if cpu is None else {cpu.name: cpu})
    cards = list(dict.fromkeys(activity.device for activity in events.activities))
    titles, records = _titles(head(path)), []
    for card in cards:
        title = titles.get(card) or (next(iter(titles.values())) if len(set(titles.values())) == 1 else None)
        its = [share for share in shares if share.activity is not None and share.activity.device == card]
        case = cases.of(title, numbered(card, several=len(cards) > 1))
        records += profile.records_of(its, case, events.notes)
    return RecordSet(_trained(records), devices=cases.devices)


def _trained(records: Sequence[Record]) -> Sequence[Record]:
    """Return records of mode train where a phase says so."""
    if not is_training(record.phase for record in records):
        return records
    return [replace(record, case=replace(record.case, mode="train")) for record in records]


def _with_pauses(record: Record, steps: Sequence[float]) -> Record:
    """The record of the model with a note on the time of marked steps in which the host ran no operation."""
    if record.busy is None or not steps:
        return record
    paused = 1 - record.busy.median / median(steps)
    note = (
        f"of marked steps of {show(median(steps), 's')} no operation ran for {100 * paused:.1f} %: Python, waits, sleep"
    )
    return replace(record, notes=(*record.notes, note)) if paused > 0 else record


def _titles(head: bytes) -> dict[int | None, str]:
    """The name of each device with which a trace begins, by its number."""
    described = _PROPERTIES.search(head)
    names: dict[int | None, set[str]] = {}
    for entry in _DEVICE.findall(b"" if described is None else described[1]):
        number, name = _NUMBER.search(entry), _NAME.search(entry)
        if name is not None:
            names.setdefault(number and int(number[1]), set()).add(name[1].decode(errors="replace"))
    return {number: its.pop() for number, its in names.items() if len(its) == 1}


TRACES = Reader(name="trace", reads="traces of PyTorch's profiler (.json)", recognises=_recognises, read=_read)
