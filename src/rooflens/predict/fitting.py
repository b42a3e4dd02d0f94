"""Reads constants off the times of a suite: each effect's own, from its own calls.

Constants are moved one after the other, by ever smaller factors, while the mean absolute error of the logarithm of the
times falls. Operations are fitted, never steps: a fit of steps finds absurd constants that suit no other model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from rooflens.costs import Arithmetic, cost
from rooflens.predict.call_on_device import CallOnDevice
from rooflens.predict.card import PROCESSOR, card_of
from rooflens.predict.constants import Constants, generation_of
from rooflens.predict.expected import expected_seconds
from rooflens.predict.suite_calls import SuiteCall
from rooflens.records import Device

STAGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("stream",),
        tuple(f"stream.{name}" for name in ("start", "share_wide", "share_narrow", "cached", "full", "empty")),
    ),
    (
        ("copy",),
        tuple(
            f"copy.{name}"
            for name in (
                *("broadcast", "broadcast_narrow", "shift", "roll", "transpose", "cat_long", "cat_each_short"),
                *("cat_one", "cat_all", "expand"),
            )
        ),
    ),
    (
        ("product",),
        (
            *("product.start", "product.rate_fp32", "product.rate_tf32", "product.rate_half", "product.streamed"),
            *("product.unaligned", "product.lone_fp32"),
            *("product.depth_fp32", "product.depth_tf32", "product.depth_half"),
        ),
    ),
    (
        ("convolution",),
        tuple(
            f"convolution.{name}"
            for name in (
                *("start", "relayout", "relayout_pixels", "relayout_taps", "planar", "thin", "fp32", "fft_saves"),
            )
        ),
    ),
    (("stem",), ("convolution.stem", "convolution.stem_half", "convolution.stem_start")),
    (
        ("grouped",),
        (
            "convolution.grouped",
            *(f"groups.{of}_{k}" for k in ("half", "tf32", "fp32", "odd") for of in ("start", "output", "input")),
        ),
    ),
    (
        ("depthwise",),
        tuple(
            f"depthwise.{name}"
            for name in (
                *("planar_output", "planar_tap", "last_output", "last_tap", "read", "share"),
                *("planar_alone", "last_alone", "wide_last"),
            )
        ),
    ),
    (("gradient",), tuple(f"depthwise.{of}_{form}" for of in ("input", "weights") for form in ("planar", "last"))),
    (
        ("norm",),
        tuple(
            f"norm.{name}"
            for name in (
                *("planar_share", "planar_elements", "planes", "alone", "last_start", "plane_wide", "plane_narrow"),
                "row_start", "gradient_rows", "gradient_each",
                *(f"channel_{step}_{kind}" for step in ("training", "gradients") for kind in ("wide", "narrow")),
                *("last_fixed", "last_training", "last_gradients"),
                *(f"{of}_{kind}" for of in ("row_bytes", "rows") for kind in ("wide", "narrow")),
            )
        ),
    ),
    (
        ("attention",),
        tuple(
            f"attention.{name}"
            for name in (
                *("start", "fp32", "fp32_width", "flash", "flash_width", "backward", "masked", "masked_odd", "odd"),
                *("masked_beyond", "decode", "decode_masked", "key", "key_folded"),
            )
        ),
    ),
    (("rows",), ("rows.start", "rows.start_narrow", "rows.share", "rows.row_bytes", "rows.long", "rows.rows")),
    (
        ("pooling",),
        tuple(f"pooling.{name}" for name in ("share", "output", "tap", "last_max", "last_average", "last_start")),
    ),
    (("lookup",), ("lookup.share", "lookup.sorted")),
    (("experts",), ("grouped.start", "grouped.few", "grouped.many", "grouped.streamed")),
    (
        ("routing",),
        tuple(f"routing.{n}" for n in ("count", "largest", "rows", "sort_short", "sort_each", "sort_long", "keys")),
    ),
    (("added",), ("lookup.scatter", "lookup.added_half")),
    (("list",), ("optimizer.start", "optimizer.share")),
)  # fmt: skip
"""Effects whose calls are fitted together, and their constants; a later stage builds on the earlier ones."""
PROCESSOR_STAGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = tuple(
    (effects, tuple(f"processor.{name}" for name in names))
    for effects, names in (
        (("stream", "special", "copy"), ("start", "streamed", "cached", "cache", "fresh", "special", "vector")),
        (("product",), ("product", "few_rows", "read", "read_cached")),
        (("attention",), ("attention",)),
        (
            ("convolution", "stem", "depthwise", "grouped"),
            (
                *("start_convolution", "start_lone", "pixels", "blocks", "written"),
                *("convolution", "pointwise", "grouped", "depthwise"),
            ),
        ),
        (("norm",), ("start_norm", "norm_planes", "norm_rows")),
        (("rows",), ("softmax", "row")),
        (("pooling",), ("pool", "tap")),
    )
)
"""Those of a processor."""
FACTORS = (1.5, 1.2, 1.1, 1.04)
ROUNDS = 2
WEIGHT = 0.5
"""Power of a call's seconds that it weighs: a step's time is mostly that of its long calls, and they are few."""
PRIOR = 0.003
"""Error that a constant has to save to move by a factor of e: the generation's was read off more calls."""
WIDEST = 5.0
"""A constant that would leave its start by more than this factor stays: its calls do not tell it."""


class TimedCall(NamedTuple):
    """A call of the suite, and the seconds that it took."""

    item: SuiteCall
    seconds: float


def fitted(times: Iterable[TimedCall], device: Device) -> dict[str, float]:
    """Return the constants that the times of a suite on a device tell; the search starts at those of its generation."""
    start = generation_of(device)
    values: dict[str, float] = {}
    calls = list(times)
    for effects, names in PROCESSOR_STAGES if device.kind == PROCESSOR else STAGES:
        mine = [(priced(item), seconds) for item, seconds in calls if item.effect in effects]
        if mine:
            values |= _stage(mine, names, start, values, device)
    return values


def priced(item: SuiteCall) -> CallOnDevice:
    """Return a call of the suite as the effects see it."""
    one = cost(item.call, Arithmetic("tf32", "tf32") if item.tf32 else Arithmetic())
    work = one.work if one.kernel_work is None else one.kernel_work
    return CallOnDevice(item.call, one.family, work.flops, work.bytes["dram"], 0.0, 1.0, item.phase, None)


def _stage(
    calls: Sequence[tuple[CallOnDevice, float]],
    names: Sequence[str],
    start: Constants,
    known: Mapping[str, float],
    device: Device,
) -> dict[str, float]:
    """The constants of a stage, moved until no factor makes the error smaller."""
    found = {name: start.values[name] for name in names}

    def costs(values: Mapping[str, float]) -> float:
        moved = sum(abs(log(values[name] / start.values[name])) for name in names if start.values[name])
        return error(calls, start, {**known, **values}, device) + PRIOR * moved

    least = costs(found)
    for factor in FACTORS:
        for _ in range(ROUNDS):
            for name in names:
                for step in (factor, 1 / factor):
                    tried = found[name] * step
                    while start.values[name] / WIDEST <= tried <= start.values[name] * WIDEST:
                        seen = costs({**found, name: tried})
                        if seen >= least - 1e-6:
                            break
                        found[name], least, tried = tried, seen, tried * step
    return found


def error(
    calls: Sequence[tuple[CallOnDevice, float]], start: Constants, values: Mapping[str, float], device: Device
) -> float:
    """Return the mean absolute error of the logarithm of the times, with some constants; longer calls weigh more."""
    card = card_of(device, start.measured(values, device.name, "a suite"))
    assert card is not None
    weights: list[float] = [seconds**WEIGHT for _, seconds in calls]
    errors = (abs(log(expected_seconds(call, card) / seconds)) for call, seconds in calls)
    return sum(weight * one for weight, one in zip(weights, errors, strict=True)) / sum(weights)
