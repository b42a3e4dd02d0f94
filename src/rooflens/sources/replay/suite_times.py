"""Times the suite on this machine's GPU or processor, and reads the constants of predictions off it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rooflens.errors import RooflensError
from rooflens.predict import card_of, expected_seconds
from rooflens.predict.card import PROCESSOR
from rooflens.predict.fitting import TimedCall, fitted, priced
from rooflens.predict.processor_suite import processor_suite
from rooflens.predict.suite import SuiteCall, suite
from rooflens.progress import Progress, waiting
from rooflens.records import Device
from rooflens.sources.calibrate.host_costs import host_costs
from rooflens.sources.device_lock import alone_on
from rooflens.sources.replay.operands import Untimed
from rooflens.sources.replay.processor_times import processor_times
from rooflens.sources.replay.timed_calls import products_in, timed_call

SECONDS = 75.0
"""For the times; what is left of 90 s goes to the fit."""
PROCESSOR_SECONDS = 15.0


def measured_constants(device: Device, progress: Progress | None = None) -> dict[str, float]:
    """Return the constants of a device that its own times tell, by name, in four digits.

    Raises:
        RooflensError: no call of the suite could be timed.
    """
    where = "cpu" if device.kind == PROCESSOR else "cuda"
    with alone_on(where, waiting(progress)):
        times = (
            processor_times(processor_suite(), PROCESSOR_SECONDS, progress)
            if where == "cpu"
            else list(suite_times(device, suite(), SECONDS, progress))
        )
        host = host_costs(where)
    if not times:
        raise RooflensError("no operation of the suite could be timed on this device")
    return {name: float(f"{value:.3e}") for name, value in {**fitted(times, device), **host}.items()}


def suite_times(
    device: Device,
    calls: Sequence[SuiteCall],
    seconds: float,
    progress: Progress | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[TimedCall]:
    """Time calls in turn until the seconds are over; those that cannot be run here are left out."""
    end, card = now() + seconds, card_of(device)
    for number, item in enumerate(calls):
        if now() > end:
            return
        if progress is not None:
            progress(number / len(calls), f"suite: {item.effect}")
        expected = 20e-6 if card is None else expected_seconds(priced(item), card)
        try:
            with products_in(item.tf32):
                yield TimedCall(item, timed_call(item.call, expected))
        except Untimed:
            continue
