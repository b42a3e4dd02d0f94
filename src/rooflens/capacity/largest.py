"""The largest batch on each of some devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rooflens.capacity.batches import Batches
from rooflens.capacity.search import CAP, largest
from rooflens.devices.reserves import Reserve, needed, reserves
from rooflens.progress import Progress
from rooflens.records import Device, Failure, Record
from rooflens.results import Fit, Fits, RecordSet, Total
from rooflens.sources import environment
from rooflens.units import show


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDevice:
    """A device that was asked for.

    Attributes:
        name: as it was asked for.
        one: one torch device of it.
        count: how many it is.
        may_lack: whether it may lack a rate that the step needs.
    """

    name: str
    one: Device
    count: int
    may_lack: bool


def largest_batches(
    targets: Sequence[AskedDevice], batches: Batches, free: tuple[Reserve, ...] | None, progress: Progress | None
) -> Fits:
    """Find the largest batch of every device; the answers are in the order of the devices.

    The search goes from the smallest memory to the largest, so that each device begins with what the others gave.

    Args:
        free: what must stay free; None: what docs/memory.md lists.

    Raises:
        MissingCeiling: a device that may not lack a rate has none for the step.
    """
    fits = {target.name: _unsearched(target, batches, free) for target in targets}
    records: dict[str, list[Record]] = {}
    open_ = sorted((fit.memory, fit.name) for fit in fits.values() if fit.memory is not None and not fit.reason)
    for n, (_, name) in enumerate(open_):
        if progress is not None:
            progress(n / len(open_), f"{fits[name].case.model} on {name}")
        fits[name] = fit = _searched(fits[name], batches)
        if fit.batch:
            one = fit.device
            if one.name not in records:
                records[one.name] = batches.records(fit.batch, one)
            fits[name] = replace(fit, total=Total(records[one.name], one))
    return Fits(
        fits.values(),
        RecordSet(
            [record for fit in fits.values() for record in records.pop(fit.device.name, ())],
            devices={fit.device.name: fit.device for fit in fits.values()},
            failures=dict.fromkeys(_failure(fit) for fit in fits.values() if not fit.batch),
            environment=environment.capture(),
        ),
    )


def _unsearched(target: AskedDevice, batches: Batches, free: tuple[Reserve, ...] | None) -> Fit:
    """What is known of a device before any batch but one was traced."""
    one = target.one
    lacking = batches.lacking(one)
    if lacking is not None and not target.may_lack:
        one.require(lacking)
    memory, case = one.facts.get("memory"), batches.case(None, one)
    reason = "memory unknown" if memory is None else ""
    return Fit(
        name=target.name,
        device=one,
        count=target.count,
        case=case,
        memory=None if memory is None else int(memory.value),
        reserves=reserves(one, case.mode, batches.demands(one)) if free is None else free,
        reason=reason if lacking is None else f"no rate for {lacking}",
    )


def _searched(fit: Fit, batches: Batches) -> Fit:
    """The answer for a device of known memory."""
    assert fit.memory is not None
    memory, free = fit.memory, fit.reserves
    batch = largest(lambda size: needed(batches.peak(size), memory, free), memory, batches.known)
    shown = batch or 1  # where not even one sample fits, what that would need
    return replace(
        fit,
        case=batches.case(shown, fit.device),
        batch=batch,
        capped=batch >= CAP,
        held=batches.peak(shown),
        reason="" if batch else "not even one sample fits",
    )


def _failure(fit: Fit) -> Failure:
    """Why a device has no batch, as data."""
    if fit.held is None or fit.needed is None or fit.memory is None or fit.cause is None:
        message = f"{fit.device.name}: {fit.reason}, so the largest batch is unknown"
        return Failure(case=fit.case, source="estimate", stage="memory", kind="unsupported", message=message)
    share = getattr(fit.held, fit.cause)
    message = (
        f"one sample needs {show(fit.needed, 'B')} ({show(fit.held.peak, 'B')} at the peak, {show(fit.reserved, 'B')}"
        f" to stay free), {fit.device.name} has {show(fit.memory, 'B')}; most of it is {fit.cause}, {show(share, 'B')}"
    )
    return Failure(case=fit.case, source="estimate", stage="memory", kind="out of memory", message=message)
