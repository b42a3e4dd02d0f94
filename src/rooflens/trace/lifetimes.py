"""Memory over time, from the lifetimes of storages.

Python frees a tensor when its last reference goes; fake tensors do so in the same order as real ones, so watching
their storages gives the allocations of the real run. What is alive when forward ends and was made in it is what
autograd saved.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial

import torch

from rooflens.records import MEMORY_CAUSES, Memory, allocated
from rooflens.trace.layout import parts


@dataclass(slots=True)
class Block:
    """One storage: bytes, when it appeared and went, and why it is there."""

    number: int
    nbytes: int
    birth: int
    death: int | None = None
    cause: str = "temporaries"


class Lifetimes:
    """Watches storages from their first appearance until they are freed."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._alive: dict[int, Block] = {}
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._clock = 0

    def see(self, tensor: torch.Tensor, cause: str = "temporaries") -> None:
        """Note the storages of `tensor` that are new."""
        for part in parts(tensor):
            self._block(part, cause)

    def _block(self, tensor: torch.Tensor, cause: str = "temporaries") -> Block:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._alive.get(key)
        if known is not None:
            return known
        self._clock += 1
        nbytes = allocated(storage.nbytes())
        block = self._alive[key] = Block(len(self.blocks), nbytes, birth=self._clock, cause=cause)
        self.blocks.append(block)
        self._watches[key] = weakref.ref(storage, partial(self._freed, key))
        return block

    def number(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's block; a negative one for memory that was never seen to appear (a constant)."""
        key = tensor.untyped_storage()._cdata
        block = self._alive.get(key)
        return block.number if block is not None else -key

    def is_parameter(self, number: int) -> bool:
        return number >= 0 and self.blocks[number].cause == "parameters"

    @property
    def lasting(self) -> frozenset[int]:
        """Numbers of the blocks that are still there: results, state, and what was there before."""
        return frozenset(block.number for block in self._alive.values())

    def label(self, tensor: torch.Tensor, cause: str) -> None:
        """Say why the storages of `tensor` are there."""
        for part in parts(tensor):
            self._block(part).cause = cause

    def label_alive(self, cause: str) -> None:
        """Give `cause` to every living block that has none yet."""
        for block in self._alive.values():
            if block.cause == "temporaries":
                block.cause = cause

    def _freed(self, key: int, _: object) -> None:
        self._clock += 1
        self._alive.pop(key).death = self._clock
        del self._watches[key]

    def peak(self) -> Memory:
        """Bytes by cause at the moment when most was allocated."""
        events = [(block.birth, block.nbytes) for block in self.blocks]
        events += [(block.death, -block.nbytes) for block in self.blocks if block.death is not None]
        held = highest = when = 0
        for moment, change in sorted(events):
            held += change
            if held > highest:
                highest, when = held, moment
        causes = dict.fromkeys(MEMORY_CAUSES, 0)
        for block in self.blocks:
            if block.birth <= when and (block.death is None or block.death > when):
                causes[block.cause] += block.nbytes
        return Memory(peak=highest, **causes)
