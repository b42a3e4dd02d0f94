"""The largest batch on each of some devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rooflens.capacity.batches import Batches
from rooflens.capacity.search import CAP, largest
from rooflens.devices import catalogue
from rooflens.devices.reserves import Reserve, needed, one_of, reserves
from rooflens.errors import InvalidValue
from rooflens.machine import find_all, listed
from rooflens.progress import Progress
from rooflens.records import Device, Failure, Memory, Record
from rooflens.results import Fit, Fits, RecordSet, Total
from rooflens.running.estimating import estimable, in_worker, tracer
from rooflens.running.graphs import GraphWorkload
from rooflens.runs.run import Place, Request, is_own_file
from rooflens.sources import environment
from rooflens.units import parse, show

ALL = "all"
"""The name of all devices of the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDevice:
    """A device that was asked for.

    Attributes:
        name: as it was asked for.
        one: one torch device of it.
        count: how many it is.
    """

    name: str
    one: Device
    count: int


def asked_devices(device: str | Device | Sequence[str | Device]) -> list[AskedDevice]:
    """The devices of an argument, each once.

    Raises:
        InvalidValue: there is none, or two different devices have one name.
    """
    named = listed(device)
    every = [isinstance(one, str) and one.casefold() == ALL for one in named]
    devices = find_all([one for one, all_ in zip(named, every, strict=True) if not all_])
    asked: dict[str, AskedDevice] = {}
    for whole in (*devices, *(catalogue() if any(every) else ())):
        one, count = one_of(whole)
        target = asked.setdefault(whole.name, AskedDevice(name=whole.name, one=one, count=count))
        if target.one != one:
            raise InvalidValue(f"two different devices are called {whole.name!r}; give yours another title")
    if not asked:
        raise InvalidValue("largest_batch needs a device; name one or several, or 'all' for the whole catalogue")
    return list(asked.values())


def asked_reserve(reserve: str | float) -> Reserve:
    """What a user wants to stay free: bytes, or text like ``2 GB``."""
    nbytes = parse(reserve, "B") if isinstance(reserve, str) else reserve
    if isinstance(nbytes, bool) or not isinstance(nbytes, int | float) or not 0 <= nbytes < math.inf:
        raise InvalidValue(f"reserve is {reserve!r}; give 0 or more bytes, like '2 GB'")
    return Reserve(what="whatever needs it", nbytes=math.ceil(nbytes), reference="as asked")


def searched(
    asked: Request,
    targets: Sequence[AskedDevice],
    free: tuple[Reserve, ...] | None,
    progress: Progress | None,
    place: Place | None = None,
) -> Fits:
    """Find the largest batch of what a call asks for, see :func:`largest_batches`.

    Args:
        place: where this worker calls the user's function; None: this is no worker.

    Raises:
        InvalidValue: an ONNX file has its batch built in.
        ModelError: a function of the user's gives another model from call to call.
        RooflensError: as :func:`rooflens.running.estimating.estimable`.
    """
    step = estimable(asked)
    if place is not None:
        step = in_worker(step, place)
    if isinstance(step, GraphWorkload) and not step.has_open_batch:
        raise InvalidValue(
            f"the batch of {asked.model!r} is built in; export the model with an open first dimension to search for one"
        )
    (run,), trace = step.runs, tracer(step)
    batches = Batches(
        lambda batch: trace(replace(run, batch=batch)),
        run.case(),
        fusion=run.options.fusion,
        causal=run.options.causal,
    )
    fits = largest_batches(targets, batches, free, progress)
    if is_own_file(asked.model):
        batches.check_still_the_same()
    return fits


def largest_batches(
    targets: Sequence[AskedDevice], batches: Batches, free: tuple[Reserve, ...] | None, progress: Progress | None
) -> Fits:
    """Find the largest batch of every device; the answers are in the order of the devices.

    The search goes from the smallest memory to the largest, so that each device begins with what the others gave.

    Args:
        free: what must stay free; None: what docs/memory.md lists.

    Raises:
        MissingCeiling: the only device has no rate for the step.
    """
    fits = {target.name: _unsearched(target, batches, free) for target in targets}
    if len(targets) == 1 and (lacking := batches.lacking(targets[0].one)) is not None:
        targets[0].one.require(lacking)
    records: dict[str, list[Record]] = {}
    open_ = sorted((fit.memory, fit.name) for fit in fits.values() if fit.memory is not None and not fit.reason)
    for n, (_, name) in enumerate(open_):
        if progress is not None:
            progress(n / len(open_), f"{fits[name].case.model} on {name}")
        # Who says what stays free means all that is no tensor.
        libraries = fits[name].device if free is None else None
        fits[name] = fit = _searched(fits[name], partial(batches.peak, device=libraries), batches)
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
    memory, case = one.facts.get("memory"), batches.case(None, one)
    reason = "memory unknown" if memory is None else ""
    return Fit(
        name=target.name,
        device=one,
        count=target.count,
        case=case,
        memory=None if memory is None else int(memory.value),
        reserves=reserves(one, case.mode) if free is None else free,
        reason=reason if lacking is None else f"no rate for {lacking}",
    )


def _searched(fit: Fit, peak: Callable[[int], Memory], batches: Batches) -> Fit:
    """The answer for a device of known memory, from the memory of a batch."""
    assert fit.memory is not None
    memory, free = fit.memory, fit.reserves
    batch = largest(lambda size: needed(peak(size), memory, free), memory, batches.known)
    shown = batch or 1  # where not even one sample fits, what that would need
    return replace(
        fit,
        case=batches.case(shown, fit.device),
        batch=batch,
        capped=batch >= CAP,
        held=peak(shown),
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
        f" to stay free), {fit.device.name} has {show(fit.memory, 'B')}; the largest part is {fit.cause},"
        f" {show(share, 'B')}"
    )
    return Failure(case=fit.case, source="estimate", stage="memory", kind="out of memory", message=message)
