"""Trace: the operations of a step, before they have a cost."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.records.allocation import MemoryBlock
from rooflens.records.kv_cache import KvCache
from rooflens.records.operation import Access, HostCalls, Operation
from rooflens.records.record import Memory
from rooflens.records.traced_module import TracedModule


@dataclass(frozen=True, slots=True)
class Cached:
    """A block of the cache of a language model, when the step begins.

    Attributes:
        block: number of the block of memory.
        elements: those that are valid: a cache of fixed length is filled in part.
        nbytes: bytes of these.
    """

    block: int
    elements: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A mask of attention, as far as it is known without its values.

    Attributes:
        block: number of its block of memory.
        queries, keys: its last two sizes.
        pairs: of a query and a key that it lets through.
        reach: keys that some query sees.
        words: causal, a window of so many ...
    """

    block: int
    queries: int
    keys: int
    pairs: int
    reach: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a step does.

    Attributes:
        operations: every operation that does work, in order.
        times: how often each of them occurs in a row with those around it; empty where all occur once.
        neighbours: paths of two layers one behind the other; the second stands for others that are equal to both.
        stood_for: layers of which no operation is listed: before which operation they ran, the path of the layer that
            stands for them, and their own.
        blocks: the memory of a step of which only sums are asked for, block by block; empty for others.
        memory: bytes by cause at the peak; None where the size of something is not known.
        parameter_blocks: blocks of memory that hold parameters, with all bytes and elements of each.
        buffer_blocks: those that hold buffers.
        held: bytes in the step's tensors when each operation has run; None where they are not known.
        kv_cache: what the step's cache holds when it ends, of a step that fills or reads one.
        parameters: elements of the model's parameters, shared ones once.
        lasting: numbers of the blocks of memory that outlive the step.
        serving: prefill or decode of a language model.
        masks: those of attention that are known.
        cache: the blocks of the cache that are there when the step begins.
        unsized: path and name of operations whose shapes, FLOP and bytes are not known.
        host_calls: views and calls of modules, by module and phase; None where they are not known.
        modules: every module of the model, parents first; None where they are not known.
        with_values: the step was really run, because a shape or a branch depends on values.
        notes: what a reader must know.
    """

    operations: tuple[Operation, ...]
    memory: Memory | None
    parameters: int
    times: tuple[int, ...] = ()
    neighbours: tuple[tuple[str, str], ...] = ()
    stood_for: tuple[tuple[int, str, str], ...] = ()
    blocks: tuple[MemoryBlock, ...] = ()
    parameter_blocks: tuple[Access, ...] = ()
    buffer_blocks: tuple[Access, ...] = ()
    held: tuple[int, ...] | None = None
    kv_cache: KvCache | None = None
    lasting: frozenset[int] = frozenset()
    serving: bool = False
    cache: tuple[Cached, ...] = ()
    masks: tuple[Mask, ...] = ()
    unsized: tuple[tuple[str, str], ...] = ()
    host_calls: tuple[HostCalls, ...] | None = None
    modules: tuple[TracedModule, ...] | None = None
    with_values: bool = False
    notes: tuple[str, ...] = ()
