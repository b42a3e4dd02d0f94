"""What products on quantised weights need: the codes as they are stored, and the scales.

Modules of torchao and transformers write a weight out in the type of the activations and multiply then, or scale the
product's result in passes of their own. A kernel for the format does both as it reads the codes. So what is computed
from stored codes alone moves nothing of its own, a product that reads it reads the codes and scales instead, and what
scales the result of such a product reads the scales alone. None of them takes time beside the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rooflens.costs.coded_activations import CodedActivations
from rooflens.costs.registry import Need, cost, family_of
from rooflens.records import Access, Operation

_WIDE = frozenset(("fp64", "fp32", "fp16", "bf16", "int64", "bool"))
"""Types of numbers that are no codes."""
_SCALING = frozenset(("mul", "div", "add", "sub", "_to_copy", "clone"))

Stored = Mapping[int, int]
"""Bytes by block of what a value is computed from."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What an operation writes: codes, scales alone, the result of a product with codes, or anything else.

    Attributes:
        need: what the operation needs for it, where that may be less than it does.
        roots: of a result, the activations that were codes in its product, by block.
    """

    holds: Literal["codes", "scales", "result", "nothing"]
    need: Need | None = None
    roots: frozenset[int] = frozenset()


@dataclass(slots=True)
class _CodeFlow:
    """Values that are computed from stored tensors alone, and results of products with quantised ones.

    Attributes:
        stored: bytes of the parameters and buffers, by block.
        made: what a value is computed from, if codes are among it.
        scales: what a value is computed from, if none are.
        makers: operations that computed such scales, by block.
        results: results of products with quantised weights, scaled or not, and the activations that were codes there.
        needs: what operations need, by index.
        activations: those that become codes.
    """

    stored: dict[int, int]
    made: dict[int, Stored]
    scales: dict[int, Stored]
    makers: dict[int, frozenset[int]]
    results: dict[int, frozenset[int]]
    needs: dict[int, Need]
    activations: CodedActivations

    def follow(self, index: int, operation: Operation) -> None:
        """Find what an operation needs, if it computes with codes or what is made of them."""
        if not operation.writes or (not operation.reads and family_of(operation.call.name) != "fill"):
            return
        sources = [self._source(access) for access in operation.reads]
        with_codes = self._reads_codes(operation)
        written = self._written(operation, sources, with_codes)
        if written.need is not None:
            self.needs[index] = written.need
        if written.holds != "scales":
            self._used(operation, with_codes)
        self._keep(index, operation, written, sources)
        self.activations.follow(index, operation, self.stored.keys() | self.scales.keys())

    def _written(self, operation: Operation, sources: Sequence[Stored | None], with_codes: bool) -> _Written:
        """What an operation writes, and what it needs for it."""
        if family_of(operation.call.name) == "matmul" and with_codes:
            coded = (self.activations.of(access) for access in operation.reads)
            roots = frozenset(one.root.block for one in coded if one is not None)
            return _Written("result", self._multiplying(operation, sources), roots)
        if all(source is not None for source in sources):
            return _Written("codes", _WHERE_USED) if with_codes else _Written("scales")
        if self._scales_a_result(operation, sources):
            roots = frozenset().union(*(self.results.get(access.block, ()) for access in operation.reads))
            return _Written("result", self._scaling(operation, sources), roots)
        return _Written("nothing")

    def _used(self, operation: Operation, with_codes: bool) -> None:
        """Scales that are used where codes are become computed there, and what codes are written into."""
        if with_codes or any(access.block in self.results for access in operation.reads):
            for access in (*operation.reads, *operation.writes):
                self.needs |= dict.fromkeys(self.makers.get(access.block, ()), _WHERE_USED)

    def _source(self, access: Access) -> Stored | None:
        """The stored bytes that a value is computed from alone; None where it is computed from others."""
        for known in (self.made, self.scales):
            if access.block in known:
                return known[access.block]
        return {access.block: access.nbytes} if access.block in self.stored else None

    def _reads_codes(self, operation: Operation) -> bool:
        """True for stored codes and what is made of them."""
        if any(access.block in self.made for access in operation.reads):
            return True
        narrow = {(tensor.elements, tensor.nbytes) for tensor in operation.call.inputs if tensor.dtype not in _WIDE}
        return any(a.block in self.stored and (a.elements, a.nbytes) in narrow for a in operation.reads)

    def _multiplying(self, operation: Operation, sources: Sequence[Stored | None]) -> Need | None:
        """A product reads what is stored, where that is less than what is made of it."""
        less, told = 0, 0
        for access, source in zip(operation.reads, sources, strict=True):
            activations = self.activations.of(access)
            if activations is not None and source is None:
                self.needs |= dict.fromkeys(activations.steps, _BESIDE)
                more = max(0, activations.root.nbytes - access.nbytes)
                self.needs[max(activations.steps)] = replace(_BESIDE, bytes=more, formula=_READ.format(more))
            if access.block in self.made and source is not None:
                stored = sum(source.values())
                less += max(0, access.nbytes - stored)
                told += stored
        if not less:
            return None
        moved = int(cost(operation.call).work.bytes["dram"] - less)
        formula = f"The product reads codes and scales as they are stored, {told:,} B; with all else {moved:,} B."
        return Need(bytes=moved, cause="dequantisation", formula=formula)

    def _scales_a_result(self, operation: Operation, sources: Sequence[Stored | None]) -> bool:
        """True if an operation scales, shifts or casts the result of a product with quantised weights."""
        inside = [access for access in operation.reads if access.block in self.results]
        if len(inside) != 1 or operation.call.name.removesuffix("_") not in _SCALING:
            return False
        others = [a for a, s in zip(operation.reads, sources, strict=True) if a is not inside[0] and s is None]
        return all(self.activations.scale_of(access, self.results[inside[0].block]) for access in others)

    def _scaling(self, operation: Operation, sources: Sequence[Stored | None]) -> Need:
        moved = 0
        for access, source in zip(operation.reads, sources, strict=True):
            if access.block not in self.results:
                moved += access.nbytes if source is None else sum(source.values())
        formula = f"The product before it can scale its result as it writes it: scales are read, {moved:,} B."
        return Need(flops={}, bytes=moved, cause="dequantisation", formula=formula)

    def _keep(self, index: int, operation: Operation, written: _Written, sources: Sequence[Stored | None]) -> None:
        """Remember what an operation writes."""
        before = (self.makers.get(access.block, frozenset()) for access in operation.reads)
        makers = frozenset({index}).union(*before)
        together = {block: nbytes for source in sources if source is not None for block, nbytes in source.items()}
        for access in operation.writes:
            inside = {**self.made.pop(access.block, {}), **self.scales.pop(access.block, {})}
            self.results.pop(access.block, None)
            self.stored.pop(access.block, None)
            self.makers.pop(access.block, None)
            if written.holds == "codes":
                self.made[access.block] = {**inside, **together}
            elif written.holds == "scales":
                self.makers[access.block] = makers
                self.scales[access.block] = {**inside, **together}
            elif written.holds == "result":
                self.results[access.block] = written.roots


_BESIDE = Need(
    flops={},
    bytes=0,
    cause="dequantisation",
    formula="What makes the activations, or the product that reads them, can do this: nothing moves for it alone.",
)
_READ = "The product reads the activations before they become codes: {:,} B more than codes have."
_WHERE_USED = Need(
    flops={},
    bytes=0,
    cause="dequantisation",
    formula="The product that follows can compute this as it reads the codes: nothing moves for it alone.",
)


def dequantising_needs(operations: Sequence[Operation], stored: Iterable[Access]) -> dict[int, Need]:
    """What operations with quantised weights need, by index, where they may do more.

    Args:
        operations: in order, with the memory that they read and write.
        stored: the blocks of parameters and buffers.
    """
    flow = _CodeFlow({access.block: access.nbytes for access in stored}, {}, {}, {}, {}, {}, CodedActivations())
    for index, operation in enumerate(operations):
        flow.follow(index, operation)
    return flow.needs
