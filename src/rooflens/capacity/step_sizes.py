"""One step, or one whole answer, at any size: its peak memory, and its estimate on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from rooflens.costs import Arithmetic, Workspaces, arithmetic_of, cost, workspaces
from rooflens.errors import DataDependent, InvalidValue, ModelError
from rooflens.records import Case, Device, Memory, Record, Trace
from rooflens.running.whole_answers import counted_run, ends_of
from rooflens.runs.run import Run
from rooflens.sources import estimate as source

Size = Literal["batch", "seq_len"]
"""What is searched for: the largest batch, or the longest context."""
KEPT = 4
"""Number of traces that are kept: that of the answer is among the last few."""
_Peak = tuple[Memory, Mapping[Arithmetic, Workspaces | None]]


class StepSizes:
    """A step at any size. Keeps the peak memory of every size that was traced, and the last few traces.

    Args:
        trace: from a run to its operations.
        run_at: from a size to the run; None leaves the size out.
        tokens: with which a whole answer begins.
        least: the smallest size; what is smaller needs as much.

    Raises:
        DataDependent: shapes depend on values, so that every size would have to be run for real.
    """

    def __init__(
        self,
        trace: Callable[[Run], Trace],
        run_at: Callable[[int | None], Run],
        *,
        tokens: int | None = None,
        least: int = 1,
    ) -> None:
        self._trace = trace
        self._run_at = run_at
        self._tokens = tokens
        self._least = least
        self._peaks: dict[int, Sequence[_Peak]] = {}
        self._traced = lru_cache(maxsize=KEPT)(trace)
        parts = [self._traced(run) for run in ends_of(run_at(least), tokens, self._traced)]
        for first in parts:
            if first.with_values:
                note, *_ = first.notes
                raise DataDependent(
                    f"{note}; a search for the largest size would run it many times. Estimate sizes one by one"
                )
        fusion = run_at(least).options.fusion
        self._first = [source.repeated(first, fusion) for first in parts]
        self._calls = tuple(dict.fromkeys(one.operation.call for part in self._first for one in part))

    def case(self, size: int | None, device: Device) -> Case:
        """The step of a size on a device."""
        return self._run_at(size).case(device.name)

    def lacking(self, device: Device) -> str | None:
        """A matrix unit of the step without a rate on the device; None if there is none."""
        arithmetic = arithmetic_of(self._run_at(None).dtype, device)
        needed = sorted({resource for call in self._calls for resource in cost(call, arithmetic).work.flops})
        return next((r for r in needed if r.startswith("matmul.") and device.ceiling(r) is None), None)

    @property
    def known(self) -> tuple[int, ...]:
        """The sizes that were traced."""
        return tuple(self._peaks)

    def peak(self, size: int, device: Device | None) -> Memory:
        """The bytes at the moment of the peak, by cause, and on a device what its libraries take."""
        size = max(size, self._least)
        if size not in self._peaks:
            self._peaks[size] = [self._peak(run) for run in ends_of(self._run_at(size), self._tokens, self._traced)]
        held = self._peaks[size]
        if device is None:
            return max((memory for memory, _ in held), key=lambda memory: memory.peak or 0)
        arithmetic = arithmetic_of(self._run_at(None).dtype, device)
        on_device = (source.memory_on(device, memory, taken[arithmetic]) for memory, taken in held)
        return max(on_device, key=lambda memory: memory.with_workspace or 0)

    def records(self, size: int, device: Device) -> list[Record]:
        """The estimate of a size on a device."""
        return list(counted_run(self._run_at(size), self._traced, [device], self._tokens)(device))

    def check_still_the_same(self) -> None:
        """Raise ModelError if the least size is another step now than it was first: the sizes between are no series."""
        run = self._run_at(self._least)
        again = [
            source.repeated(self._trace(part), run.options.fusion) for part in ends_of(run, self._tokens, self._trace)
        ]
        if again != self._first:
            raise ModelError(
                f"{run.case().model} gives another model after some calls of its function than at the first, so the"
                " largest batch cannot be searched for; estimate batches (-b): each is called in a new process"
            )

    def _peak(self, run: Run) -> _Peak:
        trace = self._traced(run)
        if trace.memory is None:
            raise InvalidValue(
                f"{run.case().model} holds something whose size is not known, so its peak memory is not known either"
            )
        # A device computes in one of two ways; each is summed here, since the trace is not kept.
        ways = {arithmetic_of(run.dtype, None), Arithmetic()}
        return trace.memory, {way: workspaces(trace, way) for way in ways}
