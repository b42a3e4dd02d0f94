"""The largest batch that fits into the memory of each device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rooflens.api.batches import Batches
from rooflens.api.cases import Request, fused_by, is_graph, request
from rooflens.api.graphs import GraphRequest, graph_request, refuse_dims
from rooflens.costs import Fusion
from rooflens.devices import catalogue
from rooflens.devices.capacity import Reserve, needed, one_of, reserves
from rooflens.errors import InvalidValue
from rooflens.machine import find, listed
from rooflens.models import Loss
from rooflens.progress import Progress
from rooflens.records import Device, Failure, Record
from rooflens.results import Fit, Fits, RecordSet, Total
from rooflens.units import parse, show

if TYPE_CHECKING:
    import torch

ALL = "all"
"""As a device: every one of the catalogue."""


def largest_batch(
    model: str | torch.nn.Module,
    *,
    device: str | Device | Sequence[str | Device],
    inputs: Callable[[int], Any] | None = None,
    dtype: str | None = None,
    mode: str = "inference",
    loss: Loss | None = None,
    optimizer: str = "sgd",
    fused: bool = False,
    img_size: int | None = None,
    seq_len: int | None = None,
    dims: Mapping[str, int] | None = None,
    channels_last: bool = False,
    causal: bool = False,
    fusion: Fusion = "none",
    compile: bool = False,
    name: str | None = None,
    reserve: str | float | None = None,
    progress: Progress | None = None,
) -> Fits:
    """The largest batch of a step that fits into a device's memory, beside the context and workspaces.

    >>> largest_batch("resnet18", device="t4", mode="train").batch  # doctest: +SKIP
    579

    The peak is traced for the answer and for one sample more: the first fits and the second does not.

    Args:
        device: names, device files or devices; ``all`` is the whole catalogue. ``2x NAME`` is data parallel: the whole
            model on each of them, and a batch of its own.
        inputs: of a module that is handed in: a function from the batch size to its inputs.
        reserve: what stays free of each device's memory, in bytes or like ``2 GB``, instead of the figures that
            docs/memory.md lists.
        (others): as in :func:`estimate`.

    Returns:
        One answer per device, and the estimates at these batches.

    Raises:
        DataDependent: shapes depend on values, so that every batch would have to be run.
        InvalidValue, UnknownModel, UnknownDevice, MissingCeiling, ModelError: see :mod:`rooflens.errors`. A device of
            ``all`` that has no rate for the step's precision is no error but an answer without a batch.
    """
    fusion = fused_by(compile, fusion)
    words = {
        "dtype": dtype,
        "mode": mode,
        "loss": loss,
        "optimizer": optimizer,
        "fused": fused,
        "img_size": img_size,
        "seq_len": seq_len,
        "channels_last": channels_last,
        "fusion": fusion,
        "causal": causal,
        "name": name,
    }
    targets = _targets(device)
    batches = Batches(_request(model, inputs, dims, words), inputs, fusion=fusion, causal=causal)
    free = None if reserve is None else (_asked(reserve),)
    return _gathered([_begun(target, batches, free) for target in targets], batches, progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A device that was asked for: one of it, how many, and whether it may lack a rate."""

    name: str
    one: Device
    count: int
    may_lack: bool


def _targets(device: str | Device | Sequence[str | Device]) -> list[_Target]:
    found: dict[str, _Target] = {}
    for named in listed(device):
        every = isinstance(named, str) and named.casefold() == ALL
        for whole in catalogue() if every else [find(named) if isinstance(named, str) else named]:
            one, count = one_of(whole)
            target = found.setdefault(whole.name, _Target(name=whole.name, one=one, count=count, may_lack=every))
            if target.one != one:
                raise InvalidValue(f"two different devices are called {whole.name!r}; give yours another title")
    if not found:
        raise InvalidValue("largest_batch needs a device; name one or several, or 'all' for the whole catalogue")
    return list(found.values())


def _request(
    model: str | torch.nn.Module,
    inputs: Callable[[int], Any] | None,
    dims: Mapping[str, int] | None,
    words: dict[str, Any],
) -> Request | GraphRequest:
    """The request for one sample."""
    if is_graph(model):
        asked = graph_request(model, inputs=inputs, batch=None, dims=dims, **words)
        if not asked.has_open_batch:
            raise InvalidValue(
                f"the batch of {model!r} is built in; export the model with an open first dimension to search for one"
            )
        return asked
    refuse_dims(dims)
    if not isinstance(model, str) and not callable(inputs):
        raise InvalidValue(
            f"the largest batch of {type(model).__name__} needs inputs of any batch; give inputs=function, which takes"
            " the batch size and returns a tensor, a tuple, a dict, or (args, kwargs)"
        )
    return request(model, inputs=inputs, batch=1, **words)


def _asked(reserve: str | float) -> Reserve:
    nbytes = parse(reserve, "B") if isinstance(reserve, str) else reserve
    if isinstance(nbytes, bool) or not isinstance(nbytes, int | float) or not 0 <= nbytes < math.inf:
        raise InvalidValue(f"reserve is {reserve!r}; give 0 or more bytes, like '2 GB'")
    return Reserve(what="whatever needs it", nbytes=math.ceil(nbytes), reference="as asked")


def _begun(target: _Target, batches: Batches, free: tuple[Reserve, ...] | None) -> Fit:
    """What is known of a device before any batch but one was traced.

    Raises:
        MissingCeiling: a device that was named has no rate for the step.
    """
    one = target.one
    lacking = batches.lacking(one)
    if lacking is not None and not target.may_lack:
        one.require(lacking)
    memory, case = one.facts.get("memory"), batches.case(None, one)
    begun = Fit(
        name=target.name,
        device=one,
        count=target.count,
        case=case,
        memory=None if memory is None else int(memory.value),
        reserves=reserves(one, case.mode, batches.demands(one)) if free is None else free,
    )
    if lacking is not None:
        return replace(begun, reason=f"no rate for {lacking}")
    return begun if memory is not None else replace(begun, reason="memory unknown")


def _gathered(begun: Sequence[Fit], batches: Batches, progress: Progress | None) -> Fits:
    """The answers in the order of the devices.

    They are looked for from the smallest memory to the largest, so that each begins with what the others found.
    """
    from rooflens.sources import environment

    fits = {fit.name: fit for fit in begun}
    records: dict[str, list[Record]] = {}
    open_ = sorted((fit.memory, fit.name) for fit in begun if fit.memory is not None and not fit.reason)
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


def _searched(fit: Fit, batches: Batches) -> Fit:
    """The answer for a device of known memory."""
    from rooflens.sources.capacity import CAP, largest

    assert fit.memory is not None
    memory, free = fit.memory, fit.reserves
    batch = largest(lambda size: needed(batches.held(size), memory, free), memory, batches.known)
    shown = batch or 1  # where not even one sample fits, what that would need
    return replace(
        fit,
        case=batches.case(shown, fit.device),
        batch=batch,
        capped=batch >= CAP,
        held=batches.held(shown),
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
