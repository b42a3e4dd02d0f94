"""How near kernels come to each ceiling of their device: the least time there over their own ("speed of light")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rooflens.records import LEVELS, Device, Record
from rooflens.results import RecordSet
from rooflens.results.totals import grouped_by

TENSOR, LANES = "tensor cores", "general lanes"
PLACES = (TENSOR, LANES, *reversed(LEVELS))
"""Where a ceiling can be, compute first, then the levels from the nearest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What launches of one kernel, module or family reach.

    Attributes:
        key: name of the kernel or family, or path of the module.
        share: of the time of all that was counted.
        ceilings: by place the share of its ceiling, summed work over summed time; None where rate or work is unknown.
        highest: the place of the highest share; "" where none is known.
        missing: some FLOP are unknown: shares of compute are lower bounds.
    """

    key: str
    launches: int
    seconds: float
    share: float
    ceilings: Mapping[str, float | None]
    highest: str
    missing: bool


def speed_of_light(rs: RecordSet, by: Literal["kernel", "module", "family"] = "kernel") -> tuple[Reached, ...]:
    """Return what the launches of the only counted case reach, the longest first.

    Returns:
        Nothing where no device is known, or no launch has counted work and a time.
    """
    counted = [part for _, source, part in rs.split() if source == "counters"]
    device = counted[0].device() if len(counted) == 1 else None
    if device is None:
        return ()
    launches = [r for r in counted[0] if r.scope == "kernel" and r.work is not None and r.seconds]
    total = sum(_seconds(r) for r in launches)
    groups = grouped_by(launches, lambda r: r.name if by == "kernel" else r.path if by == "module" else r.kind)
    rows = [_reached(key, records, device, total) for key, records in groups.items()]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _reached(key: str, records: Sequence[Record], device: Device, total: float) -> Reached:
    seconds = sum(_seconds(r) for r in records)
    ceilings = {place: _share(place, records, device, seconds) for place in PLACES}
    known = {place: share for place, share in ceilings.items() if share}
    return Reached(
        key=key,
        launches=sum(r.calls for r in records),
        seconds=seconds,
        share=seconds / total,
        ceilings=ceilings,
        highest=max(known, key=lambda place: known[place], default=""),
        missing=any(r.work is not None and r.work.missing for r in records),
    )


def _share(place: str, records: Sequence[Record], device: Device, seconds: float) -> float | None:
    """The least time at a place over the time of some launches."""
    least = 0.0
    for record in records:
        assert record.work is not None
        if place in LEVELS:
            rate, moved = device.ceiling(place), record.work.bytes.get(place)
            misses = any(note.startswith(f"{place} bytes miss") for note in record.notes)
            if rate is None or moved is None or misses:
                return None
            least += record.calls * moved / rate.rate
            continue
        for resource, flops in record.work.flops.items():
            rate = device.ceiling(resource)
            if rate is None:
                # Nobody knows where it runs; products are what tensor cores are for.
                if resource.startswith("matmul.") == (place == TENSOR):
                    return None
            elif (rate.silicon == "tensor") == (place == TENSOR):
                least += record.calls * flops / rate.rate
    return least / seconds


def _seconds(record: Record) -> float:
    return record.seconds or 0.0
