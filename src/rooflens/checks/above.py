"""Checks of what stands above its roof, and the reasons that are known for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rooflens import units
from rooflens.checks.context import Context, fold
from rooflens.checks.registry import Doubt, check
from rooflens.checks.roofs import NOISE
from rooflens.checks.traffic import bandwidths, last_level_cache
from rooflens.errors import MissingCeiling
from rooflens.records import Device, Record
from rooflens.reported.figures import ReportedFigure
from rooflens.reported.right_values import Expected, precision_of
from rooflens.roofline import bound

BOOST = 1.15
"""Times the datasheet's rate that a clock above the stated one allows."""
WINOGRAD = 2.25
"""Multiplications that F(2x2, 3x3), the usual tile, saves."""


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
    for find in (_fast_work, _fast_bytes, _fast_points):
        yield from find(context, explained=True)


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
    for find in (_fast_work, _fast_bytes, _fast_points):
        yield from find(context, explained=False)
    yield from _fast_kernels(context)


def _above(context: Context) -> Iterator[tuple[ReportedFigure, float, float, str]]:
    """Times below their bound, with the known reason for it, "" where there is none."""
    for figure, value in context.stated("time"):
        meant = context.quickest(figure)
        least, expected, device = context.bound(meant), context.expected(meant), context.device(meant)
        if least is None or expected is None or device is None or value <= 0:
            continue
        if least > value * (NOISE + figure.precision):
            yield figure, value, least, _reason(meant, value, expected, device, least / value)


def _reason(figure: ReportedFigure, value: float, expected: Expected, device: Device, ratio: float) -> str:
    """Why a step may be faster than the sum of its operations' bounds."""
    precision, dram = precision_of(figure.loose_dtype, device), device.ceiling("dram")
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


def _fast_work(context: Context, *, explained: bool) -> Iterator[Doubt]:
    """FLOP/s above the highest ceiling that they can have; counters know their precisions, see kernels.py.

    The algorithm's FLOP may be more than those that ran; where the model is known its bound says more.
    """
    rated = [(*each, BOOST) for each in _rated(context, "performance", ("counted_flops",))]
    algorithmic = ((*each, BOOST * WINOGRAD) for each in _rated(context, "", ("flops",)) if not context.bound(each[0]))
    told: set[tuple[object, ...]] = set()
    for figure, value, seconds, most in (*rated, *algorithmic):
        device = context.device(figure)
        if device is None or figure.origin == "counters" or figure.case in told:
            continue
        precision = precision_of(context.quickest(figure).loose_dtype, device)
        rates = [c.rate for u in ("matmul", "vector") if (c := device.ceiling(f"{u}.{precision}")) is not None]
        above = value / max(rates) - figure.precision if rates else 0.0
        if above > NOISE and explained == (above <= most):
            told.add(figure.case)
            why = "time or FLOP are wrong, or the work ran in another precision"
            known = "a boost clock above the datasheet's" + (", or Winograd or FFT" if most > BOOST else "")
            yield Doubt(
                figure.subject,
                f"{units.show(value, 'FLOP/s')} is above {units.show(max(rates), 'FLOP/s')}, the peak of {device.name}"
                f" in {precision}: {f'a known reason is {known}' if explained else why}",
                {"FLOP/s": value, "peak FLOP/s": max(rates), "ratio": value / max(rates), **seconds},
            )


def _fast_bytes(context: Context, *, explained: bool) -> Iterator[Doubt]:
    """Bytes per second above the DRAM bandwidth, where they fit into the last-level cache or where they do not."""
    for figure, value, seconds in _rated(context, "", ("bytes", "read_bytes")):
        rates = bandwidths(context, figure)
        above = value / max(rates) - figure.precision if rates else 0.0
        fits = seconds["amount"] <= last_level_cache(context.device(figure))
        if above > NOISE and explained == (fits or above <= BOOST):
            known = "they fit into the last-level cache, from which they came" if fits else "a higher memory clock"
            yield Doubt(
                figure.subject,
                f"{units.show(value, 'B/s')} is above the DRAM bandwidth of {units.show(max(rates), 'B/s')}:"
                f" {known if explained else 'time or bytes are wrong'}",
                {"B/s": value, "bandwidth B/s": max(rates), "ratio": value / max(rates), **seconds},
            )


def _fast_points(context: Context, *, explained: bool) -> Iterator[Doubt]:
    """Points above the slope of their roof: FLOP/s that their intensity does not allow."""
    for figure, value in context.stated("performance"):
        rates = bandwidths(context, figure)
        for other, intensity in context.beside(figure, "intensity") if rates else ():
            most = intensity * max(rates)
            above = value / most - figure.precision - other.precision
            cached = _fits(context, figure)
            if above > NOISE and explained == (cached or above <= BOOST):
                known = "operands that stayed in the last-level cache" if cached else "a higher memory clock"
                why = f"a known reason is {known}" if explained else "the intensity is not that of its DRAM traffic"
                yield Doubt(
                    figure.subject,
                    f"{units.show(value, 'FLOP/s')} at {intensity:.4g} FLOP/B is {fold(value / most)} times the"
                    f" {units.show(most, 'FLOP/s')} that {units.show(max(rates), 'B/s')} allow: {why}",
                    {"FLOP/s": value, "intensity FLOP/B": intensity, "attainable FLOP/s": most, "ratio": value / most},
                )


def _fits(context: Context, figure: ReportedFigure) -> bool:
    """Whether the traffic of a step fits into the last-level cache: as it is stated, else its weights and inputs."""
    cache = last_level_cache(context.device(figure))
    stated = [value for _, value in context.beside(figure, "bytes")]
    expected = context.expected(context.quickest(figure))
    least = max(stated) if stated else None if expected is None else expected.compulsory
    return least is not None and least <= cache


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


def _rated(
    context: Context, rate: str, amounts: tuple[str, ...]
) -> Iterator[tuple[ReportedFigure, float, dict[str, float]]]:
    """Rates that are stated, and amounts that were counted over the times of the same run and origin."""
    for figure, value in context.stated(rate):
        yield figure, value, {}
    for figure, value in context.stated(*amounts):
        for other, seconds in context.beside(figure, "time"):
            if seconds > 0 and other.origin == figure.origin and figure.device:
                yield figure, value / seconds, {"amount": value, "s": seconds}
