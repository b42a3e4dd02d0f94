"""Checks of ceilings, and of times that were computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from rooflens import units
from rooflens.checks.context import Context, close, fold
from rooflens.checks.prefix_factors import prefix_factor
from rooflens.checks.registry import Doubt, check, needs, of_each
from rooflens.devices import catalogue, catalogued_or_none
from rooflens.records import Ceiling, Device
from rooflens.reported.figures import QUANTITIES, ReportedFigure
from rooflens.reported.right_values import precision_of

RIDGE = 0.02
RATE = 0.1
"""Datasheets of one device disagree by so much: boost and base clocks, rounding."""
OTHER = 1.5
EXACTLY = 0.01
NOISE = 1.05


@check("ridge-off", "error", "divide: the ridge is peak over bandwidth, of one device and one precision")
@of_each("ridge")
def ridge_off(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """A stated ridge is not the stated peak over the bandwidth; what is not stated are the catalogue's."""
    device = context.device(figure)
    stated = context.of_device(figure, "peak")
    # A peak without a dtype may be that of any ridge, and a ridge without one that of any peak.
    peaks = [(v, f.precision) for f, v in stated if f.dtype == figure.dtype or "" in (f.dtype, figure.dtype)]
    rates = [(v, f.precision) for f, v in context.of_device(figure, "bandwidth")]
    slack = RIDGE if peaks and rates else RATE
    if device is not None:
        peaks = peaks or [(rate, 0.0) for rate in _rates(replace(figure, quantity="peak"), device).values()]
        rates = rates or [(rate, 0.0) for rate in _rates(replace(figure, quantity="bandwidth"), device).values()]
    right = [(top / below, one + other, top, below) for top, one in peaks for below, other in rates]
    if not right or any(close(value, each, slack + error + figure.precision) for each, error, _, _ in right):
        return
    nearest, _, peak, rate = min(right, key=lambda each: abs(each[0] - value))
    yield Doubt(
        figure.subject,
        f"{value:.4g} FLOP/B is not {units.show(peak, 'FLOP/s')} over {units.show(rate, 'B/s')}, which is"
        f" {nearest:.4g}: work between the two is wrongly called memory-bound or compute-bound",
        {"ridge FLOP/B": value, "peak over bandwidth FLOP/B": nearest, "ratio": value / nearest},
    )


def own_rates(figure: ReportedFigure, device: Device) -> list[float]:
    """The rates of a device that a stated peak or bandwidth may mean."""
    if figure.quantity == "bandwidth":
        return [c.rate for c in device.ceilings if c.resource == "dram"]
    return [c.rate for c in device.ceilings if c.resource in (f"matmul.{figure.dtype}", f"vector.{figure.dtype}")]


def link_of(device: Device, value: float) -> str:
    """The link that has this bandwidth, both ways or one; "" for none.

    It is one of the device's own, or the PCIe of another device: a card sits in slots of several generations.
    """
    memory = device.ceiling("dram")
    if memory is None or value >= memory.rate:
        return ""
    own = [(c.resource, c.rate, RATE) for c in device.ceilings if c.silicon == "link"]
    others = [("pcie", rate, RIDGE) for rate in _slots()] if device.kind == "gpu" else []
    fits = (name for name, rate, slack in (*own, *others) for ways in (1, 2) if close(value, rate / ways, slack))
    return next(fits, "")


@cache
def _slots() -> frozenset[float]:
    """The rates of PCIe that devices of the catalogue have."""
    return frozenset(c.rate for device in catalogue() for c in device.ceilings if c.resource == "pcie")


def _rates(figure: ReportedFigure, device: Device) -> dict[str, float]:
    """The ceilings of a device that a stated peak or bandwidth means, by resource."""
    if figure.quantity == "bandwidth":
        return {c.resource: c.rate for c in device.ceilings if c.resource == "dram"}
    fitting = {c.resource: c.rate for c in device.ceilings if c.silicon in ("tensor", "fma")}
    if not figure.dtype:
        return fitting
    # What is called fp32 may be the TF32 rate: then the label is loose, and the figure is not wrong.
    dtype = figure.dtype.removeprefix("amp-")
    names = {"default": ("fp32", "tf32")}.get(dtype, (dtype,))
    return {resource: rate for resource, rate in fitting.items() if resource.partition(".")[2] in names}


@check("device-off", "warning", "give the device a name of its own, or use the catalogue's rates")
@needs("figures", "records")
def device_off(context: Context) -> Iterator[Doubt]:
    """A device that a file brings along has other rates than the catalogue's device of the same name."""
    for device in context.devices.values():
        known = catalogued_or_none(device.name)
        pairs = [] if known is None else [(c, known.ceiling(c.resource)) for c in device.ceilings]
        ratios = {c.resource: c.rate / own.rate for c, own in pairs if own is not None and _is_other(c, own)}
        if not ratios:
            continue
        resource = max(ratios, key=lambda name: abs(math.log(ratios[name])))
        more = f", and {len(ratios) - 1} further rates are others" if len(ratios) > 1 else ""
        yield Doubt(
            device.name,
            f"the file's rate of {resource} is {ratios[resource]:.3g} times the catalogue's{more}: bounds and"
            " efficiencies follow those of the file",
            {"ratio": ratios[resource], "rates": len(ratios)},
        )


def _is_other(found: Ceiling, known: Ceiling) -> bool:
    """True if clocks and limits of power do not explain the difference. What was measured may be lower."""
    return found.rate > OTHER * known.rate or (found.origin != "measured" and known.rate > OTHER * found.rate)


@check(
    "peak-without-source",
    "warning",
    "draw the bandwidth only, or name where the rate comes from",
    "A peak is stated for which the catalogue has no rate",
)
@check(
    "link-as-memory",
    "error",
    "draw DRAM traffic under the DRAM bandwidth",
    "A stated memory bandwidth is that of PCIe or NVLink",
)
@check(
    "sparse-peak",
    "error",
    "use the dense rate, half of it, unless the weights are pruned 2:4",
    "A stated peak is twice the dense one: 2:4 sparsity",
)
@check(
    "peak-of-other-dtype",
    "error",
    "draw work under the roof of the precision in which it runs",
    "A stated peak is that of another dtype",
)
@check(
    "rate-off",
    "warning",
    "look the device up with `rooflens devices show`, or name the source",
    "A stated peak or bandwidth is 10 % off the device's",
)
@of_each("peak", "bandwidth")
def stated_rates(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """A stated peak or bandwidth is not the device's: what it is instead, as far as that is known."""
    device = context.device(figure)
    if device is None:
        return
    own = _rates(figure, device)
    if any(close(value, rate, RATE) for rate in own.values()):
        return
    if figure.quantity == "bandwidth":
        if link := link_of(device, value):
            yield _link(figure, value, device, own, link)
        elif own and not _differs_by_prefix(figure, value, own):
            yield _rate_off(figure, value, device, own)
    elif not _differs_by_prefix(figure, value, own):
        yield _other_peak(figure, value, device, own)


def _differs_by_prefix(figure: ReportedFigure, value: float, own: Mapping[str, float]) -> bool:
    """True if the figure is a rate of the device but for a prefix, which another check says."""
    return any(prefix_factor(figure, value, rate) for rate in own.values())


def _link(figure: ReportedFigure, value: float, device: Device, own: Mapping[str, float], link: str) -> Doubt:
    return Doubt(
        figure.subject,
        f"{units.show(value, 'B/s')} is the {link} of {device.name}, not its memory's: points will lie above this roof",
        {"stated B/s": value, **{f"{name} B/s": rate for name, rate in own.items()}},
        "link-as-memory",
    )


def _rate_off(figure: ReportedFigure, value: float, device: Device, own: Mapping[str, float]) -> Doubt:
    unit = QUANTITIES[figure.quantity]
    nearest = min(own, key=lambda resource: abs(own[resource] - value))
    return Doubt(
        figure.subject,
        f"{units.show(value, unit)} is {fold(value / own[nearest])} times {units.show(own[nearest], unit)}, the"
        f" {nearest} of {device.name}: another variant, number of chips, or clock",
        {f"stated {unit}": value, f"{nearest} {unit}": own[nearest], "ratio": value / own[nearest]},
        "rate-off",
    )


def _other_peak(figure: ReportedFigure, value: float, device: Device, own: Mapping[str, float]) -> Doubt:
    """What a stated peak really is that is not the device's."""
    shown = units.show(value, "FLOP/s")
    compute = [c for c in device.ceilings if c.silicon in ("tensor", "fma")]
    for ceiling in compute:
        if ceiling.resource in own and ceiling.silicon == "tensor" and close(value, 2 * ceiling.rate, EXACTLY):
            return Doubt(
                figure.subject,
                f"{shown} is twice the dense {ceiling.resource} of {device.name}: the rate with 2:4 sparsity, which"
                " dense models cannot reach; efficiencies under it are halved",
                {"stated FLOP/s": value, "dense FLOP/s": own[ceiling.resource], "ratio": value / own[ceiling.resource]},
                "sparse-peak",
            )
    for ceiling in compute:
        if ceiling.resource not in own and close(value, ceiling.rate, EXACTLY):
            right = ", ".join(f"{name} {units.show(rate, 'FLOP/s')}" for name, rate in own.items()) or "unknown"
            return Doubt(
                figure.subject,
                f"{shown} is labelled {figure.dtype}, but it is the {ceiling.resource} of {device.name}"
                f" (its {figure.dtype}: {right})",
                {"stated FLOP/s": value, "resource": ceiling.resource, **{f"{n} FLOP/s": r for n, r in own.items()}},
                "peak-of-other-dtype",
            )
    if own:
        return _rate_off(figure, value, device, own)
    has = ", ".join(c.resource for c in device.ceilings) or "none"
    return Doubt(
        figure.subject,
        f"{shown} {figure.dtype} is stated, but no source gives {device.title} such a rate (it has {has}): it may not"
        " compute in this precision at all",
        {"stated FLOP/s": value},
        "peak-without-source",
    )


@check("wrong-roof", "error", "divide by the peak of the precision in which the work runs")
@of_each("estimated_time")
def wrong_roof(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """An estimated time is the FLOP over a higher peak, of a precision in which the work does not run."""
    device = context.device(figure)
    if device is None:
        return
    runs_in = (f"matmul.{p}" for p in ("fp32", precision_of(context.quickest(figure).loose_dtype, device)))
    own = {c.rate for c in map(device.ceiling, runs_in) if c is not None}
    for _, flops in context.beside(figure, "flops"):
        # A lower roof makes the estimate too careful; other reasons may do that.
        other = [c for c in device.ceilings if c.silicon in ("tensor", "fma") and c.rate > max(own, default=0.0)]
        used = next((c for c in other if close(flops / value, c.rate, 2e-3 + figure.precision)), None)
        if used is not None:
            yield Doubt(
                figure.subject,
                f"{units.show(value, 's')} is {units.show(flops, 'FLOP')} at {units.show(used.rate, 'FLOP/s')}, the"
                f" {used.resource} of {device.name}, but the work is {figure.dtype or 'fp32'}: too high a roof",
                {"estimated s": value, "FLOP": flops, "used FLOP/s": used.rate, "resource": used.resource},
            )


@check("estimate-below-bound", "error", "take traffic and peak of the case: `rooflens estimate MODEL --device NAME`")
@of_each("estimated_time")
def estimate_below_bound(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """An estimated time is below the bound."""
    least = context.bound(figure)
    if least is not None and 0 < value * (NOISE + figure.precision) < least:
        yield Doubt(
            figure.subject,
            f"{units.show(value, 's')} is below the bound of {units.show(least, 's')}: FLOP or traffic are too"
            " small, or a ceiling too high",
            {"estimated s": value, "bound s": least, "bound over estimate": least / value},
        )
