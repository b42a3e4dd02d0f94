"""What stands above its roof, and the reasons that are known for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from rooflens import units
from rooflens.checks.context import Context, Stated, fold
from rooflens.checks.finding import FindingNumbers
from rooflens.checks.registry import Doubt, check, needs
from rooflens.checks.traffic import bandwidths, last_level_cache
from rooflens.errors import MissingCeiling
from rooflens.records import Device, Record
from rooflens.reported.fast_convolutions import USUALLY_LEFT
from rooflens.reported.figures import ReportedFigure
from rooflens.reported.right_values import Expected, precision_of
from rooflens.roofline import bound

EXACTLY = 1 + 1e-9
"""What is above its roof by more than rounding is told, as tables mark it with ``!``."""
BOOST = 1.15
"""Times the datasheet's rate that a clock above the stated one allows."""
MOST_SAVED = 1 / USUALLY_LEFT
"""Times as many FLOP as multiplications that Winograd's algorithm or FFT may have of a model that nobody knows."""
EXPLAINED, IMPOSSIBLE = "efficiency-above-one", "above-roof"


@check(
    IMPOSSIBLE,
    "error",
    "check clock, units, device and what ran: nothing is faster than its roof",
    "A time is below its bound or a rate above its ceiling, by more than boost, Winograd, FFT and caches explain",
)
@check(
    EXPLAINED,
    "warning",
    "look for the reason that is named; `rooflens calibrate` knows real clocks",
    "A time is below its bound or a rate above its ceiling, by as much as known reasons explain (`!` in tables)",
)
@needs("time", "performance", "counted_flops", "flops", "bytes", "read_bytes", "counters")
def above_roof(context: Context) -> Iterator[Doubt]:
    """A time is below its bound or a rate above its ceiling: by as much as known reasons explain, or by more."""
    return chain(
        _short_times(context), _fast_work(context), _fast_bytes(context), _fast_points(context), _fast_kernels(context)
    )


def _doubt(figure: ReportedFigure, what: str, known: str, why: str, numbers: FindingNumbers) -> Doubt:
    """The doubt about a number above its roof: explained where a reason is `known`, else wrong for some `why`."""
    return Doubt(figure.subject, f"{what}{known or why}", numbers, EXPLAINED if known else IMPOSSIBLE)


def _short_times(context: Context) -> Iterator[Doubt]:
    """Times below their bound."""
    for figure, value in context.stated("time"):
        meant = context.quickest(figure)
        least, expected, device = context.bound(meant), context.least(meant), context.device(meant)
        if least is None or expected is None or device is None or least <= value * (EXACTLY + figure.precision):
            continue
        reason = _reason(meant, value, expected, device, least / value)
        yield _doubt(
            figure,
            f"{units.show(value, 's')} is {fold(least / value)} times as fast as the bound of {units.show(least, 's')}",
            reason and f"; a known reason is {reason}",
            ": more than caches, Winograd and boost clocks explain",
            {"s": value, "bound s": least, "efficiency": least / value},
        )


def _reason(figure: ReportedFigure, value: float, expected: Expected, device: Device, ratio: float) -> str:
    """Why a step may be faster than the sum of its operations' bounds; "" where no reason is known."""
    precision, dram = precision_of(figure.loose_dtype, device), device.ceiling("dram")
    peak = device.ceiling(f"matmul.{precision}")
    busy, least = (n / peak.rate if peak is not None and n else 0.0 for n in (expected.matmul, expected.fewest))
    unavoidable = max(0.0, (expected.compulsory or 0.0) - last_level_cache(device))
    if least > value * BOOST or (dram is not None and unavoidable / dram.rate > value * BOOST):
        return ""
    reasons = []
    if ratio <= BOOST or least > value:
        reasons.append("a boost clock above the datasheet's")
    cached, is_cached = "operands that stayed in the last-level cache", ratio * value - (busy - least) > value * BOOST
    if busy > max(value, least):
        fast = "Winograd or FFT convolutions, which multiply less"
        reasons.append(f"{fast}, and {cached}" if is_cached else fast)  # which save no more than busy - least
    elif busy <= value or is_cached:
        reasons.append(cached)
    return ", or ".join(reasons)


def _fast_work(context: Context) -> Iterator[Doubt]:
    """FLOP/s above the highest ceiling that they can have, once per case; counters know their precisions.

    The algorithm's FLOP may be more than those that ran; where the model is known its bound says more.
    """
    stated = ((*each, BOOST) for each in _rates(context, context.stated("performance"), "counted_flops"))
    algorithmic = ((*each, BOOST * MOST_SAVED) for each in _rates(context, (), "flops") if not context.bound(each[0]))
    doubted: set[tuple[object, ...]] = set()
    for figure, value, numbers, most in chain(stated, algorithmic):
        device = context.device(figure)
        if device is None or figure.origin == "counters":
            continue
        precision = precision_of(context.quickest(figure).loose_dtype, device)
        rates = [c.rate for u in ("matmul", "vector") if (c := device.ceiling(f"{u}.{precision}")) is not None]
        above = value / max(rates) - figure.precision if rates else 0.0
        known = "a boost clock above the datasheet's" + (", or Winograd or FFT" if most > BOOST else "")
        explained = above <= most
        if above > EXACTLY and (explained, *figure.case) not in doubted:
            doubted.add((explained, *figure.case))
            yield _doubt(
                figure,
                f"{units.show(value, 'FLOP/s')} is above {units.show(max(rates), 'FLOP/s')}, the peak of {device.name}"
                f" in {precision}: ",
                f"a known reason is {known}" if explained else "",
                "time or FLOP are wrong, or the work ran in another precision",
                {"FLOP/s": value, "peak FLOP/s": max(rates), "ratio": value / max(rates), **numbers},
            )


def _fast_bytes(context: Context) -> Iterator[Doubt]:
    """Bytes per second above the DRAM bandwidth, where they fit into the last-level cache or where they do not."""
    for figure, value, numbers in _rates(context, (), "bytes", "read_bytes"):
        rates = bandwidths(context, figure)
        above = value / max(rates) - figure.precision if rates else 0.0
        if above > EXACTLY:
            known = "a higher memory clock" if above <= BOOST else ""
            if numbers["amount"] <= last_level_cache(context.device(figure)):
                known = "they fit into the last-level cache, from which they came"
            yield _doubt(
                figure,
                f"{units.show(value, 'B/s')} is above the DRAM bandwidth of {units.show(max(rates), 'B/s')}: ",
                known,
                "time or bytes are wrong",
                {"B/s": value, "bandwidth B/s": max(rates), "ratio": value / max(rates), **numbers},
            )


def _fast_points(context: Context) -> Iterator[Doubt]:
    """Points above the slope of their roof: FLOP/s that their intensity does not allow."""
    for figure, value in context.stated("performance"):
        rates = bandwidths(context, figure)
        for other, intensity in context.beside(figure, "intensity") if rates else ():
            most = intensity * max(rates)
            above = value / most - figure.precision - other.precision
            if above > EXACTLY:
                known = "a known reason is a higher memory clock" if above <= BOOST else ""
                if _is_cached(context, figure):
                    known = "a known reason is operands that stayed in the last-level cache"
                yield _doubt(
                    figure,
                    f"{units.show(value, 'FLOP/s')} at {intensity:.4g} FLOP/B is {fold(value / most)} times the"
                    f" {units.show(most, 'FLOP/s')} that {units.show(max(rates), 'B/s')} allow: ",
                    known,
                    "the intensity is not that of its DRAM traffic",
                    {"FLOP/s": value, "intensity FLOP/B": intensity, "attainable FLOP/s": most, "ratio": value / most},
                )


def _is_cached(context: Context, figure: ReportedFigure) -> bool:
    """True if the traffic of a step fits into the last-level cache: as it is stated, else its weights and inputs."""
    stated = [value for _, value in context.beside(figure, "bytes")]
    expected = context.expected(context.quickest(figure))
    least = max(stated) if stated else None if expected is None else expected.compulsory
    return least is not None and least <= last_level_cache(context.device(figure))


def _fast_kernels(context: Context) -> Iterator[Doubt]:
    """Launches whose counted work takes longer at the peak of its own units than they lasted."""
    for case, source, part in context.records.split():
        device = context.devices.get(case.device or "")
        if source != "counters" or device is None:
            continue
        fast = [(r, least / r.timing.median) for r in part if r.timing is not None and (least := _busy(r, device))]
        above = [(record, ratio) for record, ratio in fast if ratio > BOOST]
        if above:
            record, ratio = max(above, key=lambda each: each[1])
            yield Doubt(
                f"{case.label()}: {record.name}",
                f"{len(above)} kernels did their counted FLOP faster than the peak of {device.name}, this one"
                f" {fold(ratio)} times: time or FLOP are wrong, or the device is another one",
                {"kernels": len(above), "ratio": ratio},
                IMPOSSIBLE,
            )


def _busy(record: Record, device: Device) -> float:
    """Seconds that the counted FLOP of a record take at peak; 0 where a rate is not known."""
    if record.work is None or record.timing is None or not record.timing.median:
        return 0.0
    try:
        return bound(replace(record.work, bytes={}), device).seconds
    except MissingCeiling:
        return 0.0


def _rates(
    context: Context, stated: Iterable[Stated], *amounts: str
) -> Iterator[tuple[ReportedFigure, float, dict[str, float]]]:
    """Rates that are stated, and amounts over the times of the same run and origin, with the numbers behind them."""
    yield from ((figure, value, {}) for figure, value in stated)
    for figure, value in context.stated(*amounts):
        for other, seconds in context.beside(figure, "time"):
            if other.origin == figure.origin and figure.device:
                yield figure, value / seconds, {"amount": value, "s": seconds}
