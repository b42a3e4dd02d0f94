"""The step that a program marked: its counted launches, and those that calls which were left out would have made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rooflens.records import Case, Record
from rooflens.running.attributing import EQUAL, replayed
from rooflens.sources import counters as source
from rooflens.sources.counters.launches import KernelLaunch
from rooflens.sources.profile.launches import BEFORE_ALL, PlacedCall, ProgramCalls
from rooflens.sources.range_names import call_of, emitted


def program_records(
    launches: Sequence[KernelLaunch], reading: source.CounterReading, case: Case, calls: ProgramCalls | None
) -> tuple[list[Record], list[str]]:
    """Return the launches of a step in the order of its calls, and notes. Of several processes, the first counts.

    Args:
        calls: what the program told of them; None if it told nothing.

    Raises:
        FileError: there is nothing that can be read.
    """
    processes = list(dict.fromkeys(launch.key[0] for launch in launches))
    own = [launch for launch in launches if launch.key[0] == processes[0]]
    notes = []
    if len(processes) > 1:
        notes.append(
            f"{len(processes)} processes marked a step: the launches are those of process {processes[0]} alone"
        )
    numbers = [_call(launch) for launch in own]
    records = [replayed(record) for record in source.found_in(own, reading, lambda _: case).records]
    if calls is None:
        return records, notes
    if calls.processes > 1:
        notes.append(
            f"one of {calls.processes} processes was counted, the first of its machine (LOCAL_RANK 0); kernels of NCCL"
            " wait for other processes and are not counted"
        )
    told = {its.call: its for its in calls.calls}
    placed: list[tuple[int, Record]] = []
    by_call: dict[int, list[Record]] = {}
    latest = BEFORE_ALL
    for number, record in zip(numbers, records, strict=True):
        if number is not None:
            by_call.setdefault(number, []).append(record)
            latest = number
        placed.append((latest, _at(record, told.get(latest) if number is not None else None)))
    for its in calls.calls:
        if its.first != its.call:
            equal = (replace(record, notes=(*record.notes, EQUAL)) for record in by_call.get(its.first, ()))
            placed += [(its.call, _at(record, its)) for record in equal]
    if len(placed) > len(own):
        distinct = "one of each operation and operands; the others take its counts and its time (--every)"
        notes.append(f"{len(own)} launches were counted for {len(placed)}: {distinct}")
    return [record for _, record in sorted(placed, key=lambda item: item[0])], notes


def _at(record: Record, call: PlacedCall | None) -> Record:
    """A launch where its call ran: the program knows that better than its ranges, as far as it does."""
    if call is None:
        return record
    path = record.path if call.path is None else call.path
    return replace(record, path=path, phase=call.phase or record.phase)


def _call(launch: KernelLaunch) -> int | None:
    """The number of the call that launched a kernel, None if none did."""
    calls = (call_of(emitted(name)[0]) for name in launch.ranges)
    return next((number for number in calls if number is not None), None)
