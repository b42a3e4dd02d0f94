"""Devices: those of the catalogue, and this machine as it is calibrated."""

from __future__ import annotations

import math
from pathlib import Path

from rooflens.devices import catalogue, device_text
from rooflens.errors import InvalidValue
from rooflens.machine import find, identity
from rooflens.progress import Progress
from rooflens.records import Device, check_writable, write_atomically

LEAST_BUDGET = 1.0
"""Seconds of the shortest calibration."""


def devices(*, vendor: str | None = None, kind: str | None = None) -> tuple[Device, ...]:
    """Every device of the catalogue, by canonical name; twin of ``rooflens devices list``.

    >>> [d.name for d in devices(vendor="aws")]
    ['graviton3']

    Args:
        vendor: only devices of this maker; case does not matter.
        kind: only gpu, cpu, tpu, soc or accelerator.

    Raises:
        InvalidValue: no device has this vendor or kind; those that exist are listed.
    """
    found = catalogue()
    if vendor is not None:
        maker = _known("vendor", vendor, {device.vendor for device in found})
        found = tuple(device for device in found if device.vendor == maker)
    if kind is not None:
        wanted = _known("kind", kind, {device.kind for device in catalogue()})
        found = tuple(device for device in found if device.kind == wanted)
    return found


def _known(what: str, wanted: str, known: set[str]) -> str:
    """`wanted` as the catalogue spells it."""
    spelled = next((value for value in known if value.lower() == wanted.lower()), None)
    if spelled is None:
        listed = ", ".join(sorted(known, key=str.lower))
        raise InvalidValue(f"unknown {what} {wanted!r}; the catalogue has {listed}")
    return spelled


def device(name: str) -> Device:
    """The device of this name; twin of ``rooflens devices show``.

    >>> device("t4").require("matmul.fp16").rate
    65000000000000.0

    Args:
        name: a canonical name, an alias, a name that drivers report, ``2x NAME`` for two of them, ``measured``
            for this machine as :func:`calibrate` found it, or the path of a device file that ends in ``.toml``. Case
            and separators do not matter.

    Raises:
        UnknownDevice: no device has this name; near names are listed.
        AmbiguousDevice: several have it; they are listed.
        DeviceFileError: the file cannot be read or holds a wrong key or value.
    """
    return find(name)


def calibrate(
    device: str | None = None,
    *,
    output: str | Path | None = None,
    budget: float | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> Device:
    """Measure the ceilings of this machine: matrix, vector and special rates, memory, caches, links and overheads.

    >>> calibrate("cpu", quick=True).require("dram").origin  # doctest: +SKIP
    'measured'

    Args:
        device: ``cpu`` or ``cuda``; default is the GPU where torch has one.
        output: the device file to write. Default: the user's cache, where the device name ``measured`` and
            ``measure(roof="measured")`` find it on this machine, with this torch and number of threads.
        budget: seconds for all of it; default 90, or 30 if it is to be quick. Parts for which no time is left are
            named in the notes.
        quick: fewer shapes and sizes.

    Returns:
        The device ``NAME-measured``: the highest rate of several tries for each resource (FLOP/s, B/s), and as facts
        each way to stream memory, each direction of a link, and the seconds that starting an operation takes. What
        could not be measured keeps the catalogue's rate with its own origin, and is named in the notes.

    Raises:
        InvalidValue: torch cannot run there, or the budget is too small.
        OutputError: the file cannot be written; found out before anything is measured.
    """
    if budget is not None and not (isinstance(budget, int | float) and LEAST_BUDGET <= budget < math.inf):
        raise InvalidValue(f"budget is {budget!r}; a calibration takes at least {LEAST_BUDGET:g} s, and has an end")
    here = identity(device)
    path = here.stored if output is None else Path(output)
    check_writable(path)
    from rooflens.sources import calibrate as source

    found = source.calibrate(here.where, here.name, here.title, here.known, progress, budget=budget, quick=quick)
    write_atomically(path, device_text(found))
    return found
