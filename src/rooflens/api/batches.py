"""One step at any batch: its peak memory, and its estimate on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from rooflens.api.cases import Request
from rooflens.api.graphs import GraphRequest
from rooflens.costs import Arithmetic, Fusion, arithmetic_of, cost
from rooflens.errors import DataDependent, InvalidValue
from rooflens.records import Case, Device, Memory, Record, Trace

if TYPE_CHECKING:
    from rooflens.sources.estimate import Repeated

KEPT = 4
"""Whole traces that are kept: the one of an answer is among the last few."""


class Batches:
    """A step at any batch. What it holds at its peak is kept for every batch, the whole trace for the last few.

    Args:
        asked: the request for one sample.
        inputs: from a batch to the inputs of a module that was handed in; None where the model makes its own.

    Raises:
        DataDependent: shapes depend on values, so that every batch would have to be run for real.
    """

    def __init__(
        self, asked: Request | GraphRequest, inputs: Callable[[int], Any] | None, *, fusion: Fusion, causal: bool
    ) -> None:
        self._asked = asked
        self._fusion = fusion
        self._causal = causal
        self._trace = asked.tracer() if inputs is None or isinstance(asked, GraphRequest) else _tracer(asked, inputs)
        self._held: dict[int, Memory] = {}
        self._traced = lru_cache(maxsize=KEPT)(self._trace_of)
        first, repeated = self._traced(1)
        if first.with_values:
            (note,) = first.notes
            raise DataDependent(
                f"{note}; a search for the largest batch would run it many times. Estimate batches one by one"
            )
        self._calls = tuple(dict.fromkeys(found.operation.call for found in repeated))
        self._demands = cache(self._demands_with)

    def case(self, batch: int | None, device: Device) -> Case:
        """The step of a batch on a device."""
        return replace(self._asked.cases(device.name)[0], batch=batch)

    def demands(self, device: Device) -> frozenset[str]:
        """The families of the step's operations on a device with the precision of their matrix work."""
        return self._demands(arithmetic_of(self._asked.dtype, device))

    def lacking(self, device: Device) -> str | None:
        """A matrix unit that the step needs and the device has no rate for."""
        needed = sorted({f"matmul.{demand.partition('.')[2]}" for demand in self.demands(device)})
        return next((resource for resource in needed if device.ceiling(resource) is None), None)

    @property
    def known(self) -> tuple[int, ...]:
        """The batches that were traced."""
        return tuple(self._held)

    def held(self, batch: int) -> Memory:
        """The bytes at the moment of the peak, by cause."""
        if batch not in self._held:
            self._traced(batch)
        return self._held[batch]

    def records(self, batch: int, device: Device) -> list[Record]:
        """The estimate of a batch on a device."""
        from rooflens.sources import estimate as source

        done, repeated = self._traced(batch)
        return list(source.records(done, repeated, self.case(batch, device), device, causal=self._causal))

    def _trace_of(self, batch: int) -> tuple[Trace, tuple[Repeated, ...]]:
        from rooflens.sources import estimate as source

        done = self._trace(batch)
        if done.memory is None:
            raise InvalidValue(
                f"{self._asked.name} holds something whose size is not known, so its peak memory is not known either"
            )
        self._held[batch] = done.memory
        return done, source.repeated(done, self._fusion)

    def _demands_with(self, arithmetic: Arithmetic) -> frozenset[str]:
        priced = [cost(call, arithmetic) for call in self._calls]
        return frozenset(
            f"{found.family}.{resource.removeprefix('matmul.')}"
            for found in priced
            for resource in found.work.flops
            if resource.startswith("matmul.")
        )


def _tracer(asked: Request, inputs: Callable[[int], Any]) -> Callable[[int], Trace]:
    """Traces a module that was handed in, on inputs of any batch."""
    import torch

    from rooflens.sources import estimate as source

    module = asked.build("meta")

    def trace(batch: int) -> Trace:
        with torch.device("meta"):  # nothing of the size of a large batch is allocated
            given = inputs(batch)
        return source.traced(replace(asked, inputs=given).step(module, batch, "meta"))

    return trace
