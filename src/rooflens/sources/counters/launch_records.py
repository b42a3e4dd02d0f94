"""Launches as records."""

from __future__ import annotations

import gc
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from rooflens import opening, units
from rooflens.costs import family_of
from rooflens.errors import FileError
from rooflens.records import Case, Record, Work, is_training
from rooflens.records.timing import LONGEST
from rooflens.results import UNATTRIBUTED
from rooflens.sources.counters.counter_cells import CounterReading
from rooflens.sources.counters.flops import uncounted
from rooflens.sources.counters.launches import CounterNames, KernelLaunch
from rooflens.sources.counters.metrics import kind_of
from rooflens.sources.counters.nvtx import RangePlaces, renamed
from rooflens.sources.counters.peaks import Peaks, has_peaks
from rooflens.sources.counters.rollups import with_sums
from rooflens.sources.counters.work import clock_of, missing, timing_of, work_of

_CC = re.compile(r"\d{1,2}\.\d", re.ASCII)
_TITLE, _CAPABILITY = "device__attribute_display_name", "device__attribute_compute_capability_"
_OTHER_PAGE = (
    "this is the page of details, which lacks most counters of a report; 'ncu -i REPORT --page raw --csv' prints them"
)
_MOST_NAMES = 5
UNEVEN = "not every launch has every counter"
"""What a note begins with on counters that were not collected of all."""
_LEAST = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    *(f"smsp__sass_thread_inst_executed_op_{term}_pred_on.sum" for term in ("fadd", "fmul", "ffma")),
    "sm__inst_executed_pipe_tensor.sum",
)
"""Counters that tell something of any kernel."""
_MAJOR, _MINOR = f"{_CAPABILITY}major", f"{_CAPABILITY}minor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """The device that a file names: its title in the driver, and its compute capability, each None where unknown."""

    title: str | None
    cc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFile:
    """What a counter file holds.

    Attributes:
        records: one per launch, in the order of the file; notes on the whole file are on the first.
        chips: the devices in it.
        clock: median SM clock of the launches, Hz, None where unknown.
        peaks: ceilings that the file itself holds, per chip.
    """

    records: tuple[Record, ...]
    chips: tuple[Chip, ...]
    clock: float | None
    peaks: Mapping[Chip, Peaks]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No cycles arise while a file is read, and looking for them among ever more records takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_collector_paused()
def found_in(launches: Iterable[KernelLaunch], reading: CounterReading, case_of: Callable[[Chip], Case]) -> CounterFile:
    """Read launches to the end; `case_of` gives the case of the launches on a chip. Errors are those of reading."""
    entries: list[tuple[int, Record]] = []
    clocks = array("d")
    cases: dict[Chip, Case] = {}
    peaks: dict[Chip, Peaks] = {}
    collected: Counter[CounterNames] = Counter()
    fastest: float | None = None
    places, useful = RangePlaces(), False
    for launch in opening.at_most(launches, reading.where, most=opening.MOST_LAUNCHES, what="launches"):
        chip, counters = chip_of(launch), launch.counters
        case = cases.get(chip)
        if case is None:
            case = cases[chip] = case_of(chip)
            peaks[chip] = Peaks()
            fastest = fastest or _fastest(launch)
        record = record_of(launch, chip, case, places)
        entries.append((launch.line, record))
        useful = useful or record.work is not None or record.timing is not None
        collected[launch.names] += 1
        if (clock := clock_of(counters)) is not None:
            clocks.append(clock)
        if has_peaks(launch.names):
            peaks[chip].see(counters)
    if not useful:
        raise _nothing_useful(reading, [record for _, record in entries])
    entries.sort(key=lambda entry: entry[0])
    clock = median(clocks) if clocks else None
    cc = next(iter(cases)).cc
    records = _with_work([record for _, record in entries])
    details = [_OTHER_PAGE] if reading.is_details and all(r.work is None or r.work.missing for r in records) else []
    notes = [*_clock_notes(clock, fastest), *reading.notes(cc), *_uneven(collected), *_left_out(collected), *details]
    records[0] = replace(records[0], notes=(*records[0].notes, *notes))
    return CounterFile(
        records=tuple(_with_mode(records)),
        chips=tuple(cases),
        clock=clock,
        peaks={chip: its for chip, its in peaks.items() if its},
    )


def _counts(launch: KernelLaunch) -> bool:
    """True if a launch counted something that work is made of, even where other parts of that work lack."""
    return any(value for name, value in launch.counters.items() if name.endswith(".sum") and "__cycles_" not in name)


def _nothing_useful(reading: CounterReading, records: Sequence[Record]) -> FileError:
    """The error of launches without any counter that tells work or time."""
    names = [*reading.metrics][:_MOST_NAMES]
    has = f"it has {', '.join(names)}{', ...' if len(reading.metrics) > len(names) else ''}" if names else "it has none"
    notes = "".join(f"; {note}" for note in dict.fromkeys(note for record in records for note in record.notes))
    launches = "1 launch" if len(records) == 1 else f"{len(records)} launches"
    page = f" ({_OTHER_PAGE})" if reading.is_details else ""
    return FileError(
        f"{reading.where} holds {launches} and no counter from which FLOP, bytes or time follow: {has}"
        f"{notes}{page}. Sums are needed; collect them with 'rooflens counters -- PROGRAM', or with 'ncu --metrics"
        f" {','.join(_LEAST)} PROGRAM'"
    )


def record_of(launch: KernelLaunch, chip: Chip, case: Case, places: RangePlaces) -> Record:
    """Return a launch as a record; `places` are those of the launches before. Its module is known by ranges only."""
    name, prefix = _renamed(launch.name)
    place = places.of(launch.ranges)
    path = prefix if place.path is None else place.path
    rolled_up = with_sums(launch)
    work, notes = work_of(name, launch.names, launch.counters, chip.cc)
    timing = timing_of(launch.counters)
    if timing is not None and not 0 < timing.samples[0] <= LONGEST:
        notes += (f"{units.show(timing.samples[0], 's')} is no time of a kernel, which cannot be: it is unknown",)
        timing = None
    if work is None and _counts(launch):
        work = Work(origin="executed", missing=missing(name))
    return Record(
        case=case,
        source="counters",
        scope="kernel",
        path=UNATTRIBUTED if path is None else path,
        kind=family_of(place.operation) if place.operation else "other",
        name=name,
        operation=place.operation,
        phase=place.phase,
        work=work,
        timing=timing,
        calls=launch.calls,
        notes=_shared((*rolled_up, *notes)),
    )


@lru_cache(maxsize=4096)
def _shared(notes: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for equal notes: a file of a million launches has a handful of them."""
    return notes


_renamed = lru_cache(maxsize=65536)(renamed)


def chip_of(launch: KernelLaunch) -> Chip:
    """Return the device of a launch."""
    cc = launch.cc or f"{launch.facts.get(_MAJOR)}.{launch.facts.get(_MINOR)}"
    return Chip(title=launch.facts.get(_TITLE), cc=cc if _CC.fullmatch(cc) else None)


def _fastest(launch: KernelLaunch) -> float | None:
    """The highest SM clock of the device, Hz."""
    text = re.sub(r"\D", "", launch.facts.get("device__attribute_max_gpu_frequency_khz", ""))
    return float(text) * 1e3 if text and len(text) < 12 else None


def _clock_notes(clock: float | None, fastest: float | None) -> list[str]:
    if clock is None:
        return []
    of = "" if fastest is None else f" of {units.show(fastest, 'Hz')} at most"
    return [f"the SM clock was {units.show(clock, 'Hz')}{of} while ncu measured; times are those of this clock"]


def _uneven(collected: Mapping[CounterNames, int]) -> list[str]:
    """A note if some launches lack counters that others have."""
    having: Counter[str] = Counter()
    for names, times in collected.items():
        having.update(dict.fromkeys(names.all, times))
    launches = sum(collected.values())
    some = sorted((times, name) for name, times in having.items() if times < launches)
    return [f"{UNEVEN}: {name} has values for {times} of {launches}" for times, name in some[:1]]


def _left_out(collected: Iterable[CounterNames]) -> list[str]:
    """A note on what the FLOP of a file lack, because it was counted for no launch; launches tell where that is all."""
    every = frozenset().union(*(names.all for names in collected))
    lacking = uncounted(every)
    lanes = [name for name in every if kind_of(name) == "count" and ("_op_" in name or "_ops_" in name)]
    if not lanes or not lacking or len(lacking) == len(uncounted(())):
        return []
    return [f"the file has no counters of {', '.join(lacking)}: such work is not in its FLOP"]


def _with_work(records: list[Record]) -> list[Record]:
    """Unknown work where counters give that of other launches, so that no launch is left out of a total."""
    if all(record.work is None for record in records):
        return records
    return [
        record
        if record.work is not None
        else replace(record, work=Work(origin="executed", missing=missing(record.name)))
        for record in records
    ]


def _with_mode(records: list[Record]) -> list[Record]:
    """Training where a phase says so."""
    if not is_training(record.phase for record in records):
        return records
    cases = {case: replace(case, mode="train") for case in dict.fromkeys(record.case for record in records)}
    return [replace(record, case=cases[record.case]) for record in records]
