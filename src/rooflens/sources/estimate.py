"""Arithmetic on the operations of a step: no accelerator, no weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rooflens.costs import Arithmetic, cost
from rooflens.models import Step
from rooflens.records import AS_IS, Case, Device, Operation, Record
from rooflens.trace import Trace, trace

FULL_ATTENTION = "attention is counted in full; the bound of a causal call uses the half that its kernel executes"
CAUSAL_ATTENTION = "causal attention is counted as the half that its kernel executes"


def traced(step: Step) -> Trace:
    """The operations of a step."""
    return trace(step)


def records(done: Trace, case: Case, device: Device | None, *, causal: bool = False) -> Iterator[Record]:
    """The records of a traced step: one per distinct operation of a module and phase, and one for the whole model.

    Args:
        case: the cell; its dtype decides in which precision fp32 products run.
        device: where the bound will be taken, or None.
        causal: count causal attention as the half that a kernel executes.

    Raises:
        MissingCeiling: the device has no rate for a matrix precision that the step needs.
    """
    arithmetic = arithmetic_of(case.dtype, device)
    partial = False
    needed: set[str] = set()
    for operation, calls in _repeated(done.operations):
        priced = cost(operation.call, arithmetic)
        partial |= priced.kernel_work is not None
        work = priced.kernel_work if causal and priced.kernel_work is not None else priced.work
        needed |= work.flops.keys()
        yield Record(
            case=case,
            source="estimate",
            scope="op",
            path=operation.path,
            kind=priced.family,
            name=operation.call.name,
            phase=operation.phase,
            work=work,
            kernel_work=None if causal else priced.kernel_work,
            calls=calls,
            recomputed=operation.recomputed,
        )
    if device is not None:
        for resource in sorted(r for r in needed if r.startswith("matmul.")):
            device.require(resource)
    yield Record(
        case=case,
        source="estimate",
        scope="model",
        parameters=done.parameters,
        memory=done.memory,
        notes=(*done.notes, *(((CAUSAL_ATTENTION if causal else FULL_ATTENTION),) if partial else ())),
    )


def arithmetic_of(dtype: str, device: Device | None) -> Arithmetic:
    """The precision of products on fp32 tensors under a case's dtype.

    ``default`` (and a module left as it is) follows torch's own switches: TF32 for cuDNN's convolutions and recurrent
    layers, fp32 for products; a device without TF32 computes both in fp32.
    """
    if dtype == "tf32":
        return Arithmetic(products="tf32", convolutions="tf32")
    if dtype in ("default", AS_IS) and (device is None or device.ceiling("matmul.tf32") is not None):
        return Arithmetic(convolutions="tf32")
    return Arithmetic()


def _repeated(operations: Iterable[Operation]) -> Iterator[tuple[Operation, int]]:
    """Equal operations once, with how often they occur, in order of first appearance."""
    counts: dict[Operation, int] = {}
    for operation in operations:
        counts[operation] = counts.get(operation, 0) + 1
    yield from counts.items()


def on_device(items: Iterable[Record], case: Case) -> Iterator[Record]:
    """The same records for another case: work does not depend on the device."""
    for item in items:
        yield replace(item, case=case)
