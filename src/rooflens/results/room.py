"""Whether a step fits into the memory of a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rooflens.devices import memory_seen
from rooflens.devices.reserves import needed, one_of, reserves
from rooflens.records import WITH_THE_BATCH, Case, Device, Memory

_ROUNDING = 0.01
"""Causes that were rounded may lack this share of their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How the memory that a step needs compares with that of its device.

    Attributes:
        memory: bytes of the device, or of several together.
        needed: bytes at the peak and what must stay free beside them.
        reserved: what must stay free.
        fits: None where that is not known: at the borderline, or of several devices that share the work.
        borderline: whether it fits depends on what the device's driver takes.
        excess: bytes that the device lacks, None where the step may fit.
        devices: how many share the step.
        largest: about the largest batch that fits, by the bytes that grow with the batch; None where that is not known.
    """

    memory: int
    needed: int
    reserved: int
    fits: bool | None
    borderline: bool = False
    excess: int | None
    largest: int | None
    devices: int = 1

    @property
    def held_by_each(self) -> float:
        """Bytes that each of several devices holds at least, where they split the step perfectly."""
        return (self.needed - self.reserved) / self.devices


def room_of(held: Memory, case: Case, device: Device, *, ran: bool) -> Room | None:
    """Return how what a step holds compares with a device; None where the memory of one of the two is not known.

    Args:
        ran: the step ran on the device, so that it did fit.
    """
    one, count = one_of(device)
    seen = memory_seen(one)
    if held.peak is None or seen is None:
        return None
    memory, most = seen
    free = reserves(one, case.mode)
    bytes_needed = needed(held, memory, free)
    # Of several devices each holds less than all of it, and nobody knows how much less.
    fits = False if bytes_needed > count * most else None
    if bytes_needed <= memory or ran:
        fits = True
    alone_and_short = fits is not True and count == 1
    return Room(
        memory=count * memory,
        needed=bytes_needed,
        reserved=sum(reserve.amount(held, memory) for reserve in free),
        fits=fits,
        borderline=fits is None and count == 1,
        excess=bytes_needed - count * memory if fits is False else None,
        largest=_largest_batch(held, case, one, memory) if alone_and_short else None,
        devices=count,
    )


def _largest_batch(held: Memory, case: Case, device: Device, memory: int) -> int | None:
    """Return about the largest batch that fits, by the bytes that grow with that of the case.

    None where it has no batch, or nobody knows what some of the bytes are.
    """
    known = sum(filter(None, held.causes.values()))
    if case.batch is None or held.peak is None or held.peak - known > _ROUNDING * held.peak:
        return None
    growing = sum(held.causes[cause] or 0 for cause in WITH_THE_BATCH)
    if not growing:
        return 0
    # Of a workspace, the most is that of a convolution, which grows with the batch.
    nothing = dict.fromkeys(WITH_THE_BATCH, 0) | {"workspace": 0}
    free = reserves(device, case.mode)
    least = needed(replace(held, peak=held.peak - growing, **nothing), memory, free)
    return max(0, int(case.batch * (memory - least) / (needed(held, memory, free) - least)))
