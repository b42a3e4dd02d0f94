"""Checks of measured times by the band of the expected time: far outside of it another step ran, or ran otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rooflens import units
from rooflens.checks.context import Context, fold
from rooflens.checks.registry import Doubt, check, needs
from rooflens.predict import Prediction, way_of
from rooflens.predict.bands import Regime
from rooflens.results import Evidence, Measured, join

FAR: Mapping[Regime, float] = {"device-bound": 2, "graph": 2, "mixed": 3, "host-bound": 3, "in turn": 3}
"""Times the upper end of the band. Where the host has a part, hosts differ by a factor of two. Of the own times
(benchmarks/prediction/far.py) the farthest is 1.6 upper ends where the device decides, else 2.7."""
NEAR = 0.5
"""Of the lower end of the band. Of the own times of steps the farthest is 0.67 of it."""
LARGE = 0.3
"""The share of a family in the device's time above which its kernel may be what differs."""
FEW = 3
"""Samples below which nobody can tell whether a step was warm."""
_SWITCHED = {
    "tf32": "products ran in fp32 (TF32 was off)",
    "bf16": "products ran in fp32",
    "fp16": "products ran in fp32",
    "amp-bf16": "products ran in fp32 (autocast was off)",
    "amp-fp16": "products ran in fp32 (autocast was off)",
}


@check(
    "slower-than-expected",
    "warning",
    "look at clock and power, warm up, and profile a step (`--profile`)",
    "A step took more than twice the upper end of its band (three times where the host has a part)",
)
@check(
    "faster-than-expected",
    "info",
    "look whether dtype, size and options are those of the estimate",
    "A step took less than half of the lower end of its band",
)
@needs("measure")
def outside_the_band(context: Context) -> Iterator[Doubt]:
    """A measured step is far outside of the band of its expected time."""
    for item in join(context.records):
        measured, total = item.measured(), item.total()
        found = None if total is None or "measure" not in item.sources else total.prediction
        if found is None or measured is None or measured.pieces or found.regime == "pieces":
            continue
        slow = measured.seconds > FAR[found.regime] * found.high
        if slow or measured.seconds < NEAR * found.low:
            reasons = _slowed(item, measured, found) if slow else _quickened(item, measured, found)
            ratio = measured.seconds / found.seconds
            yield Doubt(
                item.case.label(),
                f"{units.show(measured.seconds, 's')} is {fold(ratio)} times the expected"
                f" {units.show(found.seconds, 's')} ({units.show_range(found.low, found.high, 's')} should hold 8 of 10"
                f" measured times); what would explain it: {'; '.join(reasons)}",
                {
                    "s": measured.seconds,
                    "expected s": found.seconds,
                    "expected low s": found.low,
                    "expected high s": found.high,
                    "ratio": ratio,
                },
                "slower-than-expected" if slow else "faster-than-expected",
            )


def _slowed(item: Evidence, measured: Measured, found: Prediction) -> Iterator[str]:
    """Yield what makes a step slower than expected, of what may be true of this one."""
    yield from item.doubts
    if found.host is not None and measured.seconds < 10 * found.host:
        yield f"the host launches {fold(measured.seconds / found.host)} times as slowly as assumed, or does other work"
    if found.regime == "in turn":
        yield "others used the processor, or it ran with fewer threads or a lower clock"
    elif found.regime != "host-bound":
        share = found.device / measured.seconds
        yield f"clock or power was held down (to {100 * share:.0f} %, if by the clock alone), or others use the card"
    if measured.timing is None or len(measured.timing.samples) < FEW:
        yield "the step was not warm: few samples are known"
    switched = _SWITCHED.get(item.case.dtype)
    if switched is not None and _has(found, "convolution", "matmul"):
        yield switched
    if _has(found, "convolution") and not dict(item.case.options).get("channels_last") and item.case.dtype in _SWITCHED:
        yield "images are copied into another layout for each convolution"
    if _has(found, "attention"):
        yield "attention ran by another kernel, or was written out"
    yield "an operation has no fast kernel in this version"


def _quickened(item: Evidence, measured: Measured, found: Prediction) -> Iterator[str]:
    """Yield what makes a step faster than expected, of what may be true of this one."""
    turns = found.regime == "in turn"
    if measured.timing is not None and measured.timing.origin == "monotonic" and not turns:
        yield "the clock was read before the device had finished"
    if found.regime in ("host-bound", "mixed") and way_of(dict(item.case.options)) == "eager":
        yield "the step was compiled or captured in a CUDA graph, or the host is faster than assumed"
    if item.case.dtype in ("fp32", "default") and not turns and _has(found, "convolution", "matmul"):
        yield "products ran in TF32"
    if _has(found, "convolution"):
        yield "convolutions ran by another algorithm, or in another layout"
    if _has(found, "attention"):
        yield "attention ran by another kernel"
    yield "a smaller size, or a part of the step, was timed"


def _has(found: Prediction, *families: str) -> bool:
    """True if some families take much of the device's time."""
    return sum(found.families.get(family, 0.0) for family in families) > LARGE * found.device
