"""How near parts of a step come to each ceiling: the least time there over their own ("speed of light")."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.records import LEVELS, Device, Record

TENSOR, LANES = "tensor cores", "general lanes"
PLACES = (TENSOR, LANES, *reversed(LEVELS))
"""Where a ceiling can be, compute first, then the levels from the nearest on."""


def ceiling_shares(records: Sequence[Record], device: Device | None, seconds: float | None) -> dict[str, float | None]:
    """Return by place the share of its ceiling that work reaches in a time: summed work over summed time.

    Nothing where no device, no work or no time is known; None where the rate or the work of a place is not.
    """
    if device is None or not seconds or not records:
        return {}
    return {place: _share(place, records, device, seconds) for place in PLACES}


def _share(place: str, records: Sequence[Record], device: Device, seconds: float) -> float | None:
    """The least time at a place over the time of some launches."""
    least = 0.0
    for record in records:
        assert record.bound_work is not None
        if place in LEVELS:
            rate, moved = device.ceiling(place), record.bound_work.bytes.get(place)
            misses = any(note.startswith(f"{place} bytes miss") for note in record.notes)
            if rate is None or moved is None or misses:
                return None
            least += record.calls * moved / rate.rate
            continue
        for resource, flops in record.bound_work.flops.items():
            rate = device.ceiling(resource)
            if rate is None:
                # Nobody knows where it runs; products are what tensor cores are for.
                if resource.startswith("matmul.") == (place == TENSOR):
                    return None
            elif (rate.silicon == "tensor") == (place == TENSOR):
                least += record.calls * flops / rate.rate
    return least / seconds
