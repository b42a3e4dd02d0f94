"""Memory over time, from the lifetimes of storages.

Python frees a tensor when its last reference goes; fake tensors do so in the same order as real ones, so watching
their storages gives the allocations of the real run. What is alive when forward ends and was made in it is what
autograd saved.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rooflens.records import Access, Memory, MemoryBlock, allocated, peak_memory
from rooflens.trace.plain_tensors import plain_tensors


@dataclass(frozen=True, slots=True)
class MadeBlock:
    """A block of memory that a part of a step makes. Moments are since its begin; no death: it outlives the part."""

    size: int
    birth: int
    death: int | None


class Lifetimes:
    """Watches storages from their first appearance until they are freed; `held` is the sum of their bytes now."""

    def __init__(self) -> None:
        self.blocks: list[MemoryBlock] = []
        self.held = 0
        self._alive: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._lasting: set[int] = set()
        self.clock = 0

    def see(self, tensor: Tensor, cause: str = "temporaries") -> None:
        """Note the storages of `tensor` that are new."""
        for plain in plain_tensors(tensor):
            self._block(plain, cause)

    def _block(self, tensor: Tensor, cause: str = "temporaries") -> MemoryBlock:
        storage = tensor.untyped_storage()
        known = self._alive.get(storage._cdata)
        if known is not None:
            return self.blocks[known]
        self.clock += 1
        size = storage.nbytes()
        block = MemoryBlock(allocated(size), birth=self.clock, cause=cause, size=size)
        self._watch(tensor, self._add(block))
        return block

    def number(self, tensor: Tensor) -> int:
        """The number of the tensor's block; negative for memory whose appearance nobody saw (a constant)."""
        key: int = tensor.untyped_storage()._cdata
        return self._alive.get(key, -key)

    def is_parameter(self, number: int) -> bool:
        return number >= 0 and self.blocks[number].cause == "parameters"

    def is_cached(self, number: int) -> bool:
        return number >= 0 and self.blocks[number].cause == "kv_cache"

    def blocks_of(self, tensors: Iterable[Tensor]) -> tuple[Access, ...]:
        """The blocks that hold these tensors and nothing else, with all bytes and elements of each."""
        whole = (plain for tensor in tensors for plain in plain_tensors(tensor))
        found = {self.number(tensor): tensor for tensor in whole if tensor.layout is torch.strided}
        return tuple(
            Access(number, tensor.numel() * tensor.element_size(), tensor.numel())
            for number, tensor in found.items()
            if tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        )

    @property
    def lasting(self) -> frozenset[int]:
        """Numbers of the blocks that are still allocated: results, state, and what the step began with."""
        return frozenset((*self._lasting, *self._alive.values()))

    def add_like(self, number: int) -> int:
        """Add a block without a tensor, like another one that was there from the start; return its number."""
        other = self.blocks[number]
        return self._add(MemoryBlock(other.nbytes, birth=other.birth, cause=other.cause, size=other.size))

    def _add(self, block: MemoryBlock) -> int:
        number = len(self.blocks)
        self.blocks.append(block)
        if block.death is None:
            self.held += block.nbytes
            self._lasting.add(number)
        return number

    def end(self, number: int, moment: int) -> None:
        """Let a block without a tensor end."""
        self.blocks[number].death = moment
        self.held -= self.blocks[number].nbytes
        self._lasting.discard(number)

    def replay(self, made: Sequence[MadeBlock], moments: int, results: Mapping[int, Tensor]) -> int:
        """Add blocks that live as others did in so many moments; return the number of the first.

        Args:
            results: the tensors of some of them, which live on.
        """
        first = len(self.blocks)
        for n, one in enumerate(made):
            death = None if one.death is None else self.clock + one.death
            birth = self.clock + one.birth
            number = self._add(MemoryBlock(allocated(one.size), birth=birth, death=death, size=one.size))
            if n in results:
                self._watch(results[n], number)
        self.clock += moments
        return first

    def _watch(self, tensor: Tensor, number: int) -> None:
        storage = tensor.untyped_storage()
        self._lasting.discard(number)
        self._alive[storage._cdata] = number
        self._watches[storage._cdata] = weakref.ref(storage, partial(self._freed, storage._cdata))

    def label(self, tensor: Tensor, cause: str, *, from_start: bool = False) -> None:
        """Say why the storages of `tensor` are there, and whether they were from the start."""
        for plain in plain_tensors(tensor):
            block = self._block(plain)
            block.cause = cause
            if from_start:
                block.birth = 0

    def label_alive(self, cause: str) -> None:
        """Give `cause` to every living block that has none yet."""
        for number in self._alive.values():
            if self.blocks[number].cause == "temporaries":
                self.blocks[number].cause = cause

    def _freed(self, key: int, _: object) -> None:
        self.clock += 1
        block = self.blocks[self._alive.pop(key)]
        block.death = self.clock
        self.held -= block.nbytes
        del self._watches[key]

    def peak(self) -> Memory:
        """Bytes by cause at the moment when most was allocated."""
        return peak_memory(self.blocks)
