"""Blocks of memory, when each is allocated, and their sum at the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rooflens.records.kv_cache import KvCache
from rooflens.records.record import MEMORY_CAUSES, Memory

ALIGNMENT = 512
"""torch's CUDA caching allocator rounds every block up to a multiple of this many bytes (kMinBlockSize)."""


def allocated(nbytes: int) -> int:
    """Bytes that the allocator takes for a block of `nbytes`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(slots=True)
class MemoryBlock:
    """A piece of memory.

    Attributes:
        nbytes: as the allocator rounds them.
        birth: the moment at which it is allocated; None as long as nothing touches it.
        death: the moment at which it is free again; None where it outlives the step.
        cause: why it is there, one of `MEMORY_CAUSES`.
        size: bytes before they are rounded, where they are known.
    """

    nbytes: int
    birth: int | None = None
    death: int | None = None
    cause: str = "temporaries"
    size: int = 0


def peak_memory(blocks: Sequence[MemoryBlock]) -> Memory:
    """Bytes by cause at the first moment when most is allocated."""
    changes = [(block.birth, block.nbytes) for block in blocks if block.birth is not None]
    changes += [(block.death, -block.nbytes) for block in blocks if block.death is not None]
    held = highest = when = 0
    for moment, change in sorted(changes):
        held += change
        if held > highest:
            highest, when = held, moment
    causes = dict.fromkeys(MEMORY_CAUSES, 0)
    for block in blocks:
        if block.birth is not None and block.birth <= when and (block.death is None or block.death > when):
            causes[block.cause] += block.nbytes
    return Memory(peak=highest, **causes)


def with_cache(peak: Memory, cache: KvCache | None) -> Memory:
    """Bytes at the peak, of a cache what it holds: a longer one beside its old one, and rounding, are temporary."""
    more = 0 if cache is None else max(0, (peak.kv_cache or 0) - cache.held)
    return replace(peak, kv_cache=(peak.kv_cache or 0) - more, temporaries=(peak.temporaries or 0) + more)
