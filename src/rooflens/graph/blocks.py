"""The memory of a graph: each block is there from the first operation that writes it to the last that touches it."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.records import Memory, MemoryBlock, Operation, allocated, peak_memory


class Blocks:
    """Every piece of memory of a graph, by number."""

    def __init__(self) -> None:
        self._blocks: list[MemoryBlock] = []

    def new(self, nbytes: int, cause: str = "temporaries") -> int:
        """Make a block and return its number."""
        self._blocks.append(MemoryBlock(allocated(nbytes), cause=cause))
        return len(self._blocks) - 1

    def __getitem__(self, number: int) -> MemoryBlock:
        return self._blocks[number]

    def peak(self, operations: Sequence[Operation], lasting: frozenset[int]) -> Memory:
        """Bytes by cause at the moment when most is allocated.

        Args:
            lasting: blocks that are needed after the last operation: inputs, constants and results.

        A block that is read before anything writes it was there before. One that no operation touches is not loaded,
        unless it lasts.
        """
        for index, operation in enumerate(operations):
            for birth, touched in ((0, operation.reads), (index, operation.writes)):
                for access in touched:
                    block = self._blocks[access.block]
                    block.birth = birth if block.birth is None else block.birth
                    block.death = index + 1
        for number in lasting:
            block = self._blocks[number]
            block.birth, block.death = block.birth or 0, None
        return peak_memory(self._blocks)
