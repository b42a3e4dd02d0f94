"""Catalogues: devices, this machine with measured ceilings, and well-known models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from rooflens.api.arguments import named_options
from rooflens.devices import catalogue, device_text
from rooflens.errors import InvalidValue
from rooflens.known_models import KnownModel, known_models, unknown_model
from rooflens.machine import find, this_machine
from rooflens.notebook import Listed
from rooflens.progress import Progress
from rooflens.records import Device, check_writable, write_atomically

LEAST_BUDGET = 1.0
"""Seconds of the shortest calibration."""


@named_options()
def devices(*, vendor: str | None = None, kind: str | None = None) -> tuple[Device, ...]:
    """Return every device of the catalogue, by canonical name; twin of ``rooflens devices list``.

    >>> [d.name for d in devices(vendor="aws")]
    ['graviton3']

    Args:
        vendor: only devices of this maker; case does not matter.
        kind: only gpu, cpu, tpu, soc or accelerator.

    Raises:
        InvalidValue: no device has this vendor or kind; those that exist are listed.
    """
    chosen = catalogue()
    for field, wanted in (("vendor", vendor), ("kind", kind)):
        if wanted is not None:
            known = sorted({getattr(device, field) for device in catalogue()}, key=str.lower)
            if wanted.lower() not in map(str.lower, known):
                raise InvalidValue(f"unknown {field} {wanted!r}; the catalogue has {', '.join(known)}")
            chosen = tuple(device for device in chosen if getattr(device, field).lower() == wanted.lower())
    return Listed(chosen)


def device(name: str) -> Device:
    """Return the device of a name; twin of ``rooflens devices show``.

    >>> device("t4").require("matmul.fp16").rate
    65000000000000.0

    Args:
        name: a canonical name, an alias, a name that drivers report, ``2x NAME`` for two of them, ``measured`` for
            this machine as :func:`calibrate` measured it, or the path of a device file that ends in ``.toml``. Case and
            separators do not matter.

    Raises:
        UnknownDevice: no device has this name; near names are listed.
        AmbiguousDevice: several have it, and people mostly mean none of them; else that one is taken, with a warning.
        DeviceFileError: the file cannot be read or holds a wrong key or value.
    """
    return find(name)


def models(*words: str) -> tuple[KnownModel, ...]:
    """Return the well-known models, family by family; twin of ``rooflens models``.

    >>> [m.name for m in models("llama", "405b")]
    ['llama-3.1-405b']

    Args:
        words: only models with all of these in a name; case does not matter.

    Raises:
        UnknownModel: no model has them.
    """
    chosen = tuple(model for model in known_models() if all(model.has(word) for word in words))
    if not chosen:
        remedy = " (no name in this list has all of these words; names of torchvision and timm:NAME are models too)"
        raise unknown_model(" ".join(words), remedy=remedy)
    return Listed(chosen)


@named_options()
def calibrate(
    device: str | None = None,
    *,
    output: str | Path | None = None,
    budget: float | None = None,
    quick: bool = False,
    suite: bool = False,
    progress: Progress | None = None,
) -> Device:
    """Measure the ceilings of this machine: matrix, vector and special rates, memory, caches, links and overheads.

    >>> calibrate("cpu", quick=True).require("dram").origin  # doctest: +SKIP
    'measured'

    Args:
        device: ``cpu`` or ``cuda``; default: the GPU if torch has one.
        output: the device file to write. Default: a file in the user's cache, which is the device ``measured`` on this
            machine, with this torch and number of threads.
        budget: seconds for everything; default 90, or 30 with `quick`. The notes name what no time was left for.
        quick: fewer shapes and sizes.
        suite: then also time a suite of operations, for up to 90 s (20 s on a processor), and read the constants of
            predictions off it: the expected time on this device is then of level ``calibrated``.

    Returns:
        The device ``NAME-measured``: for each resource the highest rate of several tries (FLOP/s, B/s), and as facts
        each way to stream memory, each direction of a link, and the seconds to start an operation. A rate that could
        not be measured stays the catalogue's, and the notes name it.

    Raises:
        InvalidValue: torch cannot run there, or the budget is too small.
        OutputError: the file cannot be written; raised before anything is measured.
    """
    if budget is not None and not (isinstance(budget, int | float) and LEAST_BUDGET <= budget < math.inf):
        raise InvalidValue(f"budget is {budget!r}; a calibration takes at least {LEAST_BUDGET:g} s, and has an end")
    here = this_machine(device)
    path = here.stored if output is None else Path(output)
    check_writable(path)
    from rooflens.sources import calibrate as source

    measured = source.calibrate(here.where, here.name, here.title, here.known, progress, budget=budget, quick=quick)
    if suite:
        from rooflens.sources.replay import measured_constants

        measured = replace(measured, constants=measured_constants(measured, progress))
    write_atomically(path, device_text(measured))
    return measured
