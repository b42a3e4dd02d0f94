"""One step at any batch: its peak memory, and its estimate on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from rooflens.costs import Arithmetic, Workspaces, arithmetic_of, cost, workspaces
from rooflens.errors import DataDependent, InvalidValue, ModelError
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
        self._peaks: dict[int, tuple[Memory, Mapping[Arithmetic, Workspaces | None]]] = {}
        self._traced = lru_cache(maxsize=KEPT)(self._trace_of)
        first, repeated = self._traced(1)
        if first.with_values:
            note, *_ = first.notes
            raise DataDependent(
                f"{note}; a search for the largest batch would run it many times. Estimate batches one by one"
            )
        self._first = repeated
        self._calls = tuple(dict.fromkeys(one.operation.call for one in repeated))

    def case(self, batch: int | None, device: Device) -> Case:
        """The step of a batch on a device."""
        return replace(self._case, batch=batch, device=device.name)

    def lacking(self, device: Device) -> str | None:
        """A matrix unit of the step without a rate on the device; None if there is none."""
        arithmetic = arithmetic_of(self._case.dtype, device)
        needed = sorted({resource for call in self._calls for resource in cost(call, arithmetic).work.flops})
        return next((r for r in needed if r.startswith("matmul.") and device.ceiling(r) is None), None)

    @property
    def known(self) -> tuple[int, ...]:
        """The batches that were traced."""
        return tuple(self._peaks)

    def peak(self, batch: int, device: Device | None) -> Memory:
        """The bytes at the moment of the peak, by cause, and on a device what its libraries take."""
        if batch not in self._peaks:
            self._traced(batch)
        held, taken = self._peaks[batch]
        if device is None:
            return held
        return source.memory_on(device, held, taken[arithmetic_of(self._case.dtype, device)])

    def records(self, batch: int, device: Device) -> list[Record]:
        """The estimate of a batch on a device."""
        trace, repeated = self._traced(batch)
        return list(source.records(trace, repeated, self.case(batch, device), device, causal=self._causal))

    def check_still_the_same(self) -> None:
        """Raise ModelError if a batch of 1 is another step now than it was first: the batches between are no series."""
        if source.repeated(self._trace(1), self._fusion) != self._first:
            raise ModelError(
                f"{self._case.model} gives another model after some calls of its function than at the first, so the"
                " largest batch cannot be searched for; estimate batches (-b): each is called in a new process"
            )

    def _trace_of(self, batch: int) -> tuple[Trace, tuple[source.Repeated, ...]]:
        trace = self._trace(batch)
        if trace.memory is None:
            raise InvalidValue(
                f"{self._case.model} holds something whose size is not known, so its peak memory is not known either"
            )
        # A device computes in one of two ways; each is summed here, since the trace is not kept.
        ways = {arithmetic_of(self._case.dtype, None), Arithmetic()}
        self._peaks[batch] = trace.memory, {way: workspaces(trace, way) for way in ways}
        return trace, source.repeated(trace, self._fusion)
