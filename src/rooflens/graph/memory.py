"""Peak memory of a graph: from the first operation that writes a block to the last one that touches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rooflens.records import MEMORY_CAUSES, Memory, Operation, allocated


@dataclass(slots=True)
class Block:
    """A piece of memory: its bytes as the allocator rounds them, and why it is there."""

    nbytes: int
    cause: str = "temporaries"


class Blocks:
    """Every piece of memory of a graph, by number."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    def new(self, nbytes: int, cause: str = "temporaries") -> int:
        """Make a block; its number is returned."""
        self._blocks.append(Block(allocated(nbytes), cause))
        return len(self._blocks) - 1

    def __getitem__(self, number: int) -> Block:
        return self._blocks[number]


def peak(blocks: Blocks, operations: Sequence[Operation], lasting: frozenset[int]) -> Memory:
    """Bytes by cause at the moment when most is allocated.

    Args:
        lasting: blocks that are needed after the last operation: inputs, constants and results.

    A block that is read before anything writes it was there before. One that no operation touches is not loaded,
    unless it lasts.
    """
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    for index, operation in enumerate(operations):
        for region in operation.reads:
            born.setdefault(region.block, 0)
            dies[region.block] = index
        for region in operation.writes:
            born.setdefault(region.block, index)
            dies[region.block] = index
    for block in lasting:
        born.setdefault(block, 0)
        dies[block] = len(operations)
    changes = [0] * (len(operations) + 2)
    for block, index in born.items():
        changes[index] += blocks[block].nbytes
        changes[dies[block] + 1] -= blocks[block].nbytes
    held = list(accumulate(changes))
    highest = max(held)
    when = held.index(highest)
    causes = dict.fromkeys(MEMORY_CAUSES, 0)
    for block, index in born.items():
        if index <= when <= dies[block]:
            causes[blocks[block].cause] += blocks[block].nbytes
    return Memory(peak=highest, **causes)
