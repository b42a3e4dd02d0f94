"""The user's own training loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rooflens.api.arguments import named_options
from rooflens.errors import check_torch
from rooflens.records import AS_IS, Device

if TYPE_CHECKING:
    import torch

    from rooflens.regions.loop import Region


@named_options()
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
    """Time the iterations of your own loop, data loading apart: around a loader, a block or a function.

    >>> region = rl.region("train step", model=model, save="run.jsonl")  # doctest: +SKIP
    >>> for images, target in region.over(train_loader):  # doctest: +SKIP
    ...     ...

    The loop stays as it is: no switch is set and no counter reset. The host waits for the device only twice, before the
    first timed iteration and after the last. From then on the loop runs as if there were no region.

    ``with rl.region("train step"):`` inside a loop is one region: each entry is one iteration. A region without a
    model, entered inside another, is part of its iterations and stands in its records.

    Args:
        name: what to call it.
        model: the module whose step this is; it names the case and gives mode and device. It is not touched.
        trace: like `model`; in addition one more iteration is not timed, and its work is counted.
        skip: iterations before the first one that is timed; default 10.
        iterations: how many to time; default 50.
        batch: samples per iteration; default: the length of the first tensor that the loader gives.
        mode: ``train`` or ``inference``; default: the model's own flag, else whether gradients are recorded.
        dtype: the name of the precision that you run in (``amp-bf16``); it changes nothing.
        device: ``cpu`` or ``cuda``; default: where the model's parameters are.
        roof: the device whose ceilings hold for this machine: a name, a device file, or ``measured`` (by
            ``rooflens calibrate``). Default: the catalogue's entry.
        save: a record file, written when the iterations are done or a shorter loop ends. In a distributed run the
            first rank writes it.
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
    # The caller is two frames away: between them is the check of names.
    return region_at(sys._getframe(2).f_code, plan, model, trace)
