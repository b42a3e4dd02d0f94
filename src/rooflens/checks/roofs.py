"""Checks of ceilings, and of what stands above them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rooflens import units
from rooflens.checks.context import Context, close, fold, lenient
from rooflens.checks.expected import Expected, precision_of
from rooflens.checks.figures import Figure
from rooflens.checks.registry import Doubt, check
from rooflens.checks.traffic import bandwidths, last_level_cache
from rooflens.checks.work import prefix_slip
from rooflens.errors import MissingCeiling
from rooflens.records import Device, Record
from rooflens.roofline import bound

RIDGE = 0.02
RATE = 0.1
"""Datasheets of one device disagree by so much: boost and base clocks, rounding."""
EXACTLY = 0.01
NOISE = 1.05
BOOST = 1.15
"""Times the datasheet's rate that a clock above the stated one allows."""
WINOGRAD = 2.25
"""Multiplications that F(2x2, 3x3), the usual tile, saves."""


@check("ridge-off", "error", "divide: the ridge is peak over bandwidth, of one device and one precision")
def ridge_off(context: Context) -> Iterator[Doubt]:
    """A stated ridge is not the stated peak over the stated bandwidth."""
    for figure, value in context.stated("ridge"):
        peaks = [v for f, v in context.stated("peak") if _same_roof(f, figure) and f.dtype == figure.dtype]
        rates = [v for f, v in context.stated("bandwidth") if _same_roof(f, figure)]
        if len(peaks) != 1 or len(rates) != 1 or rates[0] <= 0:
            continue
        right = peaks[0] / rates[0]
        if not close(value, right, RIDGE + figure.precision):
            yield Doubt(
                figure.subject,
                f"{value:.4g} FLOP/B is not {units.show(peaks[0], 'FLOP/s')} over {units.show(rates[0], 'B/s')}, which"
                f" is {right:.4g}: what lies between is called memory-bound or compute-bound wrongly",
                {"ridge FLOP/B": value, "peak over bandwidth FLOP/B": right, "ratio": value / right},
            )


def _same_roof(one: Figure, other: Figure) -> bool:
    return (one.group, one.device) == (other.group, other.device)


def _rates(figure: Figure, device: Device) -> dict[str, float]:
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


def _stated_rates(context: Context) -> Iterator[tuple[Figure, float, Device, dict[str, float]]]:
    """Stated peaks and bandwidths that are not the device's own, with those that are."""
    for figure, value in context.stated("peak", "bandwidth"):
        device = context.device(figure)
        if device is None:
            continue
        own = _rates(figure, device)
        if not any(close(value, rate, RATE) or prefix_slip(figure, value, rate) for rate in own.values()):
            yield figure, value, device, own


def _explanation(figure: Figure, value: float, device: Device, own: dict[str, float]) -> tuple[str, str]:
    """The code that explains a rate which is not the device's, and what it really is."""
    if figure.quantity == "bandwidth":
        links = (c for c in device.ceilings if c.silicon == "link" and close(value, c.rate, RATE))
        link = next(links, None)
        return ("rate-off", "") if link is None else ("link-as-memory", link.resource)
    compute = [c for c in device.ceilings if c.silicon in ("tensor", "fma")]
    for ceiling in compute:
        if ceiling.resource in own and ceiling.silicon == "tensor" and close(value, 2 * ceiling.rate, EXACTLY):
            return "sparse-peak", ceiling.resource
    for ceiling in compute:
        if ceiling.resource not in own and close(value, ceiling.rate, EXACTLY):
            return "peak-of-other-dtype", ceiling.resource
    return ("rate-off", "") if own else ("peak-without-source", "")


def _explained_by(context: Context, code: str) -> Iterator[tuple[Figure, float, Device, dict[str, float], str]]:
    for figure, value, device, own in _stated_rates(context):
        found, resource = _explanation(figure, value, device, own)
        if found == code:
            yield figure, value, device, own, resource


@check("rate-off", "warning", "look the device up with `rooflens devices show`, or name the source")
def rate_off(context: Context) -> Iterator[Doubt]:
    """A stated peak or bandwidth is not the device's."""
    for figure, value, device, own, _ in _explained_by(context, "rate-off"):
        unit = "FLOP/s" if figure.quantity == "peak" else "B/s"
        nearest = min(own, key=lambda resource: abs(own[resource] - value))
        yield Doubt(
            figure.subject,
            f"{units.show(value, unit)} is {fold(value / own[nearest])} times {units.show(own[nearest], unit)}, the"
            f" {nearest} of {device.name}: another variant, number of chips, or clock",
            {f"stated {unit}": value, f"{nearest} {unit}": own[nearest], "ratio": value / own[nearest]},
        )


@check("peak-of-other-dtype", "error", "draw work under the roof of the precision in which it runs")
def peak_of_other_dtype(context: Context) -> Iterator[Doubt]:
    """A stated peak is that of another precision."""
    for figure, value, device, own, resource in _explained_by(context, "peak-of-other-dtype"):
        right = ", ".join(f"{name} {units.show(rate, 'FLOP/s')}" for name, rate in own.items()) or "unknown"
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'FLOP/s')} is labelled {figure.dtype}, but it is the {resource} of {device.name}"
            f" (its {figure.dtype}: {right})",
            {"stated FLOP/s": value, "resource": resource, **{f"{name} FLOP/s": rate for name, rate in own.items()}},
        )


@check("sparse-peak", "error", "use the dense rate, half of it, unless the weights are pruned 2:4")
def sparse_peak(context: Context) -> Iterator[Doubt]:
    """A stated peak is the one with 2:4 sparsity."""
    for figure, value, device, own, resource in _explained_by(context, "sparse-peak"):
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'FLOP/s')} is twice the dense {resource} of {device.name}: the rate with 2:4 sparsity,"
            " which dense models cannot reach; efficiencies under it are halved",
            {"stated FLOP/s": value, "dense FLOP/s": own[resource], "ratio": value / own[resource]},
        )


@check("link-as-memory", "error", "draw DRAM traffic under the DRAM bandwidth")
def link_as_memory(context: Context) -> Iterator[Doubt]:
    """A stated memory bandwidth is that of PCIe or NVLink."""
    for figure, value, device, own, resource in _explained_by(context, "link-as-memory"):
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'B/s')} is the {resource} of {device.name}, not its memory's: points will lie above"
            " this roof",
            {"stated B/s": value, **{f"{name} B/s": rate for name, rate in own.items()}},
        )


@check("peak-without-source", "warning", "draw the bandwidth only, or name where the rate comes from")
def peak_without_source(context: Context) -> Iterator[Doubt]:
    """A peak is stated for a device that has no such rate."""
    for figure, value, device, _, _ in _explained_by(context, "peak-without-source"):
        has = ", ".join(c.resource for c in device.ceilings) or "none"
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'FLOP/s')} {figure.dtype} is stated, but no source gives {device.title} such a rate"
            f" (it has {has}): it may not compute in this precision at all",
            {"stated FLOP/s": value},
        )


@check("wrong-roof", "error", "divide by the peak of the precision in which the work runs")
def wrong_roof(context: Context) -> Iterator[Doubt]:
    """An estimated time is the FLOP over the peak of a precision in which the work does not run."""
    for figure, value in context.stated("estimated_time"):
        device = context.device(figure)
        if device is None or value <= 0:
            continue
        runs_in = (f"matmul.{p}" for p in ("fp32", precision_of(lenient(figure), device)))
        own = {c.rate for c in map(device.ceiling, runs_in) if c is not None}
        for _, flops in context.beside(figure, "flops"):
            other = [c for c in device.ceilings if c.silicon in ("tensor", "fma") and c.rate not in own]
            used = next((c for c in other if close(flops / value, c.rate, 2e-3 + figure.precision)), None)
            if used is not None:
                yield Doubt(
                    figure.subject,
                    f"{units.show(value, 's')} is {units.show(flops, 'FLOP')} at {units.show(used.rate, 'FLOP/s')}, the"
                    f" {used.resource} of {device.name}, but the work is {figure.dtype or 'fp32'}: too high a roof",
                    {"estimated s": value, "FLOP": flops, "used FLOP/s": used.rate, "resource": used.resource},
                )


@check("estimate-below-bound", "error", "take traffic and peak of the case: `rooflens estimate MODEL --device NAME`")
def estimate_below_bound(context: Context) -> Iterator[Doubt]:
    """An estimated time is below the bound."""
    for figure, value in context.stated("estimated_time"):
        least = context.bound(figure)
        if least is not None and 0 < value * (NOISE + figure.precision) < least:
            yield Doubt(
                figure.subject,
                f"{units.show(value, 's')} is below the bound of {units.show(least, 's')}: FLOP or traffic are too"
                " small, or a ceiling too high",
                {"estimated s": value, "bound s": least, "bound over estimate": least / value},
            )


@check("efficiency-above-one", "warning", "look for the reason that is named; `rooflens calibrate` knows real clocks")
def efficiency_above_one(context: Context) -> Iterator[Doubt]:
    """A time is below the bound, by as much as known reasons explain."""
    for figure, value, least, reason in _above(context):
        if reason:
            yield Doubt(
                figure.subject,
                f"{units.show(value, 's')} is {fold(least / value)} times as fast as the bound of"
                f" {units.show(least, 's')}; a known reason is {reason}",
                {"s": value, "bound s": least, "efficiency": least / value},
            )
    yield from _fast_bytes(context, cached=True)


@check("above-roof", "error", "check clock, units, device and what ran: nothing is faster than its roof")
def above_roof(context: Context) -> Iterator[Doubt]:
    """A time is below what any algorithm needs, or a rate is above its ceiling."""
    for figure, value, least, reason in _above(context):
        if not reason:
            yield Doubt(
                figure.subject,
                f"{units.show(value, 's')} is {fold(least / value)} times as fast as the bound of"
                f" {units.show(least, 's')}: more than caches, Winograd and boost clocks explain",
                {"s": value, "bound s": least, "efficiency": least / value},
            )
    yield from _fast_work(context)
    yield from _fast_bytes(context, cached=False)
    yield from _fast_kernels(context)


def _above(context: Context) -> Iterator[tuple[Figure, float, float, str]]:
    """Times below their bound, with the known reason for it, "" where there is none."""
    for figure, value in context.stated("time"):
        least, expected, device = context.bound(figure), context.expected(figure), context.device(figure)
        if least is None or expected is None or device is None or value <= 0:
            continue
        if least > value * (NOISE + figure.precision):
            yield figure, value, least, _reason(figure, value, expected, device, least / value)


def _reason(figure: Figure, value: float, expected: Expected, device: Device, ratio: float) -> str:
    """Why a step may be faster than the sum of its operations' bounds."""
    precision, dram = precision_of(lenient(figure), device), device.ceiling("dram")
    peak = device.ceiling(f"matmul.{precision}")
    busy = expected.matmul / peak.rate if peak is not None and expected.matmul else 0.0
    reasons = []
    if busy > value * WINOGRAD * BOOST:
        return ""
    unavoidable = max(0.0, (expected.compulsory or 0.0) - last_level_cache(device))
    if dram is not None and unavoidable / dram.rate > value * BOOST:
        return ""
    if ratio <= BOOST:
        reasons.append("a boost clock above the datasheet's")
    if busy > value:
        reasons.append("Winograd or FFT convolutions, which multiply less")
    if busy <= value or not reasons:
        reasons.append("operands that stayed in the last-level cache")
    return ", or ".join(reasons)


def _fast_work(context: Context) -> Iterator[Doubt]:
    """FLOP/s above the highest ceiling that they can have; counters know their precisions, see kernels.py."""
    for figure, value, seconds in _rated(context, "performance", ("counted_flops",)):
        device = context.device(figure)
        if device is None or figure.origin == "counters":
            continue
        precision = precision_of(lenient(figure), device)
        rates = [c.rate for u in ("matmul", "vector") if (c := device.ceiling(f"{u}.{precision}")) is not None]
        if rates and value > max(rates) * (BOOST + figure.precision):
            yield Doubt(
                figure.subject,
                f"{units.show(value, 'FLOP/s')} is above {units.show(max(rates), 'FLOP/s')}, the peak of {device.name}"
                f" in {precision}: time or FLOP are wrong, or the work ran in another precision",
                {"FLOP/s": value, "peak FLOP/s": max(rates), "ratio": value / max(rates), **seconds},
            )


def _fast_bytes(context: Context, *, cached: bool) -> Iterator[Doubt]:
    """Bytes per second above the DRAM bandwidth, where they fit into the last-level cache or where they do not."""
    for figure, value, seconds in _rated(context, "", ("bytes", "read_bytes")):
        rates = bandwidths(context, figure)
        fits = seconds["amount"] <= last_level_cache(context.device(figure))
        if rates and fits == cached and value > max(rates) * (BOOST + figure.precision):
            why = "they fit into the last-level cache, from which they came" if cached else "time or bytes are wrong"
            yield Doubt(
                figure.subject,
                f"{units.show(value, 'B/s')} is above the DRAM bandwidth of {units.show(max(rates), 'B/s')}: {why}",
                {"B/s": value, "bandwidth B/s": max(rates), "ratio": value / max(rates), **seconds},
            )


def _fast_kernels(context: Context) -> Iterator[Doubt]:
    """Launches whose counted work takes longer at the peak of its own units than they lasted."""
    for case, source, part in context.records.split():
        device = context.devices.get(case.device or "")
        if source != "counters" or device is None:
            continue
        fast = [(r, least / r.timing.median) for r in part if r.timing is not None and (least := _busy(r, device))]
        above = sorted(((r, ratio) for r, ratio in fast if ratio > BOOST), key=lambda item: -item[1])
        if above:
            record, ratio = above[0]
            yield Doubt(
                f"{case.label()}: {record.name}",
                f"{len(above)} kernels did their counted FLOP faster than the peak of {device.name}, this one"
                f" {fold(ratio)} times: time or FLOP are wrong, or the device is another one",
                {"kernels": len(above), "ratio": ratio},
            )


def _busy(record: Record, device: Device) -> float:
    """Seconds that the counted FLOP of a record take at peak; 0 where a rate is not known."""
    if record.work is None or record.timing is None or not record.timing.median:
        return 0.0
    try:
        return bound(replace(record.work, bytes={}), device).seconds
    except MissingCeiling:
        return 0.0


def _rated(context: Context, rate: str, amounts: tuple[str, ...]) -> Iterator[tuple[Figure, float, dict[str, float]]]:
    """Rates that are stated, and amounts that were counted over the times of the same run and origin."""
    for figure, value in context.stated(rate):
        yield figure, value, {}
    for figure, value in context.stated(*amounts):
        for other, seconds in context.beside(figure, "time"):
            if seconds > 0 and other.origin == figure.origin and figure.device:
                yield figure, value / seconds, {"amount": value, "s": seconds}
