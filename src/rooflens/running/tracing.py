"""A traced run: its operations, and the records that any device has of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from rooflens.costs import with_weights
from rooflens.records import Device, Record, Trace
from rooflens.running.graphs import GraphWorkload
from rooflens.runs.run import Run
from rooflens.sources import estimate as source

if TYPE_CHECKING:
    from rooflens.models import Workload

    Estimable = Workload | GraphWorkload


class Tracer(Protocol):
    """Traces the step of a run."""

    def __call__(self, run: Run, /, *, summing: bool = False) -> Trace:
        """Trace it; as :func:`rooflens.trace.trace`."""


def tracer(asked: Estimable) -> Tracer:
    """Traces the steps of runs; the module is built once, without values."""
    if isinstance(asked, GraphWorkload):
        return asked.trace  # which has refused other weights than those of the file
    from rooflens.trace import trace  # needs torch, which a graph does not

    step_of = asked.untouched_steps()

    def traced(run: Run, *, summing: bool = False) -> Trace:
        options = run.options
        options.check_weights()
        done = trace(step_of(run), summing=summing and not options.quantises)  # what reads a weight has to be listed
        if options.weights is None or not options.quantises:
            return done
        return with_weights(done, options.weights, options.weights_group_size, options.weights_except)

    return traced


class TracedRun:
    """Makes the records of a run on any device; it is traced once, when that is asked for the first time."""

    def __init__(self, run: Run, trace: Tracer, summing: bool = False, notes: tuple[str, ...] = ()) -> None:
        """Note what to trace.

        Args:
            summing: only sums are asked for.
            notes: on the run.
        """
        self._run, self._tracer, self._summing, self._notes = run, trace, summing, notes

    def __call__(self, device: Device | None) -> list[Record]:
        """Return the records of a device.

        Raises:
            MissingCeiling: the device has no rate for a precision that the step needs.
        """
        case, causal = self._run.case(device.name if device else None), self._run.options.causal
        return list(source.records(*self._traced, case, device, causal=causal))

    def of_each_layer(self, device: Device | None) -> list[Record]:
        """Return the records in which each layer is told for itself; it is traced again only where need be."""
        trace, operations = self._traced
        each = None if self._run.options.quantises else source.of_each_layer(trace, operations)
        if each is None:
            return TracedRun(self._run, self._tracer, notes=self._notes)(device)
        case = self._run.case(device.name if device else None)
        return list(source.records(trace, each, case, device, causal=self._run.options.causal))

    def begun(self) -> TracedRun:
        """Trace it now, and return itself.

        Raises:
            RooflensError: it cannot be traced.
        """
        assert self._traced
        return self

    @property
    def summed(self) -> bool:
        """True if operations of some layers stand for those of others."""
        return bool(self._traced[0].neighbours)

    @cached_property
    def _traced(self) -> tuple[Trace, tuple[source.Repeated, ...]]:
        # Without the word where it says nothing: a search keeps traces by what they were asked with.
        done = self._told(self._tracer(self._run, summing=True) if self._summing else self._tracer(self._run))
        operations = source.repeated(done, self._run.options.fusion)
        if not done.neighbours or source.is_summed(done, operations):
            return done, operations
        done = self._told(self._tracer(self._run))
        return done, source.repeated(done, self._run.options.fusion)

    def _told(self, done: Trace) -> Trace:
        return replace(done, notes=(*done.notes, *self._notes)) if self._notes else done
