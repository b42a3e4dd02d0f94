"""The ceilings of this machine, measured and kept."""

from __future__ import annotations

import math
from pathlib import Path

from rooflens.devices import device_text
from rooflens.errors import InvalidValue
from rooflens.machine import identity
from rooflens.progress import Progress
from rooflens.records import Device, check_writable, write_atomically

LEAST_BUDGET = 1.0


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
