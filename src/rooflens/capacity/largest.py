"""The largest batch, or the longest context, on each of some devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rooflens.capacity.search import largest
from rooflens.capacity.step_sizes import Size, StepSizes
from rooflens.capacity.time_limits import in_time
from rooflens.devices import catalogue, memory_seen
from rooflens.devices.reserves import Reserve, needed, one_of, reserves
from rooflens.errors import InvalidValue, ModelError
from rooflens.machine import find_all, listed
from rooflens.progress import Progress
from rooflens.records import Device, Failure, Memory, Record
from rooflens.results import Fit, Fits, RecordSet, TimeLimit, Total
from rooflens.results.fits import CAP
from rooflens.running.estimating import as_stored, estimable, in_worker
from rooflens.running.graphs import GraphWorkload
from rooflens.running.tracing import tracer
from rooflens.runs.run import Place, Request, Run, is_own_file
from rooflens.sources import environment
from rooflens.units import parse, show

if TYPE_CHECKING:
    from rooflens.running.tracing import Estimable

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
    of: Size = "batch",
    limits: Sequence[TimeLimit] = (),
) -> Fits:
    """Find the largest size of what a call asks for, see :func:`largest_sizes`.

    Args:
        place: where this worker calls the user's function; None: this is no worker.
        of: which size: a batch, or tokens of a context.
        limits: of the times of a token.

    Raises:
        InvalidValue: an ONNX file has its batch built in, or the model reads no sequences.
        ModelError: a function of the user's gives another model from call to call.
        MissingCeiling: the only device has no rate for the step.
        RooflensError: as :func:`rooflens.running.estimating.estimable`.
    """
    step = estimable(asked)
    if place is not None:
        step = in_worker(step, place)
    if isinstance(step, GraphWorkload) and not step.has_open_batch:
        raise InvalidValue(
            f"the batch of {asked.model!r} is built in; export the model with an open first dimension to search for one"
        )
    if of == "seq_len" and step.tokens is None:
        raise InvalidValue(f"{asked.model!r} reads no sequences of tokens whose length rooflens can choose")
    alike: dict[Run, list[AskedDevice]] = {}
    for target in targets:  # each has the weights that it can multiply
        alike.setdefault(as_stored(step, [target.one]).runs[0], []).append(target)
    search = partial(_searched_alike, step, free=free, progress=progress, of=of, limits=limits, alone=len(targets) == 1)
    found = [search(run, those) for run, those in alike.items()]
    if len(found) == 1:
        return found[0]
    fits = {fit.name: fit for each in found for fit in each}
    return Fits((fits[target.name] for target in targets), RecordSet.union(each.records for each in found))


def _searched_alike(
    step: Estimable,
    run: Run,
    targets: Sequence[AskedDevice],
    free: tuple[Reserve, ...] | None,
    progress: Progress | None,
    of: Size,
    limits: Sequence[TimeLimit],
    alone: bool,
) -> Fits:
    """Search on devices on which a run is the same but for its size; one that is `alone` has to have its rates."""
    trace = tracer(step)

    def run_at(size: int | None) -> Run:
        return replace(run, batch=size) if of == "batch" else replace(run, options=replace(run.options, seq_len=size))

    positions = step.positions if of == "seq_len" else None
    if positions is not None and run.mode == "decode":
        positions -= 1  # the new token has a position too
    sizes = StepSizes(trace, run_at, tokens=step.tokens, least=step.least_tokens if of == "seq_len" else 1)
    if alone and (lacking := sizes.lacking(targets[0].one)) is not None:
        targets[0].one.require(lacking)
    fits = largest_sizes(targets, sizes, free, progress, of, positions, limits)
    if is_own_file(run.model):
        sizes.check_still_the_same()
    return fits


def largest_sizes(
    targets: Sequence[AskedDevice],
    sizes: StepSizes,
    free: tuple[Reserve, ...] | None,
    progress: Progress | None,
    of: Size = "batch",
    positions: int | None = None,
    limits: Sequence[TimeLimit] = (),
) -> Fits:
    """Find the largest size of every device; the answers are in the order of the devices.

    The search goes from the smallest memory to the largest, so that each device begins with what the others gave.

    Args:
        free: what must stay free; None: what docs/memory.md lists.
        positions: the longest context that the model knows.
        limits: of the times of a token.
    """
    fits = {target.name: _unsearched(target, sizes, free, of, positions) for target in targets}
    records: dict[str, list[Record]] = {}
    open_ = sorted((fit.memory, fit.name) for fit in fits.values() if fit.memory is not None and not fit.reason)
    for n, (_, name) in enumerate(open_):
        if progress is not None:
            progress(n / len(open_), f"{fits[name].case.model} on {name}")
        # Who says what stays free means all that is no tensor.
        libraries = fits[name].device if free is None else None
        peak = partial(sizes.peak, device=libraries)
        fits[name] = fit = in_time(_searched(fits[name], peak, sizes), sizes, limits)
        if fit.late is not None:
            fits[name] = fit = replace(fit, held=peak(fit.size or 1))
        if fit.size:
            one = fit.device
            if one.name not in records:
                records[one.name] = sizes.records(fit.size, one)
            fits[name] = replace(fit, total=Total(records[one.name], one))
    return Fits(
        fits.values(),
        RecordSet(
            [record for fit in fits.values() for record in records.pop(fit.device.name, ())],
            devices={fit.device.name: fit.device for fit in fits.values()},
            failures=dict.fromkeys(_failure(fit) for fit in fits.values() if not fit.size),
            environment=environment.capture(),
        ),
    )


def _unsearched(
    target: AskedDevice, sizes: StepSizes, free: tuple[Reserve, ...] | None, of: Size, positions: int | None
) -> Fit:
    """What is known of a device before any size but one was traced."""
    one = target.one
    lacking = sizes.lacking(one)
    seen, case = memory_seen(one), sizes.case(None, one)
    reason = "memory unknown" if seen is None else ""
    return Fit(
        name=target.name,
        of=of,
        device=one,
        count=target.count,
        positions=positions,
        case=case,
        memory=None if seen is None else seen[0],
        reserves=reserves(one, case.mode) if free is None else free,
        reason=reason if lacking is None else f"no rate for {lacking}",
    )


def _searched(fit: Fit, peak: Callable[[int], Memory], sizes: StepSizes) -> Fit:
    """The answer for a device of known memory, from the memory of a size."""
    assert fit.memory is not None
    memory, free = fit.memory, fit.reserves
    most = CAP if fit.positions is None else fit.positions

    def up_to(cap: int) -> int:
        return largest(lambda size: needed(peak(size), memory, free), memory, sizes.known, cap)

    size = up_to(most)
    shown = size or 1  # where not even one fits, what that would need
    return replace(
        fit,
        case=sizes.case(shown, fit.device),
        size=size,
        capped=size >= most,
        in_memory=_beyond_positions(up_to) if size == fit.positions else None,
        held=peak(shown),
        reason="" if size else f"not even one {fit.unit} fits",
    )


def _beyond_positions(up_to: Callable[[int], int]) -> int | None:
    """Return the longest context in memory, of a model that runs beyond its positions; None where it does not."""
    try:
        return up_to(CAP)
    except ModelError:
        return None


def _failure(fit: Fit) -> Failure:
    """Why a device has no batch, as data."""
    if fit.late is not None:
        message = f"{fit.reason} on {fit.device.name}, and at most {show(fit.late.seconds, 's')} is asked for"
        return Failure(case=fit.case, source="estimate", stage="time", kind="unsupported", message=message)
    if fit.held is None or fit.needed is None or fit.memory is None or fit.cause is None:
        message = f"{fit.device.name}: {fit.reason}, so the {fit.words} is unknown"
        return Failure(case=fit.case, source="estimate", stage="memory", kind="unsupported", message=message)
    share = getattr(fit.held, fit.cause)
    message = (
        f"one {fit.unit} needs {show(fit.needed, 'B')} ({show(fit.held.peak, 'B')} at the peak,"
        f" {show(fit.reserved, 'B')} to stay free), {fit.device.name} has {show(fit.memory, 'B')}; the largest part is"
        f" {fit.cause}, {show(share, 'B')}"
    )
    return Failure(case=fit.case, source="estimate", stage="memory", kind="out of memory", message=message)
