"""The largest batch that fits into the memory of each device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rooflens.capacity import AskedDevice, Batches, largest_batches
from rooflens.devices import catalogue
from rooflens.devices.reserves import Reserve, one_of
from rooflens.errors import InvalidValue
from rooflens.machine import find, listed
from rooflens.progress import Progress
from rooflens.records import Device
from rooflens.results import Fits
from rooflens.running.estimating import estimable, tracer
from rooflens.running.graphs import GraphWorkload
from rooflens.runs.options import Fusion, Options
from rooflens.runs.run import is_graph
from rooflens.units import parse

if TYPE_CHECKING:
    import torch

    from rooflens.models import Loss

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
    arguments = locals()
    targets = _targets(device)
    if not isinstance(model, str) and not callable(inputs):
        raise InvalidValue(
            f"the largest batch of {type(model).__name__} needs inputs of any batch; give inputs=function, which takes"
            " the batch size and returns a tensor, a tuple, a dict, or (args, kwargs)"
        )
    asked = estimable(
        model,
        batch=None if is_graph(model) else 1,
        dtype=dtype,
        mode=mode,
        options=Options.of(arguments),
        name=name,
        inputs=inputs,
        loss=loss,
    )
    if isinstance(asked, GraphWorkload) and not asked.has_open_batch:
        raise InvalidValue(
            f"the batch of {model!r} is built in; export the model with an open first dimension to search for one"
        )
    (run,), trace = asked.runs, tracer(asked)
    options = run.options
    batches = Batches(
        lambda batch: trace(replace(run, batch=batch)), run.case(), fusion=options.fusion, causal=options.causal
    )
    return largest_batches(targets, batches, None if reserve is None else (_asked(reserve),), progress)


def _targets(device: str | Device | Sequence[str | Device]) -> list[AskedDevice]:
    found: dict[str, AskedDevice] = {}
    for named in listed(device):
        every = isinstance(named, str) and named.casefold() == ALL
        for whole in catalogue() if every else [find(named) if isinstance(named, str) else named]:
            one, count = one_of(whole)
            target = found.setdefault(whole.name, AskedDevice(name=whole.name, one=one, count=count, may_lack=every))
            if target.one != one:
                raise InvalidValue(f"two different devices are called {whole.name!r}; give yours another title")
    if not found:
        raise InvalidValue("largest_batch needs a device; name one or several, or 'all' for the whole catalogue")
    return list(found.values())


def _asked(reserve: str | float) -> Reserve:
    nbytes = parse(reserve, "B") if isinstance(reserve, str) else reserve
    if isinstance(nbytes, bool) or not isinstance(nbytes, int | float) or not 0 <= nbytes < math.inf:
        raise InvalidValue(f"reserve is {reserve!r}; give 0 or more bytes, like '2 GB'")
    return Reserve(what="whatever needs it", nbytes=math.ceil(nbytes), reference="as asked")
