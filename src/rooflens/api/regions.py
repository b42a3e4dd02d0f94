"""The user's own training loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.models import check_torch
from rooflens.records import AS_IS, Device

if TYPE_CHECKING:
    import torch

    from rooflens.regions.loop import Region


def region(
    name: str,
    *,
    model: torch.nn.Module | None = None,
    trace: torch.nn.Module | None = None,
    skip: int | None = None,
    iterations: int | None = None,
    batch: int | None = None,
    mode: str | None = None,
    dtype: str = AS_IS,
    device: str | None = None,
    roof: str | Device | None = None,
    save: str | Path | None = None,
    show: bool = False,
) -> Region:
    """Time the iterations of a loop that is there already, data loading apart: around a loader, a block or a function.

    >>> region = rl.region("train step", model=model, save="run.jsonl")  # doctest: +SKIP
    >>> for images, target in region.over(train_loader):  # doctest: +SKIP
    ...     ...

    Nothing of the loop is changed: no switch is set, no counter reset, and while iterations are timed the device is
    waited for only once before the first and once after the last. Afterwards the loop runs as if nothing were there.

    Made again at the same place after it was entered once, as in ``with rl.region("train step"):`` within a loop, it is
    the same region: each entry is one iteration. One without a model, entered inside another, is a part of that one's
    iterations and stands in its records.

    Args:
        name: what to call it.
        model: the module whose step this is: names the case, tells the mode and the device, and is not touched.
        trace: the same, and the work of its step is counted in one more iteration, which is not timed.
        skip: iterations before the first one that is timed; default 10.
        iterations: how many to time; default 50.
        batch: samples per iteration; default: the length of the first tensor that the loader gives.
        mode: ``train`` or ``inference``; default: the model's own flag, else whether gradients are recorded.
        dtype: what to call the precision that you run in (``amp-bf16``); it changes nothing.
        device: ``cpu`` or ``cuda``; default: where the model's parameters are.
        roof: the device whose ceilings hold for this machine: a name, a device file, or ``measured`` for those that
            ``rooflens calibrate`` kept. Default: the catalogue's entry.
        save: a record file, written when the iterations are done, and at the end of a loop that was shorter. In a
            distributed run the first rank writes it.
        show: print the table when the iterations are done.

    Raises:
        InvalidValue: an argument cannot be used; a compiled model is traced.
        UnknownDevice: `roof` names no device.
        OutputError: `save` cannot be written.
    """
    check_torch()
    from rooflens.regions.loop import region_at
    from rooflens.regions.plan import Plan

    plan = Plan(
        name=name,
        skip=skip,
        iterations=iterations,
        batch=batch,
        mode=mode,
        dtype=dtype,
        device=device,
        roof=roof,
        save=save,
        show=show,
        counts=trace is not None,
    )
    return region_at(sys._getframe(1).f_code, plan, model, trace)
