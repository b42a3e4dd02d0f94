"""One step at any batch: its peak memory, and its estimate on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache

from rooflens.costs import Arithmetic, arithmetic_of, cost
from rooflens.errors import DataDependent, InvalidValue
from rooflens.records import Case, Device, Memory, Record, Trace
from rooflens.runs.options import Fusion
from rooflens.sources import estimate as source

KEPT = 4
"""Number of traces that are kept: that of the answer is among the last few."""


class Batches:
    """A step at any batch. Keeps the peak memory of every batch that was traced, and the last few traces.

    Args:
        trace: from a batch to the step's operations.
        case: the step; its batch and device do not matter.

    Raises:
        DataDependent: shapes depend on values, so that every batch would have to be run for real.
    """

    def __init__(self, trace: Callable[[int], Trace], case: Case, *, fusion: Fusion, causal: bool) -> None:
        self._trace = trace
        self._case = case
        self._fusion = fusion
        self._causal = causal
        self._peaks: dict[int, Memory] = {}
        self._traced = lru_cache(maxsize=KEPT)(self._trace_of)
        first, repeated = self._traced(1)
        if first.with_values:
            note, *_ = first.notes
            raise DataDependent(
                f"{note}; a search for the largest batch would run it many times. Estimate batches one by one"
            )
        self._calls = tuple(dict.fromkeys(one.operation.call for one in repeated))
        self._demands = cache(self._demands_with)

    def case(self, batch: int | None, device: Device) -> Case:
        """The step of a batch on a device."""
        return replace(self._case, batch=batch, device=device.name)

    def demands(self, device: Device) -> frozenset[str]:
        """Families and precisions of the step's matrix work on a device, like ``convolution.fp32``."""
        return self._demands(arithmetic_of(self._case.dtype, device))

    def lacking(self, device: Device) -> str | None:
        """A matrix unit of the step without a rate on the device; None if there is none."""
        needed = sorted({f"matmul.{demand.partition('.')[2]}" for demand in self.demands(device)})
        return next((resource for resource in needed if device.ceiling(resource) is None), None)

    @property
    def known(self) -> tuple[int, ...]:
        """The batches that were traced."""
        return tuple(self._peaks)

    def peak(self, batch: int) -> Memory:
        """The bytes at the moment of the peak, by cause."""
        if batch not in self._peaks:
            self._traced(batch)
        return self._peaks[batch]

    def records(self, batch: int, device: Device) -> list[Record]:
        """The estimate of a batch on a device."""
        trace, repeated = self._traced(batch)
        return list(source.records(trace, repeated, self.case(batch, device), device, causal=self._causal))

    def _trace_of(self, batch: int) -> tuple[Trace, tuple[source.Repeated, ...]]:
        trace = self._trace(batch)
        if trace.memory is None:
            raise InvalidValue(
                f"{self._case.model} holds something whose size is not known, so its peak memory is not known either"
            )
        self._peaks[batch] = trace.memory
        return trace, source.repeated(trace, self._fusion)

    def _demands_with(self, arithmetic: Arithmetic) -> frozenset[str]:
        costs = [cost(call, arithmetic) for call in self._calls]
        return frozenset(
            f"{one.family}.{resource.removeprefix('matmul.')}"
            for one in costs
            for resource in one.work.flops
            if resource.startswith("matmul.")
        )
